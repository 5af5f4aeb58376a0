"""The event loop of one simulated process: its time is the replica's clock, and its callbacks run when the world says.

A process that crashes takes its loop with it: what it had still to do never happens.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from heapq import heappop, heappush
from typing import Any

from klamm.raft.role_states import NEVER_MS

CALLS_AT_ONCE_MAX = 10_000


class ReplicaLoop(asyncio.AbstractEventLoop):
    """What `asyncio` and the driver ask of a loop; nothing waits for a descriptor."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._next_timer = 0
        self._readers: dict[int, Callable[..., Any]] = {}
        self.error: BaseException | None = None  # what a task or a callback raised and no one took

    # For the world

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let code ask for its loop and find this one."""
        outer = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(outer)

    def run_ready(self) -> None:
        """Run the timers that are due and what is ready, until nothing is. Raises what a callback raises."""
        now_s = self.time() + 1e-6  # of rounding
        while self._timers and self._timers[0][0] <= now_s:
            self._ready.append(heappop(self._timers)[2])
        for _ in range(CALLS_AT_ONCE_MAX):
            if not self._ready:
                break
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()
            if self.error is not None:
                raise self.error
        else:
            raise AssertionError("a loop is busy without end")

    @property
    def deadline_ms(self) -> int:
        """When the next timer is due, by the replica's clock."""
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        return math.ceil(self._timers[0][0] * 1000 - 0.5) if self._timers else NEVER_MS

    def make_readable(self, fd: int) -> None:
        """Call who waits for that descriptor."""
        if fd in self._readers:
            self.call_soon(self._readers[fd])

    # For asyncio

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Of a simulated descriptor."""
        self._readers[fd] = callback

    def remove_reader(self, fd: Any) -> bool:
        """Of a simulated descriptor."""
        return self._readers.pop(fd, None) is not None

    def time(self) -> float:
        """In seconds; within the ms that the clock shows, so that a time-out of whole ms is over when it is shown."""
        return (self._now_ms() + 0.5) / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Next in this instant."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`: threads are simulated too."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """After so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """When the replica's clock shows that time."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._next_timer += 1
        heappush(self._timers, (when, self._next_timer, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, **options)

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Always."""
        return True

    def is_closed(self) -> bool:
        """Never: a loop that is over is forgotten."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that no one takes is a fault of the driver."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.error = error


def new_loop(now_ms: Callable[[], int]) -> ReplicaLoop:
    """A loop by that clock."""
    return ReplicaLoop(now_ms)  # type: ignore[abstract]  # what the driver does not use is not there
