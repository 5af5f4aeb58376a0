"""The committed offsets of a shard's groups, and the pending offsets of open transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from klamm.coordinator.groups.overwritten import OffsetPlace, Overwritten
from klamm.coordinator.groups.records import OffsetAndMetadata

TopicOffsets = dict[str, dict[int, OffsetAndMetadata]]
GroupPlace = tuple[str, str, int]
"""Group, topic and partition."""


class OffsetStore:
    """Offsets by group, topic and partition.

    `record_offset` must grow from record to record, as log offsets do: a transactional commit replaces a plain one only
    if it was written later.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, TopicOffsets] = {}
        self._pending: dict[int, dict[GroupPlace, OffsetAndMetadata]] = {}
        """By producer id: the offsets of its open transaction."""
        self._open: dict[str, dict[OffsetPlace, set[int]]] = {}
        """By group and partition: the producers with a pending offset there."""

    def of_group(self, group_id: str) -> TopicOffsets:
        """The newest offsets of a group by topic and partition; do not modify."""
        return self._by_group.get(group_id) or {}

    @property
    def count(self) -> int:
        """The number of committed offsets. It visits every topic of every group."""
        return sum(len(partitions) for topics in self._by_group.values() for partitions in topics.values())

    def group_ids(self) -> Iterable[str]:
        """All groups with a committed offset."""
        return self._by_group.keys()

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The newest committed offset of a partition."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def put(
        self, group_id: str, topic: str, partition: int, commit: OffsetAndMetadata, overwritten: Overwritten | None
    ) -> None:
        """Set an offset, and add the old value to the snapshot."""
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        if overwritten is not None:
            _note(overwritten, group_id, (topic, partition), partitions.get(partition))
        partitions[partition] = commit

    def put_all(
        self, group_id: str, changes: list[tuple[str, int, OffsetAndMetadata]], overwritten: Overwritten
    ) -> None:
        """`put` for many partitions of a group: topic, partition and offset."""
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[group_id] = {}
        previous = overwritten.offsets.get(group_id)
        if previous is None:
            previous = overwritten.offsets[group_id] = {}
        for topic, partition, commit in changes:
            partitions = topics.get(topic)
            if partitions is None:
                partitions = topics[topic] = {}
            place = (topic, partition)
            if place not in previous:
                previous[place] = partitions.get(partition)
            partitions[partition] = commit

    def remove(self, group_id: str, topic: str, partition: int, overwritten: Overwritten | None) -> None:
        """Remove an offset and the pending offsets of open transactions for the same partition."""
        self._remove_committed(group_id, topic, partition, overwritten)
        self._remove_pending(group_id, topic, partition, overwritten)

    def _remove_committed(self, group_id: str, topic: str, partition: int, overwritten: Overwritten | None) -> None:
        topics = self._by_group.get(group_id)
        partitions = topics.get(topic) if topics is not None else None
        if topics is None or partitions is None or partition not in partitions:
            return
        old = partitions.pop(partition)
        if overwritten is not None:
            _note(overwritten, group_id, (topic, partition), old)
        if not partitions:
            del topics[topic]
            if not topics:
                del self._by_group[group_id]

    def _remove_pending(self, group_id: str, topic: str, partition: int, overwritten: Overwritten | None) -> None:
        place = (group_id, topic, partition)
        for producer_id in list(self._open.get(group_id, {}).get((topic, partition), ())):
            old = self._take_pending(producer_id, place)
            if overwritten is not None:
                overwritten.undo.append(partial(self.put_pending, producer_id, place, old, None))

    def put_pending(
        self, producer_id: int, place: GroupPlace, commit: OffsetAndMetadata, overwritten: Overwritten | None
    ) -> None:
        """Add an offset of an open transaction, pending until its end. A later one of the transaction replaces it."""
        pending = self._pending.setdefault(producer_id, {})
        if overwritten is not None:
            overwritten.undo.append(partial(self._restore_pending, producer_id, place, pending.get(place)))
        pending[place] = commit
        group_id, topic, partition = place
        self._open.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)

    def _restore_pending(self, producer_id: int, place: GroupPlace, old: OffsetAndMetadata | None) -> None:
        if old is None:
            self._take_pending(producer_id, place)
        else:
            self.put_pending(producer_id, place, old, None)

    def _take_pending(self, producer_id: int, place: GroupPlace) -> OffsetAndMetadata:
        pending = self._pending[producer_id]
        old = pending.pop(place)
        if not pending:
            del self._pending[producer_id]
        self._close(*place, producer_id)
        return old

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        places = self._open[group_id]
        producers = places[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del places[topic, partition]
            if not places:
                del self._open[group_id]

    def end_transaction(self, producer_id: int, is_commit: bool, overwritten: Overwritten | None) -> None:
        """Commit or drop the pending offsets of the producer.

        A plain commit that was written after a pending offset wins over it.
        """
        for place, commit in self._pending.pop(producer_id, {}).items():
            self._close(*place, producer_id)
            if overwritten is not None:
                overwritten.undo.append(partial(self.put_pending, producer_id, place, commit, None))
            current = self.get(*place)
            if is_commit and (current is None or commit.record_offset > current.record_offset):
                self.put(*place, commit, overwritten)

    def pending(self) -> dict[int, dict[GroupPlace, OffsetAndMetadata]]:
        """The pending offsets by producer id, and by group, topic and partition; do not modify."""
        return self._pending

    def has_open_transactions(self, group_id: str) -> bool:
        """Whether the group has a pending offset."""
        return group_id in self._open

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction has a pending offset for the partition."""
        return (topic, partition) in self._open.get(group_id, {})

    def places(self, group_id: str) -> list[OffsetPlace]:
        """All partitions for which the group has a committed or pending offset."""
        committed = [(topic, part) for topic, parts in self.of_group(group_id).items() for part in parts]
        pending = (place for place in self._open.get(group_id, {}) if self.get(group_id, *place) is None)
        return committed + list(pending)

    def places_of_topic(self, topic: str, topic_id: bytes, no_id: bytes) -> Iterator[tuple[str, int]]:
        """Group and partition of every committed or pending offset with this topic id or without one."""
        for group_id, topics in self._by_group.items():
            for partition, commit in topics.get(topic, {}).items():
                if commit.topic_id in (topic_id, no_id):
                    yield group_id, partition
        for pending in self._pending.values():
            for (group_id, pending_topic, partition), commit in pending.items():
                if pending_topic == topic and commit.topic_id in (topic_id, no_id):
                    yield group_id, partition

    def rollback(self, overwritten: Overwritten) -> None:
        """Restore the offsets before a write, the newest one that is pending."""
        for group_id, places in overwritten.offsets.items():
            for (topic, partition), old in places.items():
                if old is None:
                    self._remove_committed(group_id, topic, partition, None)
                else:
                    self.put(group_id, topic, partition, old, None)

    def committed_of_group(self, group_id: str, snapshots: list[Overwritten]) -> TopicOffsets:
        """The group's offsets before the first of `snapshots` (oldest first); do not modify."""
        current = self.of_group(group_id)
        previous = [one.offsets[group_id] for one in snapshots if group_id in one.offsets]
        if not previous:
            return current
        committed = {topic: dict(partitions) for topic, partitions in current.items()}
        for places in reversed(previous):
            for (topic, partition), old in places.items():
                if old is None:
                    committed.get(topic, {}).pop(partition, None)
                else:
                    committed.setdefault(topic, {})[partition] = old
        return {topic: partitions for topic, partitions in committed.items() if partitions}


def _note(overwritten: Overwritten, group_id: str, place: OffsetPlace, old: OffsetAndMetadata | None) -> None:
    previous = overwritten.offsets.get(group_id)
    if previous is None:
        previous = overwritten.offsets[group_id] = {}
    if place not in previous:
        previous[place] = old
