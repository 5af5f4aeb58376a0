"""Which topics and groups are mirrored, and how topics are called on the target. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm.pipelines.errors import PipelineError

INTERNAL: Final = (r"__.*", r"\..*", r"mm2.*\.internal", r".*\.checkpoints\.internal", r"klamm-mirror\..*\.internal")
"""Topics of Kafka itself, of MirrorMaker 2 and of this mirror: never mirrored, as MirrorMaker 2 has it."""
GROUPS_EXCLUDED: Final = (r"console-consumer-.*", r"connect-.*", r"__.*")
"""MirrorMaker 2's default of `groups.exclude`."""


class SelectionError(PipelineError):
    """What was chosen makes no sense; the text names it and the way out."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Those that are named, and those whose whole name matches a pattern, but for what is excluded."""

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
        """Whether this one is mirrored."""
        return re.fullmatch(self.regex, name) is not None

    @property
    def regex(self) -> str:
        """The same as one expression."""
        named = _joined(map(re.escape, self.names))
        return rf"{named}|(?!(?:{_joined(self.excluded)})\Z)(?:{_joined(self.patterns)})"


def topics(*, names: Sequence[str] = (), patterns: Sequence[str] = (), excluded: Sequence[str] = ()) -> Selection:
    """Topics to mirror. Raises SelectionError, also for a name that is internal to its cluster."""
    for name in names:
        if re.fullmatch(_joined(INTERNAL), name):
            raise SelectionError(f"topic '{name}' is internal to its cluster, and never mirrored")
    return Selection(names, patterns, (*excluded, *INTERNAL))


def groups(*, names: Sequence[str] = (), patterns: Sequence[str] = (), excluded: Sequence[str] = ()) -> Selection:
    """Groups whose commits are translated. Raises SelectionError."""
    return Selection(names, patterns, (*excluded, *GROUPS_EXCLUDED))


def check_pattern(pattern: str) -> None:
    """Raise SelectionError where it is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise SelectionError(f"'{pattern}' is no regular expression: {error}") from None


@dataclass(frozen=True, slots=True)
class Naming:
    """What a topic is called on the target: by `renamed`, else with `prefix` in front."""

    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if nameless := [topic for topic, name in self.renamed.items() if not name]:
            raise SelectionError(f"topic {nameless[0]} is to be called nothing on the target: say TOPIC=NAME")

    def target(self, topic: str) -> str:
        """The name there."""
        return self.renamed.get(topic, self.prefix + topic)

    def targets(self, topics: Collection[str]) -> dict[str, str]:
        """The name of each there. Raises SelectionError where two would be one."""
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
