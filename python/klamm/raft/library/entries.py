"""The records of a library's log: a command of a client, or the opening of a client's session.

A client numbers its commands. It has received every result below `answered_below`, so that the replicated state may
drop those (Ongaro, Consensus: Bridging Theory and Practice, 6.3).
"""

import struct
from typing import Final, NamedTuple

CLIENT_BYTES: Final = 16
_COMMAND: Final = 1
_OPEN: Final = 2
_HEAD: Final = struct.Struct(">B16sQQ")
_HEAD_BYTES: Final = _HEAD.size


class EntryError(ValueError):
    """A record of an unknown version."""


class Command(NamedTuple):
    """A client's command."""

    client: bytes
    sequence: int
    answered_below: int
    payload: bytes


class OpenSession(NamedTuple):
    """A client opens its session; its commands are refused before."""

    client: bytes


def encode_command(client: bytes, sequence: int, answered_below: int, payload: bytes) -> bytes:
    """A record's value."""
    return _HEAD.pack(_COMMAND, client, sequence, answered_below) + payload


def encode_open(client: bytes) -> bytes:
    """A record's value."""
    return bytes((_OPEN,)) + client


def decode(value: bytes) -> Command | OpenSession:
    """Read a record's value. Raises EntryError."""
    kind = value[0] if value else None
    if kind == _COMMAND and len(value) >= _HEAD_BYTES:
        _, client, sequence, answered_below = _HEAD.unpack_from(value)
        return Command(client, sequence, answered_below, value[_HEAD_BYTES:])
    if kind == _OPEN and len(value) == 1 + CLIENT_BYTES:
        return OpenSession(value[1:])
    raise EntryError(f"an entry of kind {kind} and {len(value)} bytes is not known here: it takes a newer klamm")
