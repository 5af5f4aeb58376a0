"""Selects topics and groups to mirror, and names topics on the target. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm.pipelines.errors import PipelineError

INTERNAL: Final = (r"__.*", r"\..*", r"mm2.*\.internal", r".*\.checkpoints\.internal", r"klamm-mirror\..*\.internal")
"""Topics of Kafka, of MirrorMaker 2 and of this mirror, which are never mirrored, as in MirrorMaker 2."""
GROUPS_EXCLUDED: Final = (r"console-consumer-.*", r"connect-.*", r"__.*")
"""MirrorMaker 2's default of `groups.exclude`."""


class SelectionError(PipelineError):
    """An invalid selection; the message names it and the way out."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Names, and patterns for full names, except for excluded ones."""

    names: Sequence[str] = ()
    patterns: Sequence[str] = ()
    """Regular expressions; so of `excluded`."""
    excluded: Sequence[str] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.patterns, *self.excluded):
            check_pattern(pattern)

    def __bool__(self) -> bool:
        return bool(self.names or self.patterns)

    def takes(self, name: str) -> bool:
        """Whether this name is selected."""
        return re.fullmatch(self.regex, name) is not None

    @property
    def regex(self) -> str:
        """The selection as one regular expression."""
        named = _joined(map(re.escape, self.names))
        return rf"{named}|(?!(?:{_joined(self.excluded)})\Z)(?:{_joined(self.patterns)})"


def topics(*, names: Sequence[str] = (), patterns: Sequence[str] = (), excluded: Sequence[str] = ()) -> Selection:
    """The topics to mirror. Raises SelectionError, also for a name that is internal to its cluster."""
    for name in names:
        if re.fullmatch(_joined(INTERNAL), name):
            raise SelectionError(f"topic '{name}' is internal to its cluster, and never mirrored")
    return Selection(names, patterns, (*excluded, *INTERNAL))


def groups(*, names: Sequence[str] = (), patterns: Sequence[str] = (), excluded: Sequence[str] = ()) -> Selection:
    """Groups whose commits are translated. Raises SelectionError."""
    return Selection(names, patterns, (*excluded, *GROUPS_EXCLUDED))


def check_pattern(pattern: str) -> None:
    """Raise SelectionError if it is not a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise SelectionError(f"'{pattern}' is no regular expression: {error}") from None


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of topics on the target: from `renamed`, otherwise with `prefix`."""

    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if nameless := [topic for topic, name in self.renamed.items() if not name]:
            raise SelectionError(f"topic {nameless[0]} has no name on the target: give TOPIC=NAME")

    def target(self, topic: str) -> str:
        """The name there."""
        return self.renamed.get(topic, self.prefix + topic)

    def targets(self, topics: Collection[str]) -> dict[str, str]:
        """The target's name for each topic. Raises SelectionError if two would be equal."""
        by_target: dict[str, str] = {}
        for topic in sorted(topics):
            other = by_target.setdefault(self.target(topic), topic)
            if other != topic:
                raise SelectionError(
                    f"topics {other} and {topic} would both be written to {self.target(topic)}: rename one of them"
                )
        return {topic: name for name, topic in by_target.items()}


def _joined(patterns: Iterable[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)"
