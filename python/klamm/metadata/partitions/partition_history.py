"""The history of one partition: each change with its cause, and why it has no leader now."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import Entry
from klamm.metadata.log.history import History, State
from klamm.metadata.log.moments import END, Moment
from klamm.metadata.partitions.broker_events import BrokerEvent, BrokerEvents, events_of
from klamm.metadata.partitions.causes import cause_of
from klamm.metadata.partitions.diagnosis import diagnose
from klamm.metadata.partitions.partition_state import PartitionState
from klamm.metadata.rendering.descriptions import PriorPartition, ids_text, leader_text, partition_changes
from klamm.protocol.generated import metadata_records as mr

_PARTITION_TYPES: Final = frozenset({mr.PartitionRecord.TYPE, mr.PartitionChangeRecord.TYPE})


class PartitionChange(NamedTuple):
    """What one record changed."""

    offset: int
    epoch: int
    timestamp_ms: int
    change: str
    cause: str
    """Empty when the records give no cause."""


class PartitionHistory(NamedTuple):
    """The changes of a partition, and its state at the end."""

    topic: str
    partition: int
    changes: list[PartitionChange]
    state: str
    """Its leader at the end, or why it has none."""
    advice: list[str]
    """The event that would give the partition a leader, if it has none."""


def partition_history(
    history: History, topic: str, partition: int, until: Moment | str | int = END
) -> PartitionHistory:
    """The history of a partition up to a moment. HistoryError: the log contains no such partition."""
    end = history.state_at(until)
    first = history.state_at(history.earliest_state())
    builder = _HistoryBuilder(topic, partition, first)
    for entry in history.records(first.offset + 1, end.offset + 1) if not history.is_snapshot else ():
        try:
            builder.take(entry)
        except ValueError as error:
            raise HistoryError(f"{history.path}: the record at offset {entry.offset}: {error}") from None
    changes = builder.changes()
    if not changes:
        known = ", ".join(end.image.topic_names()[:20]) or "none"
        raise HistoryError(f"there is no partition {topic}-{partition} in {history.path}; topics: {known}")
    state, advice = diagnose(end, topic, partition, builder.events, is_deleted=builder.is_deleted)
    return PartitionHistory(topic, partition, changes, state, advice)


class _HistoryBuilder:
    """Takes records in order and keeps those of one partition. A cause may come after its effect in the log."""

    def __init__(self, topic: str, partition: int, first: State) -> None:
        self._topic, self._partition = topic, partition
        topic_id = first.image.topic_id(topic)
        self._ids = set() if topic_id is None else {topic_id}
        self._events: list[BrokerEvent] = []
        self._changes: list[PartitionChange] = []
        self._unexplained: list[tuple[int, Entry, PartitionState, PartitionState]] = []
        self._now: PartitionState | None = None
        self.is_deleted = False
        info = None if topic_id is None else first.image.partition(topic_id, partition)
        if info is not None:
            self._now = PartitionState.of_image(info)
            change = f"as the snapshot has it: {_state_text(self._now)}"
            self._changes.append(PartitionChange(first.offset, first.epoch, first.timestamp_ms, change, ""))

    @property
    def events(self) -> BrokerEvents:
        """What happened to brokers."""
        return BrokerEvents(self._events)

    def changes(self) -> list[PartitionChange]:
        """The changes so far."""
        events = self.events
        changes = list(self._changes)
        for at, entry, before, after in self._unexplained:
            changes[at] = changes[at]._replace(cause=cause_of(entry, before, after, events))
        return changes

    def take(self, entry: Entry) -> None:
        """One record."""
        self._events += events_of(entry)
        if entry.control is not None or not self._may_concern(entry):
            return
        record = entry.record()
        match record:
            case mr.TopicRecord() if record.name == self._topic:
                self._ids.add(record.topic_id)
                self.is_deleted = False
            case mr.RemoveTopicRecord() if record.topic_id in self._ids and self._now is not None:
                self._add(entry, "deleted, with its topic")
                self._now, self.is_deleted = None, True
            case mr.ClearElrRecord() if self._now is not None and record.topic_name in ("", self._topic):
                self._clear_elr(entry, self._now)
            case mr.PartitionRecord() if self._is_mine(record):
                self._now, self.is_deleted = PartitionState.created(record), False
                self._add(entry, f"created: {_state_text(self._now)}")
            case mr.PartitionChangeRecord() if self._is_mine(record) and self._now is not None:
                self._change(entry, record, self._now)

    def _may_concern(self, entry: Entry) -> bool:
        """Most records are of other partitions: those need no decoding."""
        if entry.type_id in _PARTITION_TYPES:
            return any(topic_id in entry.value for topic_id in self._ids)
        return entry.type_id in (mr.TopicRecord.TYPE, mr.RemoveTopicRecord.TYPE, mr.ClearElrRecord.TYPE)

    def _is_mine(self, record: mr.PartitionRecord | mr.PartitionChangeRecord) -> bool:
        return record.topic_id in self._ids and record.partition_id == self._partition

    def _change(self, entry: Entry, record: mr.PartitionChangeRecord, before: PartitionState) -> None:
        self._now = before.after(record)
        changes = partition_changes(record, PriorPartition.of(before))
        self._unexplained.append((len(self._changes), entry, before, self._now))
        self._add(entry, ", ".join(changes) or "a new partition epoch")

    def _clear_elr(self, entry: Entry, before: PartitionState) -> None:
        if before.elr or before.last_known_elr:
            self._now = before._replace(elr=(), last_known_elr=())
            self._add(entry, "the eligible leader replicas are cleared", "min.insync.replicas changed, or the feature")

    def _add(self, entry: Entry, change: str, cause: str = "") -> None:
        self._changes.append(PartitionChange(entry.offset, entry.epoch, entry.timestamp_ms, change, cause))


def _state_text(state: PartitionState) -> str:
    parts = [
        f"leader {leader_text(state.leader)}",
        f"replicas {ids_text(state.replicas)}",
        f"ISR {ids_text(state.isr)}",
    ]
    parts += [f"ELR {ids_text(state.elr)}"] * bool(state.elr)
    parts += ["being reassigned"] * state.is_reassigning
    return ", ".join(parts)


def parse_partition(text: str) -> tuple[str, int]:
    """Topic and number of `topic-number`. HistoryError."""
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not number.isdecimal():
        raise HistoryError(f"'{text}' is no partition: use TOPIC-NUMBER, such as orders-0")
    return topic, int(number)
