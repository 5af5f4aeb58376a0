"""Streamed fetches: the engine processes plain responses on its own thread and notifies the core afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm._engine.quorum import FetchStream, MetadataLog
from klamm.driving.clock import LoopClock
from klamm.protocol.errors import MalformedRequest
from klamm.raft.effects import SendRequest
from klamm.raft.messages import FetchRequest
from klamm.raft.ports import FetchEnd, FetchFailedError, StreamProgress
from klamm.raft.replication.requests import StreamedFetches
from klamm.raft.wire.responses import RefusedError, decode_response

if TYPE_CHECKING:
    from klamm._engine.client import Conditions

# Older versions carry no directory id (KIP-853).
VERSIONS: Final = (17, 18)

logger = logging.getLogger("klamm.raft")


class Route(NamedTuple):
    """The address of a replica, with the Fetch version and the client id to use."""

    host: str
    port: int
    listener: str
    version: int
    client_id: str
    timeout_ms: int


class FetchStreams:
    """Implements `klamm.raft.ports.FetchStreams` over `_engine.quorum.FetchStream`."""

    def __init__(
        self,
        log: MetadataLog,
        route: Callable[[SendRequest], Route | None],
        *,
        flushes: bool,
        conditions: Conditions | None = None,
    ) -> None:
        """Must be created on the loop's thread.

        `route` is the route to the receiver of a fetch, None while it is unknown; `flushes`: appended records are
        durable before they are acknowledged. `conditions`: those of the node of an embedded cluster.
        """
        self._log, self._route, self._flushes, self._conditions = log, route, flushes, conditions
        self._clock = LoopClock()
        self._stream: FetchStream | None = None
        self._sent: tuple[FetchRequest, Route] | None = None
        self._is_logged = False  # that none could be begun

    def begin(self, effect: SendRequest) -> bool:
        """See `klamm.raft.ports.FetchStreams.begin`."""
        request, route = effect.request, self._route(effect)
        if not isinstance(request, FetchRequest) or route is None or not VERSIONS[0] <= route.version <= VERSIONS[1]:
            return False
        try:
            self._start(effect.to, request, route)
        except Exception as error:  # fetches sent by themselves need neither a thread nor another descriptor
            if not self._is_logged:
                self._is_logged = True
                logger.warning("fetches from leader %d do not go on by themselves: %s", effect.to, error)
            return False
        self._is_logged = False
        self._sent = request, route
        return True

    def _start(self, leader_id: int, request: FetchRequest, route: Route) -> None:
        if self._stream is None:
            self._stream = FetchStream(self._log)
        self._stream.start(
            route.host,
            route.port,
            version=route.version,
            client_id=route.client_id,
            cluster_id=request.cluster_id,
            replica_id=request.replica.id,
            directory_id=request.replica.directory_id,
            epoch=request.epoch,
            leader_id=leader_id,
            high_watermark=request.high_watermark,
            max_wait_ms=request.max_wait_ms,
            max_bytes=request.max_bytes,
            timeout_ms=route.timeout_ms,
            flushes=self._flushes,
            conditions=self._conditions,
        )

    @property
    def fd(self) -> int | None:
        """Readable when there is something to take; None before the first fetch."""
        return None if self._stream is None else self._stream.fd

    def hold(self) -> None:
        """See `klamm.raft.ports.FetchStreams.hold`."""
        if self._stream is not None:
            self._stream.hold()

    def release(self) -> None:
        """Let the stream continue."""
        if self._stream is not None:
            self._stream.release()

    def stop(self) -> None:
        """End the stream without a report."""
        if self._stream is not None:
            self._stream.stop()

    def close(self) -> None:
        """End the stream and its thread."""
        if self._stream is not None:
            self._stream.close()

    def take(self) -> StreamProgress | None:
        """See `klamm.raft.ports.FetchStreams.take`."""
        if self._stream is None or self._sent is None:
            return None
        news = self._stream.take()
        if news is None:
            return None
        fetch_offset, last_epoch, sent_high_watermark, since_sent_ms, since_heard_ms, high_watermark, end = news
        first, route = self._sent
        request = FetchRequest(
            first.cluster_id,
            first.replica,
            first.epoch,
            fetch_offset,
            last_epoch,
            sent_high_watermark,
            first.max_wait_ms,
            first.max_bytes,
        )
        now_ms = self._clock.now_ms()
        heard_ms = now_ms - since_heard_ms if since_heard_ms >= 0 else None
        fetched = StreamedFetches(now_ms - since_sent_ms, heard_ms, request, high_watermark)
        return StreamProgress(
            fetched if since_sent_ms >= 0 else None, None if end is None else _end(request, route, end)
        )


def _end(request: FetchRequest, route: Route, end: tuple[str, int, bytes] | tuple[str, str]) -> FetchEnd:
    if len(end) == 2:
        kind, text = end
        return FetchFailedError(text, is_of_disk=kind == "disk")

    _, version, body = end
    try:
        return decode_response(request, version, body, route.listener)
    except (MalformedRequest, RefusedError) as error:
        return FetchFailedError(str(error), is_of_disk=False)
