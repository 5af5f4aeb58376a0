"""From the topology that clients send to the tasks and internal topics of the group (Kafka's `streams.topics`).

Source topics must exist. A repartition topic has as many partitions as the topology says, or as the largest source of
the subtopologies that write it. The topics of a copartition group have equal counts. A subtopology has as many tasks,
and its changelogs as many partitions, as its largest source has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Final

from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.streams_messages import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    DescribedSubtopology,
    DescribedTopology,
    InternalTopic,
    Status,
    Subtopology,
    Topology,
)
from klamm.protocol.value import Value

PartitionCount = Callable[[str], int | None]
"""The partition count of a topic; None if it does not exist."""

SHOWN_TOPICS: Final = 3


class ConfiguredSubtopology(Value):
    """A subtopology whose partition counts are known; `task_count` is at least 1."""

    subtopology_id: str
    task_count: int
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state, and so can have standbys."""
        return bool(self.state_changelog_topics)

    @property
    def input_topics(self) -> tuple[str, ...]:
        """The topics that its tasks read, sorted."""
        return tuple(sorted({*self.source_topics, *(topic.name for topic in self.repartition_source_topics)}))


class ConfiguredTopology(Value):
    """A topology with the existing topics taken into account.

    Invariants: with no `problem` all topics exist, and `missing_topics` is empty. `subtopologies` is None when the
    counts could not be decided. Subtopologies and topics are sorted.
    """

    epoch: int
    subtopologies: tuple[ConfiguredSubtopology, ...] | None
    missing_topics: tuple[InternalTopic, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None

    def task_counts(self) -> dict[str, int]:
        """The number of tasks of each subtopology."""
        return {one.subtopology_id: one.task_count for one in self.subtopologies or ()}


class _Unusable(Exception):
    """The topics that exist do not fit the topology."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configure(topology: Topology, existing: PartitionCount) -> ConfiguredTopology:
    """Decide all partition counts (`InternalTopicManager.configureTopics`).

    Raises KafkaError: STREAMS_INVALID_TOPOLOGY where no topics could make the topology work, UNKNOWN_SERVER_ERROR where
    Apache Kafka fails with an unexpected exception.
    """
    # As in Kafka before anything else: a topology that can never work must not be stored because a topic is missing.
    groups = list(map(_copartition_groups, topology.subtopologies))
    try:
        _check_source_topics(topology, existing)
        counts = _Counts(topology, existing).decide(chain(*groups))
        subtopologies = tuple(
            _configured(one, counts) for one in sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
        )
        missing = _missing_internal_topics(subtopologies, existing)
    except _Unusable as unusable:
        return ConfiguredTopology(topology.epoch, None, problem=unusable.status)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summary(topic.name for topic in missing)}"
        problem = Status(MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def required_topics(topology: Topology) -> set[str]:
    """The topics that must exist before tasks are assigned."""
    return {
        name
        for one in topology.subtopologies
        for name in (*_input_topics(one), *(topic.name for topic in one.state_changelog_topics))
    }


def subtopologies_by_input(topology: Topology) -> dict[str, str]:
    """The subtopology that reads each topic."""
    return {name: one.subtopology_id for one in topology.subtopologies for name in _input_topics(one)}


def is_same_topology(first: Topology, second: Topology) -> bool:
    """Whether epoch and content are equal; the order of subtopologies does not count."""
    return first.epoch == second.epoch and _by_id(first) == _by_id(second)


def _by_id(topology: Topology) -> dict[str, Subtopology]:
    return {one.subtopology_id: one for one in topology.subtopologies}


def _input_topics(subtopology: Subtopology) -> tuple[str, ...]:
    return (*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics))


def _check_source_topics(topology: Topology, existing: PartitionCount) -> None:
    names = {name for one in topology.subtopologies for name in one.source_topics}
    missing = sorted(name for name in names if existing(name) is None)
    if missing:
        raise _Unusable(MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


class _Counts:
    """The partition counts of internal topics while they are decided."""

    def __init__(self, topology: Topology, existing: PartitionCount) -> None:
        self._subtopologies = topology.subtopologies
        self._existing = existing
        self._decided: dict[str, int] = {}
        sources = [topic for one in self._subtopologies for topic in one.repartition_source_topics]
        self._fixed = {topic.name: topic.partitions for topic in sources if topic.partitions}
        self._flexible = {topic.name for topic in sources if not topic.partitions}
        self._fixed_counts: set[int] = set()

    def decide(self, copartition_groups: Iterable[set[str]]) -> _Counts:
        """Decide all counts."""
        self._decided = self._of_repartition_topics()
        self._fixed_counts = {self.of(name) for name in self._fixed}
        for names in copartition_groups:
            self._decided |= self._copartitioned(names)
        for one in self._subtopologies:
            count = max(map(self.of, _input_topics(one)), default=0)
            if not count:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY, f"No source topics found for subtopology {one.subtopology_id}"
                )
            self._decided |= {topic.name: count for topic in one.state_changelog_topics}
        return self

    def of(self, name: str) -> int:
        """The count of a topic: its own if it exists, else the decided one."""
        count = self._existing(name)
        return self._decided_count(name) if count is None else count

    def _decided_count(self, name: str) -> int:
        if name not in self._decided:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"No partition count for topic {name}")
        return self._decided[name]

    def decided(self, topic: InternalTopic) -> int:
        """The count that an internal topic should have."""
        count = topic.partitions or self._decided_count(topic.name)
        if count < 1:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{count} partitions for topic {topic.name}")
        return count

    def _of_repartition_topics(self) -> dict[str, int]:
        """Fixed counts, then those of written topics, until no more can be computed (`RepartitionTopics`)."""
        counts = dict(self._fixed)
        self._decide_written(counts)
        if any(name not in counts for one in self._subtopologies for name in one.repartition_sink_topics):
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved.",
            )
        if not self._flexible <= counts.keys():
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics, because a repartition source "
                "topic is never used as a sink topic.",
            )
        return counts

    def _decide_written(self, counts: dict[str, int]) -> None:
        """Add the counts of the topics that subtopologies write.

        Kafka visits all subtopologies in passes, and a count depends on the sources that are known at the visit. This
        makes the same visits in the same order, without those that decide nothing: one for each subtopology, when the
        first of its sources is known.
        """
        readers: dict[str, list[int]] = {}
        for place, one in enumerate(self._subtopologies):
            for topic in one.repartition_source_topics:
                readers.setdefault(topic.name, []).append(place)
        visits = [(0, place) for place, one in enumerate(self._subtopologies) if self._has_known_source(one, counts)]
        planned = {place for _, place in visits}
        while visits:
            number, place = heappop(visits)
            one = self._subtopologies[place]
            count = self._largest_known_source(one, counts)
            for name in [name for name in one.repartition_sink_topics if name not in counts]:
                counts[name] = count
                for reader in readers.pop(name, ()):
                    if reader not in planned:
                        planned.add(reader)
                        heappush(visits, (number if reader > place else number + 1, reader))

    @staticmethod
    def _has_known_source(subtopology: Subtopology, counts: Mapping[str, int]) -> bool:
        return bool(subtopology.source_topics) or any(
            topic.name in counts for topic in subtopology.repartition_source_topics
        )

    def _largest_known_source(self, subtopology: Subtopology, counts: Mapping[str, int]) -> int:
        known = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
        known += map(self._existing, subtopology.source_topics)
        return max(count for count in known if count is not None)

    def _copartitioned(self, names: set[str]) -> dict[str, int]:
        """The counts of the repartition topics of a copartition group (`CopartitionedTopicsEnforcer`)."""
        if not names:
            return {}
        internal = {name: self.of(name) for name in names if name in self._fixed or name in self._flexible}
        external = {name: self.of(name) for name in names - internal.keys()}
        if external:
            count = _same_count(set(external.values()), external)
        elif self._fixed:
            # As in Kafka: all topics with a fixed count must agree, also those of other copartition groups.
            count = _same_count(self._fixed_counts, internal)
        else:
            count = max(internal.values(), default=0)
        for name, own in internal.items():
            if name in self._fixed and own != count:
                raise _Unusable(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                    f"[{count}] of the source topic.",
                )
        return dict.fromkeys(internal, count)


def _copartition_groups(subtopology: Subtopology) -> list[set[str]]:
    """The topics of each copartition group. Raises UNKNOWN_SERVER_ERROR for an index without a topic."""
    sources = subtopology.source_topics
    repartition_sources = tuple(topic.name for topic in subtopology.repartition_source_topics)
    return [
        {*_at(sources, group.source_topics), *_at(repartition_sources, group.repartition_source_topics)}
        for group in subtopology.copartition_groups
    ]


def _at(topics: Sequence[str], indexes: Iterable[int]) -> Iterator[str]:
    for index in indexes:
        if not 0 <= index < len(topics):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"a copartition group has the index {index} of {len(topics)}"
            )
        yield topics[index]


def _same_count(counts: set[int], shown: Mapping[str, int]) -> int:
    """The only one of `counts`; if there are several, the error shows `shown`."""
    if len(counts) > 1:
        pairs = ", ".join(f"{name}={count}" for name, count in sorted(shown.items()))
        raise _Unusable(
            INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{pairs}}}]",
        )
    return next(iter(counts))


def _configured(subtopology: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    def configured(topics: Sequence[InternalTopic]) -> tuple[InternalTopic, ...]:
        # As in Kafka, which collects both into maps.
        _check_distinct(topic.name for topic in topics)
        for topic in topics:
            _check_distinct(config.key for config in topic.topic_configs)
        made = (
            InternalTopic(one.name, counts.decided(one), one.replication_factor, one.topic_configs) for one in topics
        )
        return tuple(sorted(made, key=lambda topic: topic.name))

    return ConfiguredSubtopology(
        subtopology.subtopology_id,
        max(map(counts.of, _input_topics(subtopology))),
        tuple(sorted(set(subtopology.source_topics))),
        tuple(sorted(set(subtopology.repartition_sink_topics))),
        configured(subtopology.repartition_source_topics),
        configured(subtopology.state_changelog_topics),
    )


def _check_distinct(keys: Iterable[str]) -> None:
    every = list(keys)
    if len(set(every)) < len(every):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "an internal topic or its config is repeated")


def _missing_internal_topics(
    subtopologies: Iterable[ConfiguredSubtopology], existing: PartitionCount
) -> tuple[InternalTopic, ...]:
    wanted = {
        topic.name: topic
        for one in subtopologies
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics)
    }
    for name, topic in sorted(wanted.items()):
        found = existing(name)
        if found is not None and found != topic.partitions:
            raise _Unusable(
                INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {found}",
            )
    return tuple(topic for name, topic in sorted(wanted.items()) if existing(name) is None)


def _summary(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - SHOWN_TOPICS} additional topics" if len(every) > SHOWN_TOPICS else ""
    return ", ".join(every[:SHOWN_TOPICS]) + more


# For StreamsGroupDescribe


def described(configured: ConfiguredTopology | None, topology: Topology) -> DescribedTopology:
    """The configured topology if it is ready, else as clients sent it."""
    if configured is not None and configured.is_ready:
        return DescribedTopology(configured.epoch, tuple(map(_described, configured.subtopologies or ())))
    ordered = sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
    return DescribedTopology(topology.epoch, tuple(map(_described, ordered)))


def _described(subtopology: ConfiguredSubtopology | Subtopology) -> DescribedSubtopology:
    def by_name(topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        return tuple(sorted(topics, key=lambda topic: topic.name))

    return DescribedSubtopology(
        subtopology.subtopology_id,
        tuple(sorted(subtopology.source_topics)),
        tuple(sorted(subtopology.repartition_sink_topics)),
        by_name(subtopology.state_changelog_topics),
        by_name(subtopology.repartition_source_topics),
    )
