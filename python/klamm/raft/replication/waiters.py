"""Waiters for an offset to be committed: served together when the high watermark passes them."""

from bisect import bisect_left, insort
from typing import Protocol


class Waiter(Protocol):
    """The part of a future that is needed."""

    def done(self) -> bool:
        """Whether it has an outcome, or was cancelled."""

    def set_result(self, result: None, /) -> None:
        """The offset is committed."""

    def set_exception(self, exception: Exception, /) -> None:
        """It will not be known."""


class CommitWaiters:
    """Waiters in the order of their offsets. Adding is cheap when offsets ascend, as a leader's appends do."""

    def __init__(self) -> None:
        self._offsets: list[int] = []  # ascending, parallel to _waiters
        self._waiters: list[Waiter] = []

    def add(self, offset: int, waiter: Waiter) -> None:
        """Let `waiter` wait for the record at `offset`."""
        if not self._offsets or self._offsets[-1] <= offset:
            self._offsets.append(offset)
            self._waiters.append(waiter)
        else:
            position = bisect_left(self._offsets, offset)
            insort(self._offsets, offset)
            self._waiters.insert(position, waiter)

    def complete_below(self, high_watermark: int) -> int:
        """Serve waiters whose record is committed; returns their number."""
        count = bisect_left(self._offsets, high_watermark)
        for waiter in self._take(count):
            if not waiter.done():
                waiter.set_result(None)
        return count

    def fail_all(self, error: Exception) -> None:
        """Fail every waiter with `error`."""
        for waiter in self._take(len(self._waiters)):
            if not waiter.done():
                waiter.set_exception(error)

    def _take(self, count: int) -> list[Waiter]:
        taken = self._waiters[:count]
        del self._waiters[:count]
        del self._offsets[:count]
        return taken
