"""Values as bytes: None, truth values, integers of 64 bits, text, bytes, and lists of them. One value, one encoding."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

Value = Any
"""None, bool, int, str, bytes, or a sequence of these, which is read back as a list."""

DEPTH_MAX: Final = 8
_INT: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">I")
_CONSTANTS: Final = {b"N": None, b"T": True, b"F": False}


class PackedError(ValueError):
    """The bytes are no packed value."""


def pack(value: Value) -> bytes:
    """The bytes of a value. TypeError names what cannot be packed."""
    parts: list[bytes] = []
    _pack(value, parts)
    return b"".join(parts)


def _pack(value: Value, parts: list[bytes]) -> None:
    match value:
        case None:
            parts.append(b"N")
        case bool():
            parts.append(b"T" if value else b"F")
        case int():
            parts.append(b"i" + _INT.pack(value))
        case bytes():
            parts += (b"b", _SIZE.pack(len(value)), value)
        case str():
            data = value.encode()
            parts += (b"s", _SIZE.pack(len(data)), data)
        case Sequence():
            parts += (b"l", _SIZE.pack(len(value)))
            for item in value:
                _pack(item, parts)
        case _:
            raise TypeError(f"{type(value).__name__} cannot be packed")


def unpack(data: bytes) -> Value:
    """The value in the bytes, all of them. Raises PackedError."""
    try:
        value, position = _unpack(data, 0, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise PackedError(f"{len(data)} bytes are no packed value: {error}") from None
    if position != len(data):
        raise PackedError(f"a packed value ends at {position} of {len(data)} bytes")
    return value


def _unpack(data: bytes, position: int, depth: int) -> tuple[Value, int]:
    tag, position = data[position : position + 1], position + 1
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], position
    if tag == b"i":
        return _INT.unpack_from(data, position)[0], position + _INT.size
    (size,) = _SIZE.unpack_from(data, position)
    position += _SIZE.size
    if size > len(data) - position or depth == DEPTH_MAX:
        raise PackedError(f"{size} bytes or values at {position} of {len(data)}, {depth} lists deep")
    if tag == b"l":
        items = []
        for _ in range(size):
            item, position = _unpack(data, position, depth + 1)
            items.append(item)
        return items, position
    chunk, position = data[position : position + size], position + size
    if tag == b"b":
        return chunk, position
    if tag == b"s":
        return chunk.decode(), position
    raise PackedError(f"a value of kind {tag!r} is not known")
