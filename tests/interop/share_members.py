"""A member's share session on a broker of either system: ShareFetch and ShareAcknowledge v1-2, encoded by hand."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.support.frames import read_frame, send_frame

Acks = Sequence[tuple[int, int, Sequence[int]]]
"""First and last offset, and types."""
CLIENT_ID = b"member"
TIMEOUT_S = 60.0


class Acquired(NamedTuple):
    """Offsets, both inclusive, and their delivery count."""

    first: int
    last: int
    count: int


@dataclass
class Part:
    """A partition of a response."""

    index: int
    error: ErrorCode
    acknowledge_error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    acquired: list[Acquired] = field(default_factory=list)

    def offsets(self) -> list[int]:
        """The base offsets of the log batches."""
        found, at = [], 0
        while at + 12 <= len(self.records):
            base, length = struct.unpack_from(">qi", self.records, at)
            found.append(base)
            at += 12 + length
        return found


@dataclass
class Answer:
    """A response without the fields that differ between nodes."""

    error: ErrorCode
    lock_ms: int
    parts: list[Part]

    def part(self, index: int = 0) -> Part:
        """The response for a partition."""
        [found] = [part for part in self.parts if part.index == index]
        return found

    def acquired(self) -> list[Acquired]:
        """The acquired records of all partitions."""
        return [one for part in self.parts for one in part.acquired]


class _Reader:
    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0

    def take(self, shape: str) -> int:
        (value,) = struct.unpack_from(f">{shape}", self.body, self.at)
        self.at += struct.calcsize(shape)
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def bytes(self) -> bytes:
        length = max(self.varint() - 1, 0)
        self.at += length
        return self.body[self.at - length : self.at]

    def tags(self) -> None:
        assert self.varint() == 0

    def error(self) -> ErrorCode:
        return ErrorCode(self.take("h"))


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _text(text: str | None) -> bytes:
    return b"\0" if text is None else _varint(len(text.encode()) + 1) + text.encode()


def _partition(index: int, acks: Acks) -> bytes:
    out = struct.pack(">i", index) + _varint(len(acks) + 1)
    for first, last, types in acks:
        out += struct.pack(">qq", first, last) + _varint(len(types) + 1) + bytes(types) + b"\0"
    return out + b"\0"


def _topics(topic_id: bytes, partitions: dict[int, Acks]) -> bytes:
    if not partitions:
        return b"\1"
    body = b"".join(_partition(index, acks) for index, acks in partitions.items())
    return b"\2" + topic_id + _varint(len(partitions) + 1) + body + b"\0"


class Member:
    """A member's connection. Requests carry the next session epoch, unless one is given."""

    def __init__(self, bootstrap: str, group: str | None, topic_id: bytes, member: str | None = "m") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.group, self.member, self.topic_id = group, member, topic_id
        self.epoch = 0
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, which ends the session."""
        self._socket.close()

    def send_fetch(
        self,
        partitions: dict[int, Acks] | None = None,
        *,
        epoch: int | None = None,
        version: int = 2,
        max_wait_ms: int = 30_000,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        is_renew: bool = False,
        topic_id: bytes | None = None,
    ) -> None:
        """Send a ShareFetch without waiting for its response."""
        used = self.epoch if epoch is None else epoch
        body = _text(self.group) + _text(self.member)
        body += struct.pack(">iiiiii", used, max_wait_ms, min_bytes, max_bytes, max_records, batch_size)
        if version >= 2:
            body += struct.pack(">b?", mode, is_renew)
        body += _topics(topic_id or self.topic_id, partitions or {}) + b"\1\0"
        self._send(ApiKey.SHARE_FETCH, version, body)
        if epoch is None:
            self.epoch += 1

    def fetch(self, partitions: dict[int, Acks] | None = None, **fields: object) -> Answer:
        """A ShareFetch and its response."""
        self.send_fetch(partitions, **fields)  # type: ignore[arg-type]
        return self.receive_fetch()

    def receive_fetch(self) -> Answer:
        """The next ShareFetch response."""
        reader = self._receive()
        answer = Answer(reader.error(), 0, [])
        reader.bytes()
        answer.lock_ms = reader.take("i")
        for _ in range(reader.varint() - 1):
            reader.at += 16
            for _ in range(reader.varint() - 1):
                part = Part(reader.take("i"), reader.error())
                reader.bytes()
                part.acknowledge_error = reader.error()
                reader.bytes()
                reader.at += 8
                reader.tags()
                part.records = reader.bytes()
                for _ in range(reader.varint() - 1):
                    part.acquired.append(Acquired(reader.take("q"), reader.take("q"), reader.take("h")))
                    reader.tags()
                reader.tags()
                answer.parts.append(part)
            reader.tags()
        return answer

    def acknowledge(
        self,
        partitions: dict[int, Acks],
        *,
        epoch: int | None = None,
        version: int = 2,
        is_renew: bool = False,
        topic_id: bytes | None = None,
    ) -> Answer:
        """A ShareAcknowledge and its response."""
        used = self.epoch if epoch is None else epoch
        body = _text(self.group) + _text(self.member) + struct.pack(">i", used)
        if version >= 2:
            body += struct.pack(">?", is_renew)
        self._send(ApiKey.SHARE_ACKNOWLEDGE, version, body + _topics(topic_id or self.topic_id, partitions) + b"\0")
        if epoch is None:
            self.epoch += 1
        reader = self._receive()
        answer = Answer(reader.error(), 0, [])
        reader.bytes()
        if version >= 2:
            answer.lock_ms = reader.take("i")
        for _ in range(reader.varint() - 1):
            reader.at += 16
            for _ in range(reader.varint() - 1):
                part = Part(reader.take("i"), reader.error())
                reader.bytes()
                reader.at += 8
                reader.tags()
                reader.tags()
                answer.parts.append(part)
            reader.tags()
        return answer

    def _send(self, api_key: int, version: int, body: bytes) -> None:
        header = struct.pack(">hhih", api_key, version, 7, len(CLIENT_ID)) + CLIENT_ID + b"\0"
        send_frame(self._socket, header + body)

    def _receive(self) -> _Reader:
        reader = _Reader(read_frame(self._socket))
        assert reader.take("i") == 7
        reader.tags()
        assert reader.take("i") == 0, "a throttle time"
        return reader
