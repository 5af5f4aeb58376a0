"""The request that replicas of a library send each other besides raft's own, and its response.

    request    kind (1 byte), cluster id (2 bytes of length, UTF-8), then
               EXECUTE     records, each 4 bytes of length and the value: append them, you lead
               READ_INDEX  nothing: up to which offset must a reader have applied the log that starts reading now?
               UPGRADE     nothing: keep the voters in the log (kraft.version 1), so that they can change
               CONFIRM     epoch (4 bytes): have you seen a higher one?
    answer     status (1 byte), a number (8 bytes, signed): of READ_INDEX the offset, of CONFIRM the epoch known,
               of UPGRADE the kraft.version

All numbers are big-endian. A length is checked against the remaining bytes before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

API_KEY: Final = -27_500
"""Kafka's keys are never negative; ours is found in ApiVersions as any other."""

_HEAD: Final = struct.Struct(">BH")
_EPOCH: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">I")
_ANSWER: Final = struct.Struct(">Bq")


class Kind(IntEnum):
    """The kind of request."""

    EXECUTE = 1
    READ_INDEX = 2
    CONFIRM = 3
    UPGRADE = 4


class Status(IntEnum):
    """The outcome of a call."""

    OK = 0
    NOT_LEADER = 1
    WRONG_CLUSTER = 2
    INVALID = 3


class Call(NamedTuple):
    """A request."""

    kind: Kind
    cluster: str
    records: Sequence[bytes] = ()
    epoch: int = 0


class Reply(NamedTuple):
    """An answer."""

    status: Status
    number: int = -1


class CallError(ValueError):
    """Bytes that are no request or answer of ours."""


def encode_call(call: Call) -> bytes:
    """A request's body."""
    cluster = call.cluster.encode()
    parts = [_HEAD.pack(call.kind, len(cluster)), cluster]
    if call.kind is Kind.CONFIRM:
        parts.append(_EPOCH.pack(call.epoch))
    for record in call.records:
        parts += (_LENGTH.pack(len(record)), record)
    return b"".join(parts)


def decode_call(data: bytes) -> Call:
    """Read a request's body. Raises CallError."""
    try:
        number, size = _HEAD.unpack_from(data)
        kind, position = Kind(number), _HEAD.size + size
        cluster = data[_HEAD.size : position].decode()
        if position > len(data):
            raise CallError(f"a cluster id of {size} bytes in {len(data)}")
        if kind is Kind.CONFIRM:
            return Call(kind, cluster, epoch=_EPOCH.unpack_from(data, position)[0])
        return Call(kind, cluster, _records(data, position) if kind is Kind.EXECUTE else ())
    except (struct.error, ValueError) as error:
        raise CallError(f"a request that cannot be read: {error}") from None


def _records(data: bytes, position: int) -> list[bytes]:
    records: list[bytes] = []
    while position < len(data):
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if position + size > len(data):
            raise CallError(f"a record of {size} bytes where {len(data) - position} are left")
        records.append(data[position : position + size])
        position += size
    return records


def encode_reply(reply: Reply) -> bytes:
    """An answer's body."""
    return _ANSWER.pack(reply.status, reply.number)


def decode_reply(data: bytes) -> Reply:
    """Read an answer's body. Raises CallError."""
    try:
        status, number = _ANSWER.unpack(data)
        return Reply(Status(status), number)
    except (struct.error, ValueError) as error:
        raise CallError(f"an answer that cannot be read: {error}") from None
