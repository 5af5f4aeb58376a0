"""Record types of `__consumer_offsets`, and the strings that are not flexible, which every key has."""

from __future__ import annotations

import enum
import struct
from typing import Final

SHORT: Final = struct.Struct(">h")
INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")
_STRING_BYTES_MAX: Final = 0x7FFF


class RecordTooLarge(Exception):
    """A field that is too large for its format."""


class RecordType(enum.IntEnum):
    """The int16 at the beginning of a key; 9 and 18 are unused."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23


def string(text: str) -> bytes:
    """A string with an int16 length. Raises RecordTooLarge."""
    raw = text.encode()
    if len(raw) > _STRING_BYTES_MAX:
        raise RecordTooLarge(f"a string of {len(raw)} bytes; the maximum in a record is {_STRING_BYTES_MAX}")
    return SHORT.pack(len(raw)) + raw


def nullable_string(text: str | None) -> bytes:
    """A string or null, with an int16 length. Raises RecordTooLarge."""
    return b"\xff\xff" if text is None else string(text)
