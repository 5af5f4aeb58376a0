"""The records of consumer groups, types 3 to 8 and 16, as Kafka 4.3 writes them (`GroupCoordinatorRecordHelpers`).

Each record encodes itself; a `value` of None is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm._engine.groups import target_record_value
from klamm.coordinator.groups.consumer.member import ClassicMember, ConsumerMember, MemberState
from klamm.coordinator.groups.modern import wire
from klamm.coordinator.groups.modern.wire import Owned, Target
from klamm.coordinator.groups.record_parts import INT, LONG, RecordType
from klamm.coordinator.runtime.log import LogRecord
from klamm.coordinator.runtime.record_reader import RecordReader
from klamm.protocol.messages.group_messages import JoinProtocol
from klamm.protocol.value import Value, field


class GroupEpochRecord(Value):
    """Type 3: the group epoch and the metadata hash from which it was created."""

    group_id: str
    value: tuple[int, int] | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.CONSUMER_GROUP_METADATA, self.group_id)
        if self.value is None:
            return key, None
        epoch, metadata_hash = self.value
        fields = {0: LONG.pack(metadata_hash)} if metadata_hash else {}
        return key, wire.VERSION_0 + INT.pack(epoch) + wire.tags(fields)


class PartitionMetadataRecord(Value):
    """Type 4, which Kafka 4.0 wrote. Later versions write its tombstone."""

    group_id: str
    is_tombstone: bool = True

    def encoded(self) -> LogRecord:
        """Key and tombstone; a value is never written."""
        assert self.is_tombstone, self
        return wire.key(RecordType.CONSUMER_GROUP_PARTITION_METADATA, self.group_id), None


class MemberRecord(Value):
    """Type 5: the identity and the subscription of a member. Of `value`, only these fields are written."""

    group_id: str
    member_id: str
    value: ConsumerMember | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.CONSUMER_GROUP_MEMBER_METADATA, self.group_id, self.member_id)
        member = self.value
        if member is None:
            return key, None
        parts = (
            wire.VERSION_0,
            wire.compact_string(member.instance_id),
            wire.compact_string(member.rack_id),
            wire.compact_string(member.client_id),
            wire.compact_string(member.client_host),
            wire.compact_array(map(wire.compact_string, sorted(member.subscribed_topic_names))),
            wire.compact_string(member.subscribed_topic_regex),
            INT.pack(member.rebalance_timeout_ms),
            wire.compact_string(member.server_assignor),
            wire.tags({0: _classic(member.classic)}),
        )
        return key, b"".join(parts)


class TargetEpochRecord(Value):
    """Type 6: the group epoch of the target, and when it was computed (ms)."""

    group_id: str
    value: tuple[int, int] | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, self.group_id)
        return key, None if self.value is None else wire.target_epoch_value(*self.value)


class TargetRecord(Value):
    """Type 7: the target of a member."""

    group_id: str
    member_id: str
    value: Target | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, self.group_id, self.member_id)
        return key, None if self.value is None else target_record_value(self.value)


class CurrentAssignment(Value):
    """The partitions that a member owns, and its epoch."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)

    @staticmethod
    def of(member: ConsumerMember) -> CurrentAssignment:
        """The assignment of a member."""
        return CurrentAssignment(
            member.member_epoch,
            member.previous_member_epoch,
            member.state,
            member.assigned,
            member.pending_revocation,
        )


class CurrentAssignmentRecord(Value):
    """Type 8: the partitions that a member owns."""

    group_id: str
    member_id: str
    value: CurrentAssignment | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, self.group_id, self.member_id)
        value = self.value
        if value is None:
            return key, None
        parts = (
            wire.VERSION_0,
            INT.pack(value.member_epoch),
            INT.pack(value.previous_member_epoch),
            bytes((value.state,)),
            wire.owned(value.assigned),
            wire.owned(value.pending_revocation),
            wire.NO_TAGS,
        )
        return key, b"".join(parts)


class ResolvedPattern(Value):
    """The topics that a regular expression matched, in which version of the metadata, and when (ms)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class PatternRecord(Value):
    """Type 16: a resolved regular expression."""

    group_id: str
    pattern: str
    value: ResolvedPattern | None

    def encoded(self) -> LogRecord:
        """Key and value."""
        key = wire.key(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, self.group_id, self.pattern)
        if self.value is None:
            return key, None
        topics = wire.compact_array(map(wire.compact_string, sorted(self.value.topics)))
        times = LONG.pack(self.value.version) + LONG.pack(self.value.timestamp_ms)
        return key, wire.VERSION_0 + topics + times + wire.NO_TAGS


ConsumerRecord = (
    GroupEpochRecord
    | PartitionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentAssignmentRecord
    | PatternRecord
)

_ABSENT: Final = b"\x00"
_PRESENT: Final = b"\x01"
"""The byte before a nullable structure."""


def _classic(classic: ClassicMember | None) -> bytes:
    # Kafka writes this field also when it is null.
    if classic is None:
        return _ABSENT
    protocols = (
        wire.compact_string(one.name) + wire.compact_bytes(one.metadata) + wire.NO_TAGS for one in classic.protocols
    )
    return _PRESENT + INT.pack(classic.session_timeout_ms) + wire.compact_array(protocols) + wire.NO_TAGS


def _read_group_epoch(key: RecordReader, value: RecordReader | None) -> ConsumerRecord:
    group_id = key.string()
    if value is None:
        return GroupEpochRecord(group_id, None)
    epoch, tags = value.int32(), value.tags()
    return GroupEpochRecord(group_id, (epoch, int.from_bytes(tags.get(0, b""), "big", signed=True)))


def _read_partition_metadata(key: RecordReader, value: RecordReader | None) -> ConsumerRecord:
    return PartitionMetadataRecord(key.string(), value is None)


def _read_member(key: RecordReader, value: RecordReader | None) -> ConsumerRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return MemberRecord(group_id, member_id, None)
    instance_id, rack_id = value.nullable_string(), value.nullable_string()
    client_id, client_host = value.string(), value.string()
    names = frozenset(wire.read_strings(value))
    pattern, rebalance_timeout_ms = value.nullable_string(), value.int32()
    assignor, tags = value.nullable_string(), value.tags()
    member = ConsumerMember(
        member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        subscribed_topic_names=names,
        subscribed_topic_regex=pattern,
        server_assignor=assignor,
        classic=_read_classic(tags.get(0)),
    )
    return MemberRecord(group_id, member_id, member)


def _read_classic(raw: bytes | None) -> ClassicMember | None:
    if not raw or raw[:1] != _PRESENT:
        return None
    reader = RecordReader(raw[1:])
    reader.flexible = True
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.count()):
        protocols.append(JoinProtocol(reader.string(), reader.raw()))
        reader.tags()
    return ClassicMember(session_timeout_ms, tuple(protocols))


def _read_target_epoch(key: RecordReader, value: RecordReader | None) -> ConsumerRecord:
    group_id = key.string()
    return TargetEpochRecord(group_id, None if value is None else wire.read_target_epoch(value))


def _read_target(key: RecordReader, value: RecordReader | None) -> ConsumerRecord:
    group_id, member_id = key.string(), key.string()
    return TargetRecord(group_id, member_id, None if value is None else wire.read_target(value))


_STATES: Final = {state.value: state for state in MemberState}


def _read_current(key: RecordReader, value: RecordReader | None) -> ConsumerRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return CurrentAssignmentRecord(group_id, member_id, None)
    epoch, previous_epoch, state = value.int32(), value.int32(), value.take(1)[0]
    default_epoch = max(epoch, 0)
    assigned, pending = wire.read_owned(value, default_epoch), wire.read_owned(value, default_epoch)
    value.tags()
    known_state = _STATES.get(state, MemberState.UNKNOWN)
    current = CurrentAssignment(epoch, previous_epoch, known_state, assigned, pending)
    return CurrentAssignmentRecord(group_id, member_id, current)


def _read_pattern(key: RecordReader, value: RecordReader | None) -> ConsumerRecord:
    group_id, pattern = key.string(), key.string()
    if value is None:
        return PatternRecord(group_id, pattern, None)
    topics = frozenset(wire.read_strings(value))
    resolved = ResolvedPattern(topics, value.int64(), value.int64())
    value.tags()
    return PatternRecord(group_id, pattern, resolved)


DECODERS: Final[dict[RecordType, Callable[[RecordReader, RecordReader | None], ConsumerRecord]]] = {
    RecordType.CONSUMER_GROUP_METADATA: _read_group_epoch,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _read_partition_metadata,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _read_member,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _read_target_epoch,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _read_target,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _read_current,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: _read_pattern,
}
"""How each type is decoded: from the key after its type, and the value after its version."""
