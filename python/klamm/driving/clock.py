"""The clock of a driver, in milliseconds, and its timer.

Both follow the event loop's time, which may be simulated. Sessions, and what else measures the silence of others,
follow a time that a test of an embedded cluster can advance; retries and requests do not: networks take real time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger(__name__)

FAILED_TIMER_PAUSE_MS: Final = 1_000
"""The pause before a timer whose callback raised fires again."""


def _time_of_day_ms() -> int:
    return time.time_ns() // 1_000_000


class Call(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Time(Protocol):
    """A time in seconds, with calls scheduled at a time."""

    def time(self) -> float:
        """The current time, which never decreases."""

    def call_at(self, when: float, callback: Callable[[], None], /) -> Call:
        """Call back at that time."""


class LoopClock:
    """The loop's time in whole milliseconds, which never decreases.

    `at_creation_ms` is the time at its creation; without it, the loop's own time is used.
    """

    def __init__(self, at_creation_ms: int | None = None, *, time: Time | None = None) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self._time: Final[Time] = self.loop if time is None else time
        self._time_s: Final = self._time.time
        self._offset_ms: Final = 0 if at_creation_ms is None else at_creation_ms - int(self._time_s() * 1000)

    @classmethod
    def since_1970(cls) -> LoopClock:
        """The system's clock at its creation plus the time since then, because the system's clock may be changed."""
        return cls(_time_of_day_ms())

    @classmethod
    def of_sessions(cls, *, since_1970: bool = False) -> LoopClock:
        """The clock for the silence of others, ahead of the loop's time if a test has advanced it."""
        loop = asyncio.get_running_loop()
        advanced: Time = getattr(loop, "advanced", loop)
        if not since_1970:
            return cls(time=advanced)
        time_of_day_ms: Callable[[], int] = getattr(loop, "time_of_day_ms", _time_of_day_ms)
        ahead_ms = int((advanced.time() - loop.time()) * 1000)
        return cls(time_of_day_ms() + ahead_ms, time=advanced)

    def now_ms(self) -> int:
        """The time."""
        return int(self._time_s() * 1000) + self._offset_ms

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Call:
        """Call back when the clock shows `at_ms`; the call may come a millisecond early."""
        return self._time.call_at((at_ms - self._offset_ms) / 1000, callback)


class DeadlineTimer:
    """Calls `on_timer` when a core's deadline has come, or earlier, once each time it fires.

    A deadline moves with every event, mostly to later. So a timer that is early is left where it is: the core finds
    nothing due, and the timer is armed again. `on_timer` gets the time at which it was to fire, which shows how late it
    is.

    An exception of `on_timer` is logged, once while it is the same, and the timer fires again: without a timer, a core
    would do nothing more by itself.
    """

    def __init__(self, clock: LoopClock, on_timer: Callable[[int], None]) -> None:
        self._clock: Final = clock
        self._on_timer: Final = on_timer
        self._handle: Call | None = None
        self._at_ms = 0
        self._last_error = ""

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

    def arm_in(self, after_ms: int) -> None:
        """Fire after that time, or when it was to fire before if that is earlier."""
        self.arm(self._clock.now_ms() + after_ms)

    @property
    def is_armed(self) -> bool:
        """Whether it will fire."""
        return self._handle is not None

    def cancel(self) -> None:
        """Do not fire, until it is armed again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        try:
            self._on_timer(self._at_ms)
        except Exception as error:  # a timer that failed once is not lost
            if repr(error) != self._last_error:
                self._last_error = repr(error)
                log.error("a timer failed, and is repeated: %r", error, exc_info=error)
            self.arm(self._clock.now_ms() + FAILED_TIMER_PAUSE_MS)
        else:
            self._last_error = ""
