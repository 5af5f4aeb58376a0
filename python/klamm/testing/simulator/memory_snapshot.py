"""A snapshot file of a simulated replica: the state machine's state, control records, filler, a checksum."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

from klamm.raft.log.metadata_log import OffsetAndEpoch

_HEAD: Final = struct.Struct(">4sqiqi")  # magic, end offset, epoch, state, count of control records
STATE_AT: Final = struct.calcsize(">4sqi")  # the first byte of the state
_CONTROL: Final = struct.Struct(">hi")  # type, size
_FOOT: Final = struct.Struct(">I")  # CRC-32 of all before
_MAGIC: Final = b"SNAP"
SIZE_MIN: Final = _HEAD.size + _FOOT.size  # of a file without control records and filler


class Content(NamedTuple):
    """The content of a file."""

    id: OffsetAndEpoch
    state: int
    control_records: tuple[tuple[int, bytes], ...]


def encode(content: Content, filler: bytes) -> bytes:
    """Encode a file; `filler` sets its size, and makes files of the same content differ."""
    offset, epoch = content.id
    parts = [_HEAD.pack(_MAGIC, offset, epoch, content.state, len(content.control_records))]
    parts += [_CONTROL.pack(kind, len(value)) + value for kind, value in content.control_records]
    body = b"".join(parts) + filler
    return body + _FOOT.pack(crc32(body))


def decode(data: bytes) -> Content:
    """Decode a file. Raises ValueError if it is damaged."""
    if len(data) < _FOOT.size or _FOOT.unpack(data[-_FOOT.size :])[0] != crc32(data[: -_FOOT.size]):
        raise ValueError("the checksum is wrong")
    return decode_unchecked(data)


def decode_unchecked(data: bytes) -> Content:
    """Decode a file without verifying its checksum."""
    try:
        magic, offset, epoch, state, count = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("it does not begin with a header")
        return Content(OffsetAndEpoch(offset, epoch), state, tuple(_controls(data, count)))
    except struct.error as error:
        raise ValueError(f"it is cut short: {error}") from None


def _controls(data: bytes, count: int) -> Sequence[tuple[int, bytes]]:
    position, found = _HEAD.size, []
    for _ in range(count):
        kind, size = _CONTROL.unpack_from(data, position)
        position += _CONTROL.size + size
        found.append((kind, data[position - size : position]))
    return found
