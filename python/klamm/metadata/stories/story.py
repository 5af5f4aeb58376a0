"""The story of one partition: each change with its cause, and why it has no leader now."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import Entry
from klamm.metadata.log.history import History, State
from klamm.metadata.log.moments import END, Moment
from klamm.metadata.rendering.narrator import PriorPartition, ids_text, leader_text, partition_changes
from klamm.metadata.stories.broker_events import BrokerEvent, BrokerEvents, events_of
from klamm.metadata.stories.causes import cause_of
from klamm.metadata.stories.partition_state import PartitionState
from klamm.metadata.stories.verdict import verdict_of
from klamm.protocol.generated import metadata_records as mr

_PARTITION_TYPES: Final = frozenset({mr.PartitionRecord.TYPE, mr.PartitionChangeRecord.TYPE})


class Chapter(NamedTuple):
    """One record's part of the story."""

    offset: int
    epoch: int
    timestamp_ms: int
    what: str
    because: str
    """Empty when the records give no cause."""


class Story(NamedTuple):
    """All that is known of a partition."""

    topic: str
    partition: int
    chapters: list[Chapter]
    now: str
    """How it stands at the end, and why."""
    advice: list[str]
    """What would help, when it has no leader."""


def tell_story(history: History, topic: str, partition: int, until: Moment | str | int = END) -> Story:
    """The story of a partition up to a moment. HistoryError: there never was one, as far as the log goes back."""
    end = history.state_at(until)
    first = history.state_at(history.earliest_state())
    teller = _StoryBuilder(topic, partition, first)
    for entry in history.records(first.offset + 1, end.offset + 1) if not history.is_snapshot else ():
        try:
            teller.take(entry)
        except ValueError as error:
            raise HistoryError(f"{history.path}: the record at offset {entry.offset}: {error}") from None
    chapters = teller.chapters()
    if not chapters:
        known = ", ".join(end.image.topic_names()[:20]) or "none"
        raise HistoryError(f"there is no partition {topic}-{partition} in {history.path}; topics: {known}")
    now, advice = verdict_of(end, topic, partition, teller.events, is_deleted=teller.is_deleted)
    return Story(topic, partition, chapters, now, advice)


class _StoryBuilder:
    """Takes records in order and keeps those of one partition. A cause may come after its effect in the log."""

    def __init__(self, topic: str, partition: int, first: State) -> None:
        self._topic, self._partition = topic, partition
        topic_id = first.image.topic_id(topic)
        self._ids = set() if topic_id is None else {topic_id}
        self._events: list[BrokerEvent] = []
        self._told: list[Chapter] = []
        self._changes: list[tuple[int, Entry, PartitionState, PartitionState]] = []
        self._now: PartitionState | None = None
        self.is_deleted = False
        info = None if topic_id is None else first.image.partition(topic_id, partition)
        if info is not None:
            self._now = PartitionState.of_image(info)
            what = f"as the snapshot has it: {_standing(self._now)}"
            self._told.append(Chapter(first.offset, first.epoch, first.timestamp_ms, what, ""))

    @property
    def events(self) -> BrokerEvents:
        """What happened to brokers."""
        return BrokerEvents(self._events)

    def chapters(self) -> list[Chapter]:
        """The story so far."""
        events = self.events
        told = list(self._told)
        for at, entry, before, after in self._changes:
            told[at] = told[at]._replace(because=cause_of(entry, before, after, events))
        return told

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
                self._tell(entry, "deleted, with its topic")
                self._now, self.is_deleted = None, True
            case mr.ClearElrRecord() if self._now is not None and record.topic_name in ("", self._topic):
                self._clear_elr(entry, self._now)
            case mr.PartitionRecord() if self._is_mine(record):
                self._now, self.is_deleted = PartitionState.created(record), False
                self._tell(entry, f"created: {_standing(self._now)}")
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
        self._changes.append((len(self._told), entry, before, self._now))
        self._tell(entry, ", ".join(changes) or "a new partition epoch")

    def _clear_elr(self, entry: Entry, before: PartitionState) -> None:
        if before.elr or before.last_known_elr:
            self._now = before._replace(elr=(), last_known_elr=())
            self._tell(entry, "the eligible leader replicas are cleared", "min.insync.replicas changed, or the feature")

    def _tell(self, entry: Entry, what: str, because: str = "") -> None:
        self._told.append(Chapter(entry.offset, entry.epoch, entry.timestamp_ms, what, because))


def _standing(state: PartitionState) -> str:
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
