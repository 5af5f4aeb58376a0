"""The records of `__consumer_offsets` (Kafka's `GroupCoordinatorRecordHelpers`).

A key is an int16 record type and a body. A value is an int16 version and a body; a tombstone has no value.

Types 0 to 2 are read in every version and written as Apache Kafka 4.3 writes them. The kinds of groups of the new
protocols have the other types in their own packages (`kinds`). As in Kafka, a value of an unknown version cannot be
read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from klamm._engine.groups import offset_record_key, offset_record_value, read_offset_record
from klamm.coordinator.groups.kinds import DECODERS, ModernRecord
from klamm.coordinator.groups.record_parts import (
    INT,
    LONG,
    SHORT,
    RecordTooLarge,
    RecordType,
    nullable_string,
    string,
)
from klamm.coordinator.runtime.log import LogRecord, RecordError
from klamm.coordinator.runtime.record_reader import RecordReader
from klamm.protocol.messages.group_messages import ZERO_ID
from klamm.protocol.value import Value

NO_TIMESTAMP: Final = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset. `record_offset` orders plain and transactional commits; it is not part of the record."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_ID
    record_offset: int = -1


class OffsetCommit(Value):
    """A record of type 0 or 1; a `value` of None removes the offset."""

    group_id: str
    topic: str
    partition: int
    value: OffsetAndMetadata | None


class MemberMetadata(Value):
    """A member in a GroupMetadata value, with its subscription for the selected protocol only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(Value):
    """The value of a classic group's record."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class GroupRecord(Value):
    """A record of type 2; a `value` of None removes the group."""

    group_id: str
    value: GroupMetadata | None

    def encoded(self) -> LogRecord:
        """Key and value. Raises RecordTooLarge."""
        return group_key(self.group_id), None if self.value is None else group_value(self.value)


class UnknownRecord(Value):
    """A record type that Kafka 4.3 does not know and skips."""

    type: int


Record = OffsetCommit | GroupRecord | ModernRecord | UnknownRecord

_GROUP_KEY: Final = SHORT.pack(RecordType.GROUP_METADATA)
GROUP_VALUE_VERSION: Final = 3


def _bytes(raw: bytes) -> bytes:
    return INT.pack(len(raw)) + raw


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset. Raises RecordTooLarge."""
    try:
        return offset_record_key(group_id, topic, partition)
    except OverflowError as error:
        raise RecordTooLarge(str(error)) from None


def offset_value(commit: OffsetAndMetadata) -> bytes:
    """Version 4, or version 1 for a commit with its own retention time. Raises RecordTooLarge."""
    try:
        return offset_record_value(*commit[:6])
    except OverflowError as error:
        raise RecordTooLarge(str(error)) from None


def group_key(group_id: str) -> bytes:
    """The key of a classic group's record."""
    return _GROUP_KEY + string(group_id)


def group_value(group: GroupMetadata) -> bytes:
    """Version 3, as Kafka 4.3 writes it."""
    parts = [
        SHORT.pack(GROUP_VALUE_VERSION),
        string(group.protocol_type),
        INT.pack(group.generation),
        nullable_string(group.protocol),
        nullable_string(group.leader),
        LONG.pack(group.current_state_timestamp_ms),
        INT.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            string(member.member_id),
            nullable_string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            INT.pack(member.rebalance_timeout_ms),
            INT.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


VALUE_VERSIONS_MAX: Final = {RecordType.GROUP_METADATA: 4}
"""The highest value version of each type; 0 for the others."""
TYPES: Final = frozenset(int(type_) for type_ in RecordType)
OFFSET_TYPES: Final = (int(RecordType.LEGACY_OFFSET_COMMIT), int(RecordType.OFFSET_COMMIT))
MAKE_OFFSET: Final[Callable[[tuple[int, int, str, int, int, bytes, int]], OffsetAndMetadata]] = partial(
    tuple.__new__, OffsetAndMetadata
)
"""`OffsetAndMetadata._make` without a Python frame."""


def decode(key: bytes, value: bytes | None, record_offset: int = -1) -> Record:
    """Decode a record from the log; `record_offset` is its offset. Raises RecordError with the type and the cause."""
    reader = RecordReader(key)
    raw_type = reader.int16()
    try:
        if raw_type in OFFSET_TYPES:
            offset = read_offset_record(key, value, record_offset, MAKE_OFFSET)
            assert offset is not None, "the engine knows its types"
            return OffsetCommit(*offset)
        if raw_type not in TYPES:
            return UnknownRecord(raw_type)
        return _decode_body(RecordType(raw_type), reader, value)
    except (RecordError, ValueError) as error:
        raise RecordError(f"a record of type {raw_type} ({RecordType(raw_type).name}): {error}") from None


def _decode_body(type_: RecordType, key: RecordReader, value: bytes | None) -> Record:
    reader = None if value is None else RecordReader(value)
    version = None if reader is None else _value_version(type_, reader)
    decoder = DECODERS.get(type_)
    if decoder is not None:
        return decoder(key, reader)
    group_id = key.string()
    if reader is None or version is None:
        return GroupRecord(group_id, None)
    return GroupRecord(group_id, _group_value(reader, version))


def _value_version(type_: RecordType, reader: RecordReader) -> int:
    version, highest = reader.int16(), VALUE_VERSIONS_MAX.get(type_, 0)
    if not 0 <= version <= highest:
        raise RecordError(f"value version {version} is unknown (0 to {highest}); was it written by a newer Kafka?")
    reader.flexible = version >= 4 or type_ > RecordType.GROUP_METADATA
    return version


def _group_value(reader: RecordReader, version: int) -> GroupMetadata:
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_member(reader, version) for _ in range(reader.count()))
    reader.tags()
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _member(reader: RecordReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription=reader.raw(),
        assignment=reader.raw(),
    )
    reader.tags()
    return member
