"""One connection of another replica: frames in, responses out as they are ready, in any order.

Clients are not authenticated and have five kinds of requests; any other input closes the connection. Memory is bounded
by the frame that is being read.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.wire import codec, kio_classes
from klamm.raft.library.calls import API_KEY, CallError
from klamm.raft.library.driver.network import Service
from klamm.raft.ports import RaftStoppedError
from klamm.raft.voters.voter_set import KRAFT_VERSION_MAX, KRAFT_VERSION_MIN
from klamm.raft.wire.requests import VERSIONS

logger = logging.getLogger("klamm.raft")

FRAME_BYTES_MAX: Final = 16 << 20
API_VERSIONS_RANGE: Final = (0, 4)
CALL_RANGE: Final = (0, 0)
APIS: Final = {**VERSIONS, ApiKey.API_VERSIONS: API_VERSIONS_RANGE, API_KEY: CALL_RANGE}
"""The APIs that are served, with their versions."""

_FIXED: Final = struct.Struct(">hhih")


class ServerConnection(asyncio.Protocol):
    """An incoming connection."""

    def __init__(self, service: Service, connections: set[ServerConnection]) -> None:
        """The connection is in `connections` while it is open."""
        self._service, self._connections = service, connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._calls: set[asyncio.Task[None]] = set()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed."""
        self._connections.discard(self)
        self._transport = None
        for call in self._calls:
            call.cancel()

    def data_received(self, data: bytes) -> None:
        """Take the requests that are whole."""
        self._received += data
        while self._transport is not None and len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if not _FIXED.size <= size <= FRAME_BYTES_MAX:
                self._refuse(f"a frame of {size} bytes")
            elif len(self._received) < 4 + size:
                return
            else:
                frame = bytes(memoryview(self._received)[4 : 4 + size])
                del self._received[: 4 + size]
                self._take_safely(frame)

    # Requests

    def _take_safely(self, frame: bytes) -> None:
        try:
            self._take(frame)
        except (MalformedRequest, struct.error) as error:
            self._refuse(str(error))
        except RaftStoppedError:
            self.abort()

    def _take(self, frame: bytes) -> None:
        api_key, version, correlation_id, client_id_size = _FIXED.unpack_from(frame)
        start = _FIXED.size + max(client_id_size, 0)
        if api_key == ApiKey.API_VERSIONS:
            self._answer_versions(version, correlation_id)
            return
        low, high = APIS.get(api_key, (0, -1))
        if not low <= version <= high or start > len(frame):
            raise MalformedRequest(f"a request of API {api_key} version {version}, which is not spoken here")
        if api_key == API_KEY:
            call = self._loop.create_task(self._answer_call(correlation_id, frame[start:]))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            return
        head = struct.pack(">i", correlation_id)
        if _is_flexible(api_key, version):
            start, head = _skip_tags(frame, start), head + b"\x00"
        self._service.handle_encoded(api_key, version, frame[start:], lambda body: self._give(head, body))

    async def _answer_call(self, correlation_id: int, body: bytes) -> None:
        try:
            answer = await self._service.handle_call(body)
        except CallError as error:
            self._refuse(str(error))
        except Exception:  # the error goes to the log; the peer only sees the connection close
            logger.exception("a request of another replica failed")
            self.abort()
        else:
            self._write(struct.pack(">i", correlation_id) + answer)

    def _answer_versions(self, version: int, correlation_id: int) -> None:
        is_known = API_VERSIONS_RANGE[0] <= version <= API_VERSIONS_RANGE[1]
        cls: Any = kio_classes.response_class(ApiKey.API_VERSIONS, version if is_known else 0)
        error = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in APIS.items()]
        features = [{"name": "kraft.version", "min_version": KRAFT_VERSION_MIN, "max_version": KRAFT_VERSION_MAX}]
        answer = codec.build(cls, error_code=error, api_keys=keys, supported_features=features)
        self._write(struct.pack(">i", correlation_id) + codec.encode(answer))

    def _give(self, head: bytes, body_of: Callable[[], bytes]) -> None:
        if self._transport is not None:
            self._write(head + body_of())

    def _write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(struct.pack(">i", len(frame)) + frame)

    def _refuse(self, why: str) -> None:
        where = self._transport.get_extra_info("peername") if self._transport is not None else None
        logger.warning("closing the connection from %s: %s", where, why)
        self.abort()
        self._transport = None


def _is_flexible(api_key: int, version: int) -> bool:
    return bool(kio_classes.request_class(api_key, version).__header_schema__.__version__ >= 2)


def _skip_tags(frame: bytes, position: int) -> int:
    """The position after a header's tagged fields, of which klamm's peers send none."""
    if position >= len(frame):
        raise MalformedRequest("a request's header is cut short")
    if frame[position] != 0:
        raise MalformedRequest("a request's header has tagged fields")
    return position + 1
