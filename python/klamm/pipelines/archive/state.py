"""The state of a restore besides its mapping: the target topics, and their first offsets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from klamm.pipelines.archive.mapping import Mapping, read_runs
from klamm.pipelines.archive.store import write_durably
from klamm.pipelines.errors import PipelineError

FORMAT: Final = 1
FILE: Final = "restore.json"


@dataclass(slots=True)
class Target:
    """A topic that only this restore writes to."""

    topic: str
    """The topic in the archive."""
    topic_id: str | None
    """The id of the topic in the cluster; None before it is created."""
    bases: dict[int, int] = field(default_factory=dict)
    """The end of each partition before the first record was restored."""
    afterwards: dict[str, str] = field(default_factory=dict)
    """Configs to set after everything is restored."""


State = dict[str, Target]
"""By the topic's name in the cluster."""


def read_state(folder: Path) -> State:
    """The state; empty if there is none. Raises PipelineError if it is damaged or of a newer klamm."""
    file = folder / FILE
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_bytes())
        version = found["format"]
        if version != FORMAT:
            raise PipelineError(
                f"{file} is of format {version}, written by a newer klamm; this one knows format {FORMAT}: "
                "upgrade klamm"
            )
        return {
            name: Target(
                one["topic"],
                one["topic_id"],
                {int(number): base for number, base in one["bases"].items()},
                one["afterwards"],
            )
            for name, one in found["targets"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PipelineError(f"{file} is damaged: it is no state of a restore; take it from a copy") from None


def write_state(folder: Path, state: State) -> None:
    """Write the state atomically and durably."""
    body = {"format": FORMAT, "targets": {name: asdict(one) for name, one in sorted(state.items())}}
    write_durably(folder / FILE, (json.dumps(body, indent=1) + "\n").encode())


def read_mapping(folder: str | Path) -> dict[str, Mapping]:
    """The mapping of each topic that was restored with this state folder, by its name in the cluster."""
    state = read_state(Path(folder))
    if not state:
        raise PipelineError(f"'{folder}' is no state of a restore: there is no {FILE} in it")
    return {name: read_runs(Path(folder), one.topic, name, one.bases) for name, one in state.items()}
