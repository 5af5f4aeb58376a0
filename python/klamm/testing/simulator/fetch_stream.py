"""A simulated thread that fetches continuously, as `_engine.quorum.FetchStream` does (`klamm.raft.ports.FetchStreams`).

It appends ordinary responses, flushes, and fetches again; the core is notified afterwards. All else ends the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from klamm.raft.effects import SendRequest
from klamm.raft.messages import Error, FetchRequest, FetchResponse, Response
from klamm.raft.ports import FetchEnd, FetchFailedError, StreamProgress
from klamm.raft.replication.requests import StreamedFetches
from klamm.testing.simulator.memory_log import DATA, MemoryLog, decode
from klamm.testing.simulator.replica_loop import Call

FD: Final = 3  # never read
FIRST_ID: Final = -100  # correlation ids of the core are positive


class HostProcess(Protocol):
    """The process, as the simulated thread uses it."""

    log: MemoryLog

    def now_ms(self) -> int:
        """The process's clock."""

    def post(self, effect: SendRequest) -> None:
        """Send a request."""

    def call_later(self, delay_ms: int, act: Callable[[], None]) -> Call:
        """Call `act` later, if the process is still alive."""

    def make_readable(self, fd: int) -> None:
        """Make the descriptor readable for the driver's loop, now or a little later."""


class SimulatedStream:
    """One fetch at a time. Invariant: no request is in flight while a flush is pending."""

    def __init__(self, surroundings: HostProcess) -> None:
        self._process = surroundings
        self._effect: SendRequest | None = None
        self._request: FetchRequest | None = None
        self._id = FIRST_ID
        self._sent_ms = 0
        self._heard_ms: int | None = None
        self._high_watermark = -1
        self._end: FetchEnd | None = None
        self._timeout: Call | None = None  # of the request in flight
        self._has_news = False
        self.flush_target: int | None = None  # the offset up to which the thread flushes

    @property
    def fd(self) -> int | None:
        """See `FetchStreams.fd`."""
        return FD

    def begin(self, effect: SendRequest) -> bool:
        """See `FetchStreams.begin`."""
        if not isinstance(effect.request, FetchRequest):
            return False
        self._effect, self._request, self._end, self._heard_ms = effect, effect.request, None, None
        self._high_watermark, self._has_news = effect.request.high_watermark, False
        self._send()
        return True

    def hold(self) -> None:
        """See `FetchStreams.hold`; each of its steps is one event of the world."""

    def release(self) -> None:
        """See `FetchStreams.release`."""

    def stop(self) -> None:
        """See `FetchStreams.stop`."""
        self._effect = self.flush_target = None
        self._has_news = False
        self._end_timeout()

    def close(self) -> None:
        """See `FetchStreams.close`."""
        self.stop()

    def take(self) -> StreamProgress | None:
        """See `FetchStreams.take`."""
        if not self._has_news or self._request is None:
            return None
        self._has_news = False
        fetched = StreamedFetches(self._sent_ms, self._heard_ms, self._request, self._high_watermark)
        self._heard_ms = None
        return StreamProgress(fetched, self._end)

    # The thread

    def on_answer(self, correlation_id: int, response: Response | None) -> None:
        """A response, or the end of the connection."""
        if self._effect is None or self._end is not None or correlation_id != self._id or self.flush_target is not None:
            return
        self._end_timeout()
        if response is None:
            self._finish(FetchFailedError("the connection is gone", is_of_disk=False))
        elif not isinstance(response, FetchResponse) or not self._is_plain(response):
            self._finish(response)
        else:
            self._go_on(response)

    def finish_flush(self) -> None:
        """The appended records are durable; the next fetch acknowledges them."""
        target, self.flush_target = self.flush_target, None
        if target is not None and self._effect is not None:
            self._process.log.flushed_offset = target
            self._fetch_on()

    def _is_plain(self, response: FetchResponse) -> bool:
        request = self._request
        is_of_epoch = request is not None and response.epoch == request.epoch and response.error is Error.NONE
        if not is_of_epoch or response.diverging is not None or response.snapshot_id is not None:
            return False
        records = [record for batch in decode(response.records) for record in batch]
        return all(record.type == DATA and record.epoch == response.epoch for record in records)

    def _go_on(self, response: FetchResponse) -> None:
        self._heard_ms = self._process.now_ms()
        self._high_watermark = max(self._high_watermark, response.high_watermark)
        self._note_news()
        if response.records:
            self._process.log.append_fetched(response.records, response.epoch)
            self._flush()
        else:
            self._fetch_on()

    def _flush(self) -> None:
        self.flush_target = self._process.log.end_offset

    def _fetch_on(self) -> None:
        log = self._process.log
        if self._request is None:
            return
        self._request = replace(
            self._request,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.last_epoch,
            high_watermark=self._high_watermark,
        )
        self._send()
        self._note_news()

    def _send(self) -> None:
        effect, request = self._effect, self._request
        if effect is None or request is None:
            return
        self._id -= 1
        sent_id, self._sent_ms = self._id, self._process.now_ms()
        self._process.post(replace(effect, correlation_id=sent_id, request=request))
        self._end_timeout()
        self._timeout = self._process.call_later(request.max_wait_ms + 2_000, lambda: self.on_answer(sent_id, None))

    def _end_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _finish(self, end: FetchEnd) -> None:
        self._end = end
        self._note_news()

    def _note_news(self) -> None:
        self._has_news = True
        self._process.make_readable(FD)
