"""Which partitions of a share group have a state at the share coordinator: the value of record 15."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from klamm.protocol.value import Value, field


class NamedPartitions(NamedTuple):
    """The name of a topic, and partitions of it."""

    name: str
    partitions: frozenset[int]


TopicPartitions = Mapping[bytes, NamedPartitions]
"""By topic id."""
Places = Mapping[bytes, Collection[int]]
"""Partitions by topic id."""
UNKNOWN: Final = "<UNKNOWN>"
"""What Kafka writes as the name of a topic that does not exist any more."""


class StatePartitions(Value):
    """The partitions whose state is being created, those that have one, and the topics whose states are deleted."""

    initializing: TopicPartitions = field(default_factory=dict)
    initialized: TopicPartitions = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)

    def begun(self, added: TopicPartitions) -> StatePartitions:
        """The creation of states has begun; their topics are not being deleted any more."""
        initializing = merged(self.initializing, added)
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in initializing}
        return StatePartitions(initializing, self.initialized, deleting)

    def created(self, added: TopicPartitions) -> StatePartitions:
        """States were created."""
        rest = without(self.initializing, {topic_id: one.partitions for topic_id, one in added.items()})
        return StatePartitions(rest, merged(self.initialized, added), self.deleting)

    def failed(self, places: Places) -> StatePartitions:
        """States could not be created."""
        return StatePartitions(without(self.initializing, places), self.initialized, self.deleting)

    def without_topics(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Without deleted topics."""
        initializing = {topic_id: one for topic_id, one in self.initializing.items() if topic_id not in topic_ids}
        initialized = {topic_id: one for topic_id, one in self.initialized.items() if topic_id not in topic_ids}
        return StatePartitions(initializing, initialized, self.without_deleting(topic_ids).deleting)

    def without_deleting(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """The states of these topics are deleted."""
        gone = frozenset(topic_ids)
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone}
        return StatePartitions(self.initializing, self.initialized, deleting)


def merged(before: TopicPartitions, added: TopicPartitions) -> TopicPartitions:
    """Both together; the names are those added."""
    found = dict(before)
    for topic_id, (name, partitions) in added.items():
        known = found[topic_id].partitions if topic_id in found else frozenset()
        found[topic_id] = NamedPartitions(name, known | partitions)
    return found


def without(before: TopicPartitions, places: Places) -> TopicPartitions:
    """The partitions that are not in `places`; a topic without partitions is left out."""
    left = {
        topic_id: NamedPartitions(name, partitions - frozenset(places.get(topic_id, ())))
        for topic_id, (name, partitions) in before.items()
    }
    return {topic_id: one for topic_id, one in left.items() if one.partitions}
