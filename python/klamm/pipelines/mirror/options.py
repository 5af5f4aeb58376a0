"""What a mirror is told, and what it tells. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm.pipelines.errors import PipelineError
from klamm.pipelines.mirror.groups import Moved
from klamm.pipelines.mirror.selection import Naming, Selection, check_pattern


class MirrorError(PipelineError):
    """The mirror cannot go on; the text names the thing, the value and the way out. Started again, it reads on."""


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """What is mirrored, from where to where, and how."""

    source: str
    """Bootstrap servers, `host:port,...`; so of the target."""
    target: str
    checkpoint: str
    """A folder of Spark's: how far the mirror has come. One for each mirror; lost, it begins anew."""
    topics: Selection
    groups: Selection = field(default_factory=Selection)
    """Whose commits are translated; none unless some are chosen."""
    naming: Naming = field(default_factory=Naming)
    once: bool = False
    """Copy what there is now and end; else go on until `stop` says so, or an error."""
    trigger_s: float = 1
    """How often new records are looked for."""
    interval_s: float = 5
    """How often topics, configs and groups are brought to the target, and progress is told."""
    batch_records_max: int = 1_000_000
    """Records of a micro-batch."""
    fail_on_data_loss: bool = True
    """Whether to end where records, or a topic, went away before they were read."""
    replication_factor: int = -1
    """Of topics that are made on the target; -1: its default."""
    excluded_configs: tuple[str, ...] = ()
    """Regular expressions of configs that are not mirrored, beside MirrorMaker 2's."""
    source_config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys of Kafka's clients; so of the target."""
    target_config: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.topics:
            raise MirrorError("no topic to mirror: name some, or a pattern")
        for pattern in self.excluded_configs:
            check_pattern(pattern)


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far a topic is."""

    topic: str
    target: str
    partitions: int
    lag: int
    """Offsets of the source that are not yet on the target."""


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """How far the mirror is."""

    source_id: str
    """Cluster ids."""
    target_id: str
    topics: tuple[TopicProgress, ...]
    groups: tuple[Moved, ...]
    """The groups of the last look, with all that this run has committed for them on the target."""
    records: int
    """Written by this run."""
    left_out: tuple[str, ...]
    """Topics that are a mirror of the target themselves."""
    trouble: str | None = None
    """Why topics, configs or groups could not be looked after last time; it is tried again."""

    @property
    def lag(self) -> int:
        """Of all topics."""
        return sum(topic.lag for topic in self.topics)
