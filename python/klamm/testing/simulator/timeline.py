"""Simulated time, scheduled events, random numbers and the trace of one run."""

import random
from collections.abc import Callable
from heapq import heappop, heappush


class Timeline:
    """Runs scheduled events in the order of simulated time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_us = 0
        self.event_count = 0
        self.trace: list[str] | None = None
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._next_entry = 0

    def run(self, until_us: int, done: Callable[[], bool] = lambda: False) -> bool:
        """Advance the time to `until_us` or until `done`; returns whether it is done."""
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            self.now_us, _, happen = heappop(queue)
            happen()
            self.event_count += 1
            if done():
                return True
        self.now_us = max(self.now_us, until_us)
        return done()

    def at(self, delay_us: int, happen: Callable[[], None]) -> None:
        """Schedule an event in so many microseconds."""
        self._next_entry += 1
        heappush(self._queue, (self.now_us + delay_us, self._next_entry, happen))

    def every(self, period_us: Callable[[], int], happen: Callable[[], None]) -> None:
        """Schedule an event again and again, on average once in a period; a period of 0 ends it."""

        def again() -> None:
            if period_us():
                happen()
                self.at(1 + self.rng.randrange(2 * period_us()), again)

        if period_us():
            self.at(1 + self.rng.randrange(2 * period_us()), again)

    def say(self, text: str) -> None:
        """Add a line to the trace, if it is recorded."""
        if self.trace is not None and text:
            self.trace.append(f"{self.now_us / 1000:12.3f} ms  {text}")
