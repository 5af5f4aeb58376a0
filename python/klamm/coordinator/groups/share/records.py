"""The records of share groups: types 10 to 15 (Kafka's `GroupCoordinatorRecordHelpers`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klamm._engine.groups import target_record_value
from klamm.coordinator.groups.modern import wire
from klamm.coordinator.groups.modern.wire import Target
from klamm.coordinator.groups.record_parts import INT, LONG, RecordType
from klamm.coordinator.groups.share.member import ShareMember
from klamm.coordinator.groups.share.state_partitions import NamedPartitions, StatePartitions, TopicPartitions
from klamm.coordinator.runtime.log import LogRecord
from klamm.coordinator.runtime.record_reader import RecordReader
from klamm.protocol.value import Value

_STABLE: Final = b"\0"
"""The only state of a member."""


class ShareMemberRecord(Value):
    """Type 10: a member without its epoch and assignment."""

    group_id: str
    member_id: str
    value: ShareMember | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.SHARE_GROUP_MEMBER_METADATA, self.group_id, self.member_id)
        one = self.value
        if one is None:
            return key, None
        names = wire.compact_array(map(wire.compact_string, sorted(one.subscribed_topic_names)))
        texts = map(wire.compact_string, (one.rack_id, one.client_id, one.client_host))
        return key, b"".join((wire.VERSION_0, *texts, names, wire.NO_TAGS))


class ShareGroupEpochRecord(Value):
    """Type 11: group epoch and metadata hash."""

    group_id: str
    value: tuple[int, int] | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.SHARE_GROUP_METADATA, self.group_id)
        if self.value is None:
            return key, None
        epoch, metadata_hash = self.value
        return key, wire.VERSION_0 + INT.pack(epoch) + LONG.pack(metadata_hash) + wire.NO_TAGS


class ShareTargetEpochRecord(Value):
    """Type 12: the epoch of the target, and when it was computed."""

    group_id: str
    value: tuple[int, int] | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, self.group_id)
        return key, None if self.value is None else wire.target_epoch_value(*self.value)


class ShareTargetRecord(Value):
    """Type 13: the target of a member."""

    group_id: str
    member_id: str
    value: Target | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, self.group_id, self.member_id)
        return key, None if self.value is None else target_record_value(self.value)


class ShareCurrent(Value):
    """The partitions that a member owns, and since which epoch."""

    member_epoch: int
    previous_member_epoch: int
    assigned: Target


class ShareCurrentRecord(Value):
    """Type 14: the current assignment of a member."""

    group_id: str
    member_id: str
    value: ShareCurrent | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, self.group_id, self.member_id)
        if self.value is None:
            return key, None
        epochs = INT.pack(self.value.member_epoch) + INT.pack(self.value.previous_member_epoch)
        topics = target_record_value(self.value.assigned)[len(wire.VERSION_0) :]
        return key, wire.VERSION_0 + epochs + _STABLE + topics


class StatePartitionsRecord(Value):
    """Type 15: the partitions with a state at the share coordinator."""

    group_id: str
    value: StatePartitions | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA, self.group_id)
        if self.value is None:
            return key, None
        deleting = (
            topic_id + wire.compact_string(name) + wire.NO_TAGS
            for topic_id, name in sorted(self.value.deleting.items())
        )
        parts = _topics(self.value.initializing), _topics(self.value.initialized), wire.compact_array(deleting)
        return key, b"".join((wire.VERSION_0, *parts, wire.NO_TAGS))


def _topics(topics: TopicPartitions) -> bytes:
    return wire.compact_array(
        topic_id
        + wire.compact_string(one.name)
        + wire.compact_array(map(INT.pack, sorted(one.partitions)))
        + wire.NO_TAGS
        for topic_id, one in sorted(topics.items())
    )


ShareRecord = (
    ShareMemberRecord
    | ShareGroupEpochRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | StatePartitionsRecord
)


def _read_member(key: RecordReader, value: RecordReader | None) -> ShareRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ShareMemberRecord(group_id, member_id, None)
    rack_id, client_id, client_host = value.nullable_string(), value.string(), value.string()
    names = frozenset(wire.read_strings(value))
    value.tags()
    member = ShareMember(
        member_id, rack_id=rack_id, client_id=client_id, client_host=client_host, subscribed_topic_names=names
    )
    return ShareMemberRecord(group_id, member_id, member)


def _read_group_epoch(key: RecordReader, value: RecordReader | None) -> ShareRecord:
    group_id = key.string()
    if value is None:
        return ShareGroupEpochRecord(group_id, None)
    found = value.int32(), value.int64()
    value.tags()
    return ShareGroupEpochRecord(group_id, found)


def _read_target_epoch(key: RecordReader, value: RecordReader | None) -> ShareRecord:
    group_id = key.string()
    return ShareTargetEpochRecord(group_id, None if value is None else wire.read_target_epoch(value))


def _read_target(key: RecordReader, value: RecordReader | None) -> ShareRecord:
    group_id, member_id = key.string(), key.string()
    return ShareTargetRecord(group_id, member_id, None if value is None else wire.read_target(value))


def _read_current(key: RecordReader, value: RecordReader | None) -> ShareRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ShareCurrentRecord(group_id, member_id, None)
    epochs = value.int32(), value.int32()
    value.take(len(_STABLE))
    return ShareCurrentRecord(group_id, member_id, ShareCurrent(*epochs, wire.read_target(value)))


def _read_state_partitions(key: RecordReader, value: RecordReader | None) -> ShareRecord:
    group_id = key.string()
    if value is None:
        return StatePartitionsRecord(group_id, None)
    initializing, initialized = _read_topics(value), _read_topics(value)
    deleting = {}
    for _ in range(value.count()):
        topic_id = value.take(16)
        deleting[topic_id] = value.string()
        value.tags()
    value.tags()
    return StatePartitionsRecord(group_id, StatePartitions(initializing, initialized, deleting))


def _read_topics(value: RecordReader) -> TopicPartitions:
    topics = {}
    for _ in range(value.count()):
        topic_id, name = value.take(16), value.string()
        topics[topic_id] = NamedPartitions(name, frozenset(wire.read_int32s(value)))
        value.tags()
    return topics


DECODERS: Final[Mapping[RecordType, Callable[[RecordReader, RecordReader | None], ShareRecord]]] = {
    RecordType.SHARE_GROUP_MEMBER_METADATA: _read_member,
    RecordType.SHARE_GROUP_METADATA: _read_group_epoch,
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: _read_target_epoch,
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: _read_target,
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: _read_current,
    RecordType.SHARE_GROUP_STATE_PARTITION_METADATA: _read_state_partitions,
}
"""How each type is decoded: from the key after its type, and the value after its version."""
