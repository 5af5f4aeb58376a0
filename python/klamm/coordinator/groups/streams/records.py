"""The records of streams groups in `__consumer_offsets`, types 17 and 19 to 23 (`StreamsCoordinatorRecordHelpers`).

A key is an int16 record type and strings with int16 lengths; a value is version 0 in the flexible format.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from klamm.coordinator.groups.modern import wire
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.streams.tasks import AssignedTasks, Tasks, TaskSets, TasksWithEpochs
from klamm.coordinator.runtime.log import LogRecord
from klamm.coordinator.runtime.record_reader import RecordReader
from klamm.protocol.messages.streams_messages import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    KeyValue,
    Subtopology,
    Topology,
)
from klamm.protocol.value import Value

T = TypeVar("T")
Decoder = Callable[[RecordReader, RecordReader | None], "StreamsRecord"]

NOT_VALIDATED: Final = -1
NO_TIMESTAMP: Final = 0
_NO_ITEMS: Final = wire.compact_array(())


class StreamsMetadata(Value):
    """Record 17: the epoch of the group and what it was computed from."""

    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: tuple[tuple[str, str], ...] = ()
    """Names and values, in the order of the names; records older than 4.2 have none."""


class MemberMetadata(Value):
    """Record 19: the metadata of a member."""

    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    client_tags: tuple[tuple[str, str], ...] = ()
    """Sorted by key."""
    user_endpoint: Endpoint | None = None
    rack_id: str | None = None
    instance_id: str | None = None


class TargetMetadata(Value):
    """Record 20: the group epoch for which the targets were computed, and when."""

    assignment_epoch: int
    timestamp_ms: int = NO_TIMESTAMP


class CurrentAssignment(Value):
    """Record 22: the epoch of a member and its tasks; `state` is a value of `MemberState`."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: AssignedTasks
    pending_revocation: AssignedTasks


StreamsValue = StreamsMetadata | MemberMetadata | TargetMetadata | TaskSets | CurrentAssignment | Topology


class StreamsRecord(Value):
    """A record of a streams group. `member_id` is "" where the key has none; a `value` of None is a tombstone."""

    type: RecordType
    group_id: str
    value: StreamsValue | None
    member_id: str = ""

    def encoded(self) -> LogRecord:
        """Key and value. Raises RecordTooLarge."""
        names = (self.group_id, self.member_id) if self.type in MEMBER_TYPES else (self.group_id,)
        return wire.key(self.type, *names), None if self.value is None else record_value(self.value)


MEMBER_TYPES: Final = frozenset(
    (
        RecordType.STREAMS_GROUP_MEMBER_METADATA,
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    )
)


def record_value(value: StreamsValue) -> bytes:
    """The value of a record. Raises RecordTooLarge."""
    match value:
        case StreamsMetadata():
            body = _write_metadata(value)
        case MemberMetadata():
            body = _write_member(value)
        case TargetMetadata(epoch, timestamp_ms):
            tags = {} if timestamp_ms == NO_TIMESTAMP else {0: struct.pack(">q", timestamp_ms)}
            body = struct.pack(">i", epoch) + wire.tags(tags)
        case TaskSets(active, standby, warmup):
            body = b"".join(map(_write_tasks, (active, standby, warmup))) + wire.NO_TAGS
        case CurrentAssignment():
            body = _write_current(value)
        case Topology():
            body = struct.pack(">i", value.epoch) + _array(value.subtopologies, _write_subtopology) + wire.NO_TAGS
    return wire.VERSION_0 + body


def _write_metadata(value: StreamsMetadata) -> bytes:
    tags = {}
    if value.validated_topology_epoch != NOT_VALIDATED:
        tags[0] = struct.pack(">i", value.validated_topology_epoch)
    if value.assignment_configs:
        tags[1] = _array(value.assignment_configs, _write_pair)
    return struct.pack(">iq", value.epoch, value.metadata_hash) + wire.tags(tags)


def _write_member(value: MemberMetadata) -> bytes:
    endpoint = value.user_endpoint
    return b"".join(
        (
            wire.compact_string(value.instance_id),
            wire.compact_string(value.rack_id),
            wire.compact_string(value.client_id),
            wire.compact_string(value.client_host),
            struct.pack(">ii", value.rebalance_timeout_ms, value.topology_epoch),
            wire.compact_string(value.process_id),
            b"\xff"
            if endpoint is None
            else b"\x01" + wire.compact_string(endpoint.host) + struct.pack(">H", endpoint.port) + wire.NO_TAGS,
            _array(value.client_tags, _write_pair),
            wire.NO_TAGS,
        )
    )


def _write_current(value: CurrentAssignment) -> bytes:
    parts = [struct.pack(">iib", value.member_epoch, value.previous_member_epoch, value.state)]
    for tasks in (value.assigned, value.pending_revocation):
        parts += (_write_tasks_with_epochs(tasks.active), _write_tasks(tasks.standby), _write_tasks(tasks.warmup))
    return b"".join(parts) + wire.NO_TAGS


def _write_tasks(tasks: Tasks) -> bytes:
    if not tasks:
        return _NO_ITEMS  # as two of the three lists of nearly every target
    return _array(
        sorted(tasks.items()), lambda item: wire.compact_string(item[0]) + _ints("i", sorted(item[1])) + wire.NO_TAGS
    )


def _write_tasks_with_epochs(tasks: TasksWithEpochs) -> bytes:
    def write(item: tuple[str, Mapping[int, int]]) -> bytes:
        partitions = sorted(item[1])
        tags = {0: _ints("i", [item[1][partition] for partition in partitions])}
        return wire.compact_string(item[0]) + _ints("i", partitions) + wire.tags(tags)

    return _array(sorted(tasks.items()), write)


def _write_subtopology(value: Subtopology) -> bytes:
    return b"".join(
        (
            wire.compact_string(value.subtopology_id),
            _array(value.source_topics, wire.compact_string),
            _array(value.source_topic_regex, wire.compact_string),
            _array(value.state_changelog_topics, _write_topic),
            _array(value.repartition_sink_topics, wire.compact_string),
            _array(value.repartition_source_topics, _write_topic),
            _array(value.copartition_groups, _write_copartition_group),
            wire.NO_TAGS,
        )
    )


def _write_topic(value: InternalTopic) -> bytes:
    configs = _array(value.topic_configs, lambda config: _write_pair((config.key, config.value)))
    return (
        wire.compact_string(value.name)
        + struct.pack(">ih", value.partitions, value.replication_factor)
        + configs
        + wire.NO_TAGS
    )


def _write_copartition_group(value: CopartitionGroup) -> bytes:
    lists = (value.source_topics, value.source_topic_regex, value.repartition_source_topics)
    return b"".join(_ints("h", indexes) for indexes in lists) + wire.NO_TAGS


def _write_pair(pair: tuple[str, str]) -> bytes:
    return wire.compact_string(pair[0]) + wire.compact_string(pair[1]) + wire.NO_TAGS


def _ints(code: str, values: Iterable[int]) -> bytes:
    numbers = list(values)
    return wire.uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}{code}", *numbers)


def _array(items: Iterable[T], write: Callable[[T], bytes]) -> bytes:
    return wire.compact_array(map(write, items))


# Reading


def _reader_of(type_: RecordType, read: Callable[[RecordReader], StreamsValue]) -> Decoder:
    def decode(key: RecordReader, value: RecordReader | None) -> StreamsRecord:
        group_id = key.string()
        member_id = key.string() if type_ in MEMBER_TYPES else ""
        return StreamsRecord(type_, group_id, None if value is None else read(value), member_id)

    return decode


def _read_metadata(reader: RecordReader) -> StreamsMetadata:
    epoch, metadata_hash, tags = reader.int32(), reader.int64(), reader.tags()
    validated = _tagged(tags[0]).int32() if 0 in tags else NOT_VALIDATED
    configs = _read_nullable_array(_tagged(tags[1]), _read_pair) if 1 in tags else ()
    return StreamsMetadata(epoch, metadata_hash, validated, configs)


def _read_member(reader: RecordReader) -> MemberMetadata:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms, topology_epoch = reader.int32(), reader.int32()
    process_id = reader.string()
    endpoint = None
    if reader.take(1)[0] < 0x80:
        endpoint = Endpoint(reader.string(), int.from_bytes(reader.take(2)))
        reader.tags()
    client_tags = _read_array(reader, _read_pair)
    reader.tags()
    return MemberMetadata(
        client_id,
        client_host,
        rebalance_timeout_ms,
        topology_epoch,
        process_id,
        client_tags,
        endpoint,
        rack_id,
        instance_id,
    )


def _read_target_metadata(reader: RecordReader) -> TargetMetadata:
    epoch, tags = reader.int32(), reader.tags()
    return TargetMetadata(epoch, _tagged(tags[0]).int64() if 0 in tags else NO_TIMESTAMP)


def _read_target(reader: RecordReader) -> TaskSets:
    active, standby, warmup = (_read_tasks(reader) for _ in range(3))
    reader.tags()
    return TaskSets(active, standby, warmup)


def _read_current(reader: RecordReader) -> CurrentAssignment:
    member_epoch, previous_member_epoch = reader.int32(), reader.int32()
    state = int.from_bytes(reader.take(1), signed=True)
    assigned, pending = (
        AssignedTasks(_read_tasks_with_epochs(reader, member_epoch), _read_tasks(reader), _read_tasks(reader))
        for _ in range(2)
    )
    reader.tags()
    return CurrentAssignment(member_epoch, previous_member_epoch, state, assigned, pending)


def _read_tasks_with_epochs(reader: RecordReader, member_epoch: int) -> dict[str, dict[int, int]]:
    """Tasks without epochs, or with another number of them, have the member's epoch (KIP-1251)."""
    found = {}
    for _ in range(reader.count()):
        subtopology_id, partitions, tags = reader.string(), _read_ints(reader, 4), reader.tags()
        epochs = _read_ints(_tagged(tags[0]), 4) if 0 in tags else ()
        if len(epochs) != len(partitions):
            epochs = (member_epoch,) * len(partitions)
        found[subtopology_id] = dict(zip(partitions, epochs, strict=True))
    return found


def _read_tasks(reader: RecordReader) -> dict[str, frozenset[int]]:
    found = {}
    for _ in range(reader.count()):
        subtopology_id, partitions = reader.string(), _read_ints(reader, 4)
        reader.tags()
        found[subtopology_id] = frozenset(partitions)
    return found


def _read_topology(reader: RecordReader) -> Topology:
    topology = Topology(reader.int32(), _read_array(reader, _read_subtopology))
    reader.tags()
    return topology


def _read_subtopology(reader: RecordReader) -> Subtopology:
    subtopology = Subtopology(
        reader.string(),
        _read_array(reader, RecordReader.string),
        _read_array(reader, RecordReader.string),
        _read_array(reader, _read_topic),
        _read_array(reader, RecordReader.string),
        _read_array(reader, _read_topic),
        _read_array(reader, _read_copartition_group),
    )
    reader.tags()
    return subtopology


def _read_topic(reader: RecordReader) -> InternalTopic:
    name, partitions, replication_factor = reader.string(), reader.int32(), reader.int16()
    configs = tuple(KeyValue(*pair) for pair in _read_array(reader, _read_pair))
    reader.tags()
    return InternalTopic(name, partitions, replication_factor, configs)


def _read_copartition_group(reader: RecordReader) -> CopartitionGroup:
    group = CopartitionGroup(*(_read_ints(reader, 2) for _ in range(3)))
    reader.tags()
    return group


def _read_pair(reader: RecordReader) -> tuple[str, str]:
    pair = reader.string(), reader.string()
    reader.tags()
    return pair


def _read_array(reader: RecordReader, read: Callable[[RecordReader], T]) -> tuple[T, ...]:
    return tuple(read(reader) for _ in range(reader.count()))


def _read_nullable_array(reader: RecordReader, read: Callable[[RecordReader], T]) -> tuple[T, ...]:
    return tuple(read(reader) for _ in range(reader.nullable_count()))


def _read_ints(reader: RecordReader, size: int) -> tuple[int, ...]:
    count = reader.nullable_count()
    return struct.unpack(f">{count}{'i' if size == 4 else 'h'}", reader.take(size * count)) if count > 0 else ()


def _tagged(raw: bytes) -> RecordReader:
    reader = RecordReader(raw)
    reader.flexible = True
    return reader


_READERS: Final[Mapping[RecordType, Callable[[RecordReader], StreamsValue]]] = {
    RecordType.STREAMS_GROUP_METADATA: _read_metadata,
    RecordType.STREAMS_GROUP_MEMBER_METADATA: _read_member,
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: _read_target_metadata,
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: _read_target,
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: _read_current,
    RecordType.STREAMS_GROUP_TOPOLOGY: _read_topology,
}
DECODERS: Final[dict[RecordType, Decoder]] = {type_: _reader_of(type_, read) for type_, read in _READERS.items()}
"""How each type is decoded: from the key after its type, and the value after its version."""
