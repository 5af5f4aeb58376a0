"""A connection to another node, on asyncio: frames out, answers in by correlation id; when there is one, `client` says.

Nothing here is awaited: callbacks are called at once, on the loop's thread.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire import kio_classes

ANSWER_BYTES_MAX: Final = 128 << 20
"""A longer answer is none of Kafka's; memory is taken as bytes arrive, never as a length claims."""


class PeerError(Exception):
    """A request has no answer; the text says of whom, and why. It may have been carried out or not."""


class PeerRefusedError(PeerError):
    """Nobody listens there: the host is there, the process is not."""


class PeerTimeoutError(PeerError):
    """No answer in time."""


class VersionNotOfferedError(PeerError):
    """The other side does not know the API in a version that would do; nothing was sent."""


class Answer(NamedTuple):
    """The version of a request and its answer, and the answer's body without header."""

    api_version: int
    body: bytes


Outcome = Answer | PeerError
OnDone = Callable[[Outcome], None]


class _Asked(NamedTuple):
    api_key: int
    api_version: int
    on_done: OnDone


class Connection(asyncio.Protocol):
    """One connection, from the moment it stands. Every request sent on it gets one outcome."""

    def __init__(self, name: str, client_id: str, on_lost: Callable[[PeerError], None]) -> None:
        """`name` is the other side's in messages; `on_lost` is called once, before the requests fail."""
        self._name, self._client_id, self._on_lost = name, client_id.encode(), on_lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._asked: dict[int, _Asked] = {}
        self._correlation_id = 0
        self._is_over = False

    def send(self, api_key: int, api_version: int, body: bytes, on_done: OnDone) -> int:
        """Send a request; its correlation id."""
        assert self._transport is not None, "a connection is handed out when it stands"
        self._correlation_id = self._correlation_id + 1 & 0x7FFF_FFFF
        self._asked[self._correlation_id] = _Asked(api_key, api_version, on_done)
        head = request_header(api_key, api_version, self._correlation_id, self._client_id)
        self._transport.write(b"".join((struct.pack(">i", len(head) + len(body)), head, body)))
        return self._correlation_id

    @property
    def unanswered(self) -> int:
        """How many requests have no outcome yet."""
        return len(self._asked)

    def end(self, why: str) -> None:
        """Close from this side; what was asked fails with that reason. Nothing happens when it is over already."""
        if self._transport is not None:
            self._transport.abort()
        self._lose(PeerError(f"{self._name}: {why}"))

    # asyncio's calls

    @property
    def remote_address(self) -> tuple[str, int] | None:
        """Address and port of the other side, as numbers; None before it stands."""
        found = None if self._transport is None else self._transport.get_extra_info("peername")
        return None if found is None else (found[0], found[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take the answers that are whole."""
        self._received += data
        while not self._is_over and len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if not 4 <= size <= ANSWER_BYTES_MAX:
                self.end(f"it does not speak Kafka's protocol, or not without TLS: a frame of {size} bytes")
            elif len(self._received) < 4 + size:
                return
            else:
                frame = bytes(memoryview(self._received)[4 : 4 + size])
                del self._received[: 4 + size]
                self._take(frame)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone, by whichever side."""
        text = f"the connection broke: {error}" if error else "it closed the connection"
        self._lose(PeerError(f"{self._name}: {text}"))

    def _take(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        asked = self._asked.pop(correlation_id, None)
        if asked is None:
            self.end(f"it answered request {correlation_id}, which nobody made")
            return
        try:
            start = response_header_size(asked.api_key, asked.api_version, frame)
        except MalformedRequest as error:
            asked.on_done(PeerError(f"{self._name}: {error}"))
            self.end(str(error))
            return
        asked.on_done(Answer(asked.api_version, frame[start:]))

    def _lose(self, error: PeerError) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._on_lost(error)
        asked, self._asked = self._asked, {}
        for request in asked.values():
            request.on_done(error)


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: bytes) -> bytes:
    """The header of a request, which is 1, or 2 where the message is flexible; 1 for keys that are not Kafka's."""
    fixed = struct.pack(f">hhih{len(client_id)}s", api_key, api_version, correlation_id, len(client_id), client_id)
    is_flexible = api_key >= 0 and kio_classes.request_class(api_key, api_version).__header_schema__.__version__ >= 2
    return fixed + b"\x00" if is_flexible else fixed


def response_header_size(api_key: int, api_version: int, frame: bytes) -> int:
    """Where the body of an answer begins: after the correlation id and the tagged fields, which are not read."""
    if api_key < 0 or kio_classes.response_class(api_key, api_version).__header_schema__.__version__ == 0:
        return 4
    return skip_tagged_fields(frame, 4)


def skip_tagged_fields(frame: bytes, position: int) -> int:
    """Where the body begins after the tagged fields of a header. Raises MalformedRequest."""
    count, position = _uvarint(frame, position)
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
    if position > len(frame):
        raise MalformedRequest(f"a header goes beyond its {len(frame)} bytes")
    return position


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedRequest("a header is cut short")
