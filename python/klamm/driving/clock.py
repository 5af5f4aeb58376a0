"""The clock of a driver, in milliseconds, and its timer. Both follow the event loop's time, which may be simulated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final


class LoopClock:
    """The loop's time in whole milliseconds, which never runs backwards.

    `at_creation_ms` is what it shows when it is made; without it, it shows the loop's own time.
    """

    def __init__(self, at_creation_ms: int | None = None) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self._time_s: Final = self.loop.time
        self._offset_ms: Final = 0 if at_creation_ms is None else at_creation_ms - int(self._time_s() * 1000)

    @classmethod
    def since_1970(cls) -> LoopClock:
        """The system's clock as it is now, and the time that passes from now on: the system's clock may be changed."""
        return cls(time.time_ns() // 1_000_000)

    def now_ms(self) -> int:
        """The time."""
        return int(self._time_s() * 1000) + self._offset_ms

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back when the clock shows `at_ms`; the call may come a millisecond early."""
        return self.loop.call_at((at_ms - self._offset_ms) / 1000, callback)


class DeadlineTimer:
    """Calls `on_timer` when a core's deadline has come, or earlier, once each time it fires.

    A deadline moves with every event, mostly to later. So a timer that is early is left where it is: the core finds
    nothing due, and the timer is armed again. `on_timer` gets the time at which it was to fire, which shows how late it
    is.
    """

    def __init__(self, clock: LoopClock, on_timer: Callable[[int], None]) -> None:
        self._clock: Final = clock
        self._on_timer: Final = on_timer
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def arm(self, deadline_ms: int | None) -> None:
        """Fire at `deadline_ms`, or when it was to fire before if that is earlier; None changes nothing."""
        if deadline_ms is None:
            return
        if self._handle is not None:
            if self._at_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._at_ms = deadline_ms
        self._handle = self._clock.call_at(deadline_ms, self._fire)

    def cancel(self) -> None:
        """Do not fire, until it is armed again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._on_timer(self._at_ms)
