"""The records of `__share_group_state` (Kafka's `ShareSnapshotValue` and `ShareUpdateValue`, and their keys).

A key is an int16 record type, 0 for a snapshot and 1 for an update, and a share partition. A value is an int16 version,
0, and a flexible body. A tombstone of a snapshot deletes the partition's state.
"""

from __future__ import annotations

import struct
from typing import Final

from klamm.coordinator.runtime.log import RecordError
from klamm.coordinator.runtime.record_reader import RecordReader
from klamm.protocol.messages.share_state import NO_COUNT, SharePartitionKey, StateBatch
from klamm.protocol.value import Value

SNAPSHOT: Final = 0
UPDATE: Final = 1
GROUP_ID_BYTES_MAX: Final = (1 << 15) - 1
"""In a key, as UTF-8; requests may have longer ones."""
_VERSION: Final = 0
_COUNT_TAG: Final = 0
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_SNAPSHOT: Final = struct.Struct(">hiiiqqq")
_UPDATE: Final = struct.Struct(">hiiq")
_BATCH: Final = struct.Struct(">qqbh")


class Snapshot(Value):
    """The whole state of a share partition. Times are in ms since 1970."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    create_ms: int
    """When the state was last written or initialized."""
    write_ms: int
    """When this snapshot was written: later than `create_ms` if nothing had changed (a cold snapshot)."""


class Update(Value):
    """The changes of a share partition's state; a start offset of -1 means no change."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


def share_key(record_type: int, key: SharePartitionKey) -> bytes:
    """The key of a snapshot or an update."""
    group_id = key.group_id.encode()
    return b"".join(
        [
            _INT16.pack(record_type),
            _INT16.pack(len(group_id)),
            group_id,
            key.topic_id,
            _INT32.pack(key.partition),
        ]
    )


def decode_key(raw: bytes) -> tuple[int, SharePartitionKey] | None:
    """The record type and the share partition; None for a key of another type. Raises RecordError."""
    reader = RecordReader(raw)
    record_type = reader.int16()
    if record_type not in (SNAPSHOT, UPDATE):
        return None
    return record_type, SharePartitionKey(reader.string(), reader.take(16), reader.int32())


def snapshot_value(snapshot: Snapshot) -> bytes:
    """The value of a snapshot."""
    head = _SNAPSHOT.pack(
        _VERSION,
        snapshot.snapshot_epoch,
        snapshot.state_epoch,
        snapshot.leader_epoch,
        snapshot.start_offset,
        snapshot.create_ms,
        snapshot.write_ms,
    )
    return head + _tail(snapshot.batches, snapshot.delivery_complete_count)


def update_value(update: Update) -> bytes:
    """The value of an update."""
    head = _UPDATE.pack(_VERSION, update.snapshot_epoch, update.leader_epoch, update.start_offset)
    return head + _tail(update.batches, update.delivery_complete_count)


def _tail(batches: tuple[StateBatch, ...], delivery_complete_count: int) -> bytes:
    parts = [_uvarint(len(batches) + 1), *(_BATCH.pack(*batch) + b"\0" for batch in batches)]
    if delivery_complete_count == NO_COUNT:
        parts.append(b"\0")
    else:
        parts += [bytes((1, _COUNT_TAG, _INT32.size)), _INT32.pack(delivery_complete_count)]
    return b"".join(parts)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_snapshot(value: bytes) -> Snapshot:
    """The state in a snapshot. Raises RecordError."""
    reader = _body(value)
    epochs = reader.int32(), reader.int32(), reader.int32()
    start_offset, create_ms, write_ms = reader.int64(), reader.int64(), reader.int64()
    batches, count = _read_tail(reader)
    return Snapshot(*epochs, start_offset, count, batches, create_ms, write_ms)


def decode_update(value: bytes) -> Update:
    """The changes in an update. Raises RecordError."""
    reader = _body(value)
    epochs, start_offset = (reader.int32(), reader.int32()), reader.int64()
    batches, count = _read_tail(reader)
    return Update(*epochs, start_offset, count, batches)


def _body(value: bytes) -> RecordReader:
    reader = RecordReader(value)
    version = reader.int16()
    if version != _VERSION:
        raise RecordError(f"the state of a share partition has the unknown version {version}")
    reader.flexible = True
    return reader


def _read_tail(reader: RecordReader) -> tuple[tuple[StateBatch, ...], int]:
    batches = tuple(_read_batch(reader) for _ in range(reader.count()))
    raw = reader.tags().get(_COUNT_TAG)
    if raw is None:
        return batches, NO_COUNT
    if len(raw) != _INT32.size:
        raise RecordError(f"a count of {len(raw)} bytes")
    return batches, _INT32.unpack(raw)[0]


def _read_batch(reader: RecordReader) -> StateBatch:
    batch = StateBatch(*_BATCH.unpack(reader.take(_BATCH.size)))
    reader.tags()
    if batch.last_offset < batch.first_offset:
        raise RecordError(f"a batch that ends before it begins: {batch}")
    return batch
