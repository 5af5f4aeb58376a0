"""Encodes and decodes the parts that records of type 3 and above have in common.

A key is an int16 type and strings with an int16 length. A value is an int16 version, 0, and a flexible body.
Topics are written in the order of their ids and partitions in ascending order; Kafka writes the order of its hash maps.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Final

from klamm._engine.groups import group_record_key
from klamm.coordinator.groups.record_parts import INT, LONG, RecordTooLarge, RecordType
from klamm.coordinator.runtime.record_reader import RecordReader

VERSION_0: Final = b"\0\0"
NO_TAGS: Final = b"\0"
NULL: Final = b"\0"
_ID_BYTES: Final = 16

Target = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, in ascending order; a topic without partitions is absent."""
Owned = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which it was assigned; a topic without partitions is absent."""
EPOCHS_TAG: Final = 0
_BYTES: Final = tuple(bytes((value,)) for value in range(0x80))
"""Nearly every varint of a record is one of these."""


def key(type_: RecordType, *names: str) -> bytes:
    """A record key: group id, and perhaps member id or pattern. Raises RecordTooLarge."""
    try:
        return group_record_key(type_, *names)
    except OverflowError as error:
        raise RecordTooLarge(str(error)) from None


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value <= 0x7F:
        return _BYTES[value]
    raw = bytearray()
    while value > 0x7F:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)


def compact_string(text: str | None) -> bytes:
    """A string of a flexible version, or null."""
    if text is None:
        return NULL
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def compact_bytes(raw: bytes) -> bytes:
    """Bytes of a flexible version."""
    return uvarint(len(raw) + 1) + raw


def compact_array(items: Iterable[bytes]) -> bytes:
    """An array of a flexible version, of encoded items."""
    encoded = list(items)
    return uvarint(len(encoded) + 1) + b"".join(encoded)


def tags(fields: Mapping[int, bytes]) -> bytes:
    """Tagged fields by ascending tag."""
    parts = [uvarint(len(fields))]
    for tag, raw in fields.items():
        parts += (uvarint(tag), uvarint(len(raw)), raw)
    return b"".join(parts)


def _int32s(values: Collection[int]) -> bytes:
    return uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def target_epoch_value(epoch: int, timestamp_ms: int) -> bytes:
    """The value of types 6, 12 and 20."""
    return VERSION_0 + INT.pack(epoch) + tags({0: LONG.pack(timestamp_ms)} if timestamp_ms else {})


def owned(partitions: Owned) -> bytes:
    """The topics of type 8: partitions with their assignment epochs."""
    return compact_array(
        _owned_topic(topic_id, epochs) for topic_id, epochs in sorted(partitions.items(), key=itemgetter(0))
    )


def _owned_topic(topic_id: bytes, epochs: Mapping[int, int]) -> bytes:
    partitions = sorted(epochs)
    return topic_id + _int32s(partitions) + tags({EPOCHS_TAG: _int32s([epochs[one] for one in partitions])})


def read_target(reader: RecordReader) -> dict[bytes, tuple[int, ...]]:
    """The body of types 7 and 13."""
    target = {}
    for _ in range(reader.count()):
        topic_id = reader.take(_ID_BYTES)
        partitions = tuple(sorted(read_int32s(reader)))
        reader.tags()
        if partitions:
            target[topic_id] = partitions
    reader.tags()
    return target


def read_target_epoch(reader: RecordReader) -> tuple[int, int]:
    """The body of types 6, 12 and 20: epoch and time of the computation, 0 if unknown."""
    epoch, found = reader.int32(), reader.tags()
    return epoch, int.from_bytes(found.get(0, b""), "big", signed=True)


def read_owned(reader: RecordReader, default_epoch: int) -> dict[bytes, dict[int, int]]:
    """Topics of type 8. Epochs that are missing, or not one for each partition, become `default_epoch`."""
    topics = {}
    for _ in range(reader.count()):
        topic_id = reader.take(_ID_BYTES)
        partitions = read_int32s(reader)
        epochs = _read_epochs(reader.tags().get(EPOCHS_TAG))
        if len(epochs) != len(partitions):
            epochs = [default_epoch] * len(partitions)
        if partitions:
            topics[topic_id] = dict(zip(partitions, epochs, strict=True))
    return topics


def _read_epochs(raw: bytes | None) -> list[int]:
    if not raw:
        return []
    reader = RecordReader(raw)
    reader.flexible = True
    return [reader.int32() for _ in range(max(reader.nullable_count(), 0))]


def read_int32s(reader: RecordReader) -> list[int]:
    """An array of int32."""
    return [reader.int32() for _ in range(reader.count())]


def read_strings(reader: RecordReader) -> list[str]:
    """An array of strings."""
    return [reader.string() for _ in range(reader.count())]
