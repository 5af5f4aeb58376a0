"""The options and the progress of a mirror. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm.pipelines.errors import PipelineError
from klamm.pipelines.mirror.groups import Moved
from klamm.pipelines.mirror.selection import Naming, Selection, check_pattern


class MirrorError(PipelineError):
    """The mirror cannot continue; the message names the cause, its value and the way out.

    A restart continues reading.
    """


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The topics and groups to mirror, the clusters, and how to mirror."""

    source: str
    """Bootstrap servers, `host:port,...`; likewise for the target."""
    target: str
    checkpoint: str
    """Spark's checkpoint folder with the position of the mirror. One per mirror; without it the mirror starts over."""
    topics: Selection
    groups: Selection = field(default_factory=Selection)
    """Groups whose commits are translated; none by default."""
    naming: Naming = field(default_factory=Naming)
    once: bool = False
    """Copy the existing records and end; otherwise run until `stop` or an error."""
    trigger_s: float = 1
    """How often to look for new records."""
    interval_s: float = 5
    """How often to update topics, configs and groups on the target, and to report progress."""
    batch_records_max: int = 1_000_000
    """Records of a micro-batch."""
    fail_on_data_loss: bool = True
    """Whether to fail if records or a topic were deleted before they were read."""
    replication_factor: int = -1
    """For created topics; -1: the target's default."""
    excluded_configs: tuple[str, ...] = ()
    """Regular expressions of configs that are not mirrored, in addition to MirrorMaker 2's."""
    source_config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys of Kafka's clients; likewise for the target."""
    target_config: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.topics:
            raise MirrorError("no topic to mirror: name some, or a pattern")
        for pattern in self.excluded_configs:
            check_pattern(pattern)


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """The position of a topic."""

    topic: str
    target: str
    partitions: int
    lag: int
    """Offsets of the source that are not yet on the target."""


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """The position of the mirror."""

    source_id: str
    """Cluster ids."""
    target_id: str
    topics: tuple[TopicProgress, ...]
    groups: tuple[Moved, ...]
    """The groups of the latest update, with everything that this run has committed for them on the target."""
    records: int
    """Written by this run."""
    left_out: tuple[str, ...]
    """Topics that are themselves mirrored from the target."""
    trouble: str | None = None
    """Why the latest update of topics, configs or groups failed; it is retried."""

    @property
    def lag(self) -> int:
        """Of all topics."""
        return sum(topic.lag for topic in self.topics)
