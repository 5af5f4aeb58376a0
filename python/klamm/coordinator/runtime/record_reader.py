"""Reads the keys and values of records of internal topics."""

from __future__ import annotations

import struct
from typing import Final

from klamm.coordinator.runtime.log import RecordError

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class RecordReader:
    """Reads one key or value and checks each length against the remaining bytes."""

    __slots__ = ("_at", "_raw", "flexible")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0
        self.flexible = False

    def take(self, size: int) -> bytes:
        """The next bytes. Raises RecordError if there are fewer."""
        end = self._at + size
        if size < 0 or end > len(self._raw):
            raise RecordError(f"{size} bytes wanted at {self._at} of {len(self._raw)}")
        taken = self._raw[self._at : end]
        self._at = end
        return taken

    def int16(self) -> int:
        """A signed integer of 2 bytes."""
        value: int = _SHORT.unpack(self.take(2))[0]
        return value

    def int32(self) -> int:
        """A signed integer of 4 bytes."""
        value: int = _INT.unpack(self.take(4))[0]
        return value

    def int64(self) -> int:
        """A signed integer of 8 bytes."""
        value: int = _LONG.unpack(self.take(8))[0]
        return value

    def uvarint(self) -> int:
        """An unsigned varint of at most 5 bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise RecordError("a varint of more than 5 bytes")

    def nullable_string(self) -> str | None:
        """A string or null."""
        size = self.uvarint() - 1 if self.flexible else self.int16()
        # As Kafka: invalid UTF-8 is replaced. An error would make the partition unreadable.
        return None if size == -1 else self.take(size).decode(errors="replace")

    def string(self) -> str:
        """A string. Raises RecordError for null."""
        text = self.nullable_string()
        if text is None:
            raise RecordError("null in a string that is not nullable")
        return text

    def raw(self) -> bytes:
        """Bytes with their length before them."""
        return self.take(self.uvarint() - 1 if self.flexible else self.int32())

    def nullable_count(self) -> int:
        """The length of an array, -1 for null."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if not -1 <= count <= len(self._raw) - self._at:
            raise RecordError(f"{count} elements in {len(self._raw) - self._at} bytes")
        return count

    def count(self) -> int:
        """The length of an array. Raises RecordError for null."""
        count = self.nullable_count()
        if count < 0:
            raise RecordError("null in an array that is not nullable")
        return count

    def tags(self) -> dict[int, bytes]:
        """The tagged fields by tag; none in a version that is not flexible."""
        tags: dict[int, bytes] = {}
        if self.flexible:
            for _ in range(self.uvarint()):
                tag = self.uvarint()
                tags[tag] = self.take(self.uvarint())
        return tags
