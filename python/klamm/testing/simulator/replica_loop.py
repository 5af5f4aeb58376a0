"""The event loop of a simulated process: its time is the replica's clock, and the world runs its callbacks.

A process that crashes loses its loop with all pending callbacks.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Any

from klamm.raft.election.role_states import NEVER_MS

CALLS_AT_ONCE_MAX = 10_000


class Call:
    """A callback for now or a later time: an `asyncio.Handle` without a context, which would be slower."""

    __slots__ = ("_args", "_callback", "_when_s", "is_cancelled")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], when_s: float = 0.0) -> None:
        self._callback, self._args, self._when_s = callback, args, when_s
        self.is_cancelled = False

    def run(self) -> None:
        """Call it."""
        self._callback(*self._args)

    def cancel(self) -> None:
        """See `asyncio.Handle.cancel`."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """See `asyncio.Handle.cancelled`."""
        return self.is_cancelled

    def when(self) -> float:
        """See `asyncio.TimerHandle.when`."""
        return self._when_s


class ReplicaLoop(asyncio.AbstractEventLoop):
    """The methods of a loop that asyncio and the driver use; it never waits for a descriptor."""

    def __init__(self, now_ms: Callable[[], int], thread_s: Callable[[], float] = lambda: 0.0) -> None:
        """`thread_s` is how long a call in a thread takes."""
        self._now_ms, self._thread_s = now_ms, thread_s
        self._now_s = 0.0
        self._ready: deque[Call] = deque()
        self._timers: list[tuple[float, int, Call]] = []
        self._next_timer = 0
        self._readers: dict[int, Callable[..., Any]] = {}
        self.error: BaseException | None = None  # an unhandled exception of a task or callback
        self._tasks: set[asyncio.Task[Any]] = set()

    # For the world

    def run(self, act: Callable[[], None]) -> None:
        """Call `act`, then all timers that are due and ready callbacks, without advancing the time.

        Raises what a callback raises.
        """
        outer = events._get_running_loop()
        events._set_running_loop(self)
        # Add half a ms, so that a timeout of whole ms has passed when the clock shows its end.
        self._now_s = (self._now_ms() + 0.5) / 1000
        try:
            act()
            self.run_ready()
        finally:
            events._set_running_loop(outer)

    def run_ready(self) -> None:
        """Call all timers that are due and ready callbacks, within `run`."""
        ready, timers = self._ready, self._timers
        now_s = self._now_s + 1e-6  # against rounding
        while timers and timers[0][0] <= now_s:
            ready.append(heappop(timers)[2])
        calls_left = CALLS_AT_ONCE_MAX
        while ready:
            call = ready.popleft()
            if not call.is_cancelled:
                call.run()
            if self.error is not None:
                raise self.error
            calls_left -= 1
            if not calls_left:
                raise AssertionError("a loop never becomes idle")

    @property
    def deadline_ms(self) -> int:
        """When the next timer is due, by the replica's clock."""
        while self._timers and self._timers[0][2].is_cancelled:
            heappop(self._timers)
        return math.ceil(self._timers[0][0] * 1000 - 0.5) if self._timers else NEVER_MS

    def forget(self) -> None:
        """The process is gone: close tasks that have not started, because Python would warn of them."""
        for task in self._tasks:
            coroutine = task.get_coro()
            if isinstance(coroutine, CoroutineType) and getcoroutinestate(coroutine) == CORO_CREATED:
                coroutine.close()
        self._tasks.clear()

    def make_readable(self, fd: int) -> None:
        """Call the reader of that descriptor."""
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
        """In seconds; constant during `run`."""
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Call:
        """Call it next, at the same time."""
        call = Call(callback, args)
        self._ready.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Call:
        """As `call_soon`: threads are simulated too."""
        return self.call_soon(callback, *args)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Call:
        """Call it after so many seconds."""
        return self.call_at(self._now_s + delay, callback, *args)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Call:
        """Call it when the replica's clock shows that time."""
        call = Call(callback, args, when)
        self._next_timer += 1
        heappush(self._timers, (when, self._next_timer, call))
        return call

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Threads are simulated too: the call happens a while later."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._thread_s(), run)
        return future

    def time_of_day_ms(self) -> int:
        """The replica's clock, which is no other one."""
        return self._now_ms()

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """A task of this loop."""
        task = asyncio.Task(coro, loop=self, **options)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
        """An unhandled exception is a failure of the driver."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.error = error


def new_loop(now_ms: Callable[[], int], thread_s: Callable[[], float] = lambda: 0.0) -> ReplicaLoop:
    """A loop with that clock."""
    return ReplicaLoop(now_ms, thread_s)  # type: ignore[abstract]  # methods that the driver does not use are missing
