"""The records of `__transaction_state` (Kafka's `TransactionLog`).

A key is an int16 record type, 0, and the transactional id. A value is an int16 version and a body: version 0, or 1,
which is flexible and has tagged fields. Records of other types and versions are skipped, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from klamm.coordinator.runtime.log import RecordError
from klamm.coordinator.runtime.record_reader import RecordReader
from klamm.coordinator.transactions.states import State
from klamm.protocol.messages.transactions import NO_PRODUCER_ID, Place
from klamm.protocol.value import Value


class StoredTransaction(Value):
    """The value of a transactional id. Times are in ms, those of events since 1970."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[Place]
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    """The transaction version of the producer's requests: 0 or 2."""


_KEY: Final = struct.Struct(">hh")
_FIXED: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_TAGGED_ID: Final = struct.Struct(">bbq")
_TAGGED_VERSION: Final = struct.Struct(">bbh")
_KEY_TYPE: Final = 0
_TAGS: Final = {0: _INT64, 1: _INT64, 2: _INT16, 3: _INT16}
"""Previous producer id, next producer id, client's transaction version, next producer epoch (never written)."""


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    raw = transactional_id.encode()
    return _KEY.pack(_KEY_TYPE, len(raw)) + raw


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for a key of another type. Raises RecordError."""
    try:
        if _INT16.unpack_from(key) != (_KEY_TYPE,):
            return None
        _, length = _KEY.unpack_from(key)
        raw = key[_KEY.size :]
        if len(raw) != length:
            raise RecordError(f"a transactional id of {length} bytes in a key of {len(key)}")
        return raw.decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError(f"the key of a transaction cannot be decoded: {error}") from error


def transaction_value(stored: StoredTransaction, *, version: int) -> bytes:
    """The value of version 0, which leaves out the tagged fields, or 1."""
    is_flexible = version >= 1
    head = _FIXED.pack(version, stored.producer_id, stored.epoch, stored.timeout_ms, stored.state)
    tags = _tags(stored) if is_flexible else b""
    times = _TIMES.pack(stored.last_update_ms, stored.start_ms)
    return b"".join([head, _partitions(stored, is_flexible=is_flexible), times, tags])


def _partitions(stored: StoredTransaction, *, is_flexible: bool) -> bytes:
    """The topics in order; null in EMPTY."""
    topics = [(topic, [at for _, at in places]) for topic, places in groupby(sorted(stored.partitions), _topic)]
    if stored.state is State.EMPTY:
        return b"\0" if is_flexible else _INT32.pack(-1)
    parts = [_length(len(topics), is_flexible=is_flexible)]
    for topic, indexes in topics:
        raw = topic.encode()
        parts += [
            _uvarint(len(raw) + 1) if is_flexible else _INT16.pack(len(raw)),
            raw,
            _length(len(indexes), is_flexible=is_flexible),
            *map(_INT32.pack, indexes),
            b"\0" if is_flexible else b"",
        ]
    return b"".join(parts)


def _topic(place: Place) -> str:
    return place[0]


def _length(count: int, *, is_flexible: bool) -> bytes:
    return _uvarint(count + 1) if is_flexible else _INT32.pack(count)


def _tags(stored: StoredTransaction) -> bytes:
    """The tagged fields that do not have their default."""
    fields = [b""]
    if stored.previous_producer_id != NO_PRODUCER_ID:
        fields.append(_TAGGED_ID.pack(0, _INT64.size, stored.previous_producer_id))
    if stored.next_producer_id != NO_PRODUCER_ID:
        fields.append(_TAGGED_ID.pack(1, _INT64.size, stored.next_producer_id))
    if stored.client_version:
        fields.append(_TAGGED_VERSION.pack(2, _INT16.size, stored.client_version))
    fields[0] = _uvarint(len(fields) - 1)
    return b"".join(fields)


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_value(value: bytes) -> StoredTransaction | None:
    """The transaction; None for a value of an unknown version. Raises RecordError."""
    reader = RecordReader(value)
    version = reader.int16()
    if version not in (0, 1):
        return None
    reader.flexible = version == 1
    try:
        return _transaction(reader)
    except (struct.error, ValueError) as error:
        raise RecordError(f"the value of a transaction cannot be decoded: {error}") from error


def _transaction(reader: RecordReader) -> StoredTransaction:
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = State(reader.take(1)[0])
    partitions = frozenset(_read_partitions(reader))
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = {tag: _TAGS[tag].unpack(raw)[0] for tag, raw in reader.tags().items() if tag in _TAGS}
    return StoredTransaction(
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        last_update_ms,
        start_ms,
        tags.get(0, NO_PRODUCER_ID),
        tags.get(1, NO_PRODUCER_ID),
        tags.get(2, 0),
    )


def _read_partitions(reader: RecordReader) -> Iterable[Place]:
    for _ in range(reader.nullable_count()):
        topic = reader.string()
        for _ in range(reader.count()):
            yield topic, reader.int32()
        reader.tags()
