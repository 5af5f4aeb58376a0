"""Ids as Kafka writes them (`Uuid`): 22 characters of base64url, without padding."""

from __future__ import annotations

import binascii
from typing import Final

_TO_URL: Final = str.maketrans("+/", "-_")
_FROM_URL: Final = str.maketrans("-_", "+/")


def uuid_text(id_bytes: bytes) -> str:
    """The text of 16 bytes."""
    return binascii.b2a_base64(id_bytes, newline=False).decode().translate(_TO_URL).rstrip("=")


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of an id. Raises ValueError for any other text."""
    try:
        decoded = binascii.a2b_base64(f"{text.translate(_FROM_URL)}==", strict_mode=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != 16:
        raise ValueError(f"'{text}' is not an id: expected 22 characters of base64url")
    return decoded
