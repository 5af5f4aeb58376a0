"""The streaming fetch of a driver: held during a step of the core, and released or ended after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.raft.effects import SendRequest
from klamm.raft.ports import FetchStreams, StreamProgress


class FetchStreaming:
    """At most one streamed fetch, by its correlation id. Must be created and used on the loop's thread."""

    def __init__(
        self,
        open_streams: Callable[[], FetchStreams] | None,
        is_waited_for: Callable[[int], bool],
        on_wakeup: Callable[[], None],
    ) -> None:
        """`open_streams` is called when the first fetch may be streamed; without it none is.

        `is_waited_for` returns whether the core expects a response with that id; `on_wakeup` is called when there are
        responses.
        """
        self._open_streams, self._is_waited_for, self._on_wakeup = open_streams, is_waited_for, on_wakeup
        self._loop = asyncio.get_running_loop()
        self._opened: FetchStreams | None = None
        self._watched_fd: int | None = None
        self._id: int | None = None
        self._next: SendRequest | None = None  # to be begun when the step is over

    @property
    def is_on(self) -> bool:
        """Whether a fetch is streamed."""
        return self._id is not None

    def take_over(self, effect: SendRequest) -> bool:
        """Whether `begin` must start a request, so that it is not sent."""
        if not effect.may_stream or self._open_streams is None:
            return False
        self._next = effect
        return True

    def hold(self) -> tuple[int, StreamProgress] | None:
        """Hold the stream and take its progress; None if there is no stream or no progress. An end ends the stream."""
        if self._id is None:
            return None
        correlation_id, streams = self._id, self._streams()
        streams.hold()
        progress = streams.take()
        if progress is None:
            return None
        if progress.end is not None:
            self._id = None
        return correlation_id, progress

    def release(self) -> bool:
        """The step is over. True when the fetch is no longer awaited: it appends and acknowledges nothing more."""
        if self._id is None:
            return False
        if self._is_waited_for(self._id):
            self._streams().release()
            return False
        self._id = None
        self._streams().stop()
        return True

    def begin(self) -> SendRequest | None:
        """Start the stream that was requested, if still awaited. Returns a fetch that must be sent alone instead."""
        effect, self._next = self._next, None
        if effect is None or not self._is_waited_for(effect.correlation_id):
            return None
        streams = self._streams()
        if not streams.begin(effect):
            return effect
        self._id = effect.correlation_id
        if self._watched_fd is None and streams.fd is not None:
            self._watched_fd = streams.fd
            self._loop.add_reader(streams.fd, self._on_wakeup)
        return None

    def close(self) -> None:
        """End the stream and its thread."""
        self._id = self._next = None
        if self._watched_fd is not None:
            self._loop.remove_reader(self._watched_fd)
        if self._opened is not None:
            self._opened.close()

    def _streams(self) -> FetchStreams:
        if self._opened is None:
            if self._open_streams is None:
                raise RuntimeError("a fetch that goes on, and nothing to take it")
            self._opened = self._open_streams()
        return self._opened
