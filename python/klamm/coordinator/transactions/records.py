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
        kind, length = _KEY.unpack_from(key)
        if kind != _KEY_TYPE:
            return None
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
    values = {0: stored.previous_producer_id, 1: stored.next_producer_id, 2: stored.client_version}
    defaults = {0: NO_PRODUCER_ID, 1: NO_PRODUCER_ID, 2: 0}
    written = [(tag, value) for tag, value in values.items() if value != defaults[tag]]
    fields = [_uvarint(tag) + _uvarint(_TAGS[tag].size) + _TAGS[tag].pack(value) for tag, value in written]
    return _uvarint(len(fields)) + b"".join(fields)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_value(value: bytes) -> StoredTransaction | None:
    """The transaction; None for a value of an unknown version. Raises RecordError."""
    try:
        return _Reader(value).transaction()
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise RecordError(f"the value of a transaction cannot be decoded: {error}") from error


class _Reader:
    """Reads a value."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0
        self._is_flexible = False

    def transaction(self) -> StoredTransaction | None:
        (version,) = _INT16.unpack_from(self._raw)
        if version not in (0, 1):
            return None
        self._is_flexible = version == 1
        _, producer_id, epoch, timeout_ms, state = self._unpack(_FIXED)
        partitions = frozenset(self._partitions())
        last_update_ms, start_ms = self._unpack(_TIMES)
        tags = dict(self._tags()) if self._is_flexible else {}
        return StoredTransaction(
            producer_id,
            epoch,
            timeout_ms,
            State(state),
            partitions,
            last_update_ms,
            start_ms,
            tags.get(0, NO_PRODUCER_ID),
            tags.get(1, NO_PRODUCER_ID),
            tags.get(2, 0),
        )

    def _unpack(self, fields: struct.Struct) -> tuple[int, ...]:
        values: tuple[int, ...] = fields.unpack_from(self._raw, self._at)
        self._at += fields.size
        return values

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._raw):
            raise RecordError(f"{size} bytes wanted at {self._at} of {len(self._raw)}")
        taken = self._raw[self._at : end]
        self._at = end
        return taken

    def _uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise RecordError("a varint of more than 5 bytes")

    def _count(self) -> int:
        """The length of an array, -1 for null."""
        return self._uvarint() - 1 if self._is_flexible else self._unpack(_INT32)[0]

    def _string(self) -> str:
        size = self._uvarint() - 1 if self._is_flexible else self._unpack(_INT16)[0]
        return self._take(size).decode()

    def _partitions(self) -> Iterable[Place]:
        for _ in range(self._count()):
            topic = self._string()
            for _ in range(self._count()):
                (partition,) = self._unpack(_INT32)
                yield topic, partition
            if self._is_flexible:
                self._skip_tags()

    def _tags(self) -> Iterable[tuple[int, int]]:
        for _ in range(self._uvarint()):
            tag, raw = self._uvarint(), self._take(self._uvarint())
            if tag in _TAGS:
                yield tag, _TAGS[tag].unpack(raw)[0]

    def _skip_tags(self) -> None:
        for _ in range(self._uvarint()):
            self._uvarint()
            self._take(self._uvarint())
