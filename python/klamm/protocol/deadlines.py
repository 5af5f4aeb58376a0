"""Time-outs of which nearly none runs out: one timer of the loop for many, so that a request costs none of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable


class Deadlines:
    """To be made and used on the loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count()
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, after_s: float, on_over: Callable[[], None]) -> int:
        """Call `on_over` when that time is over; a token to prevent it by."""
        token, due_s = next(self._tokens), self._loop.time() + after_s
        self._due[token] = due_s, on_over
        # One that is set for earlier stays: it looks again.
        if self._timer is None or due_s < self._timer.when():
            self._set(due_s)
        return token

    def remove(self, token: int) -> bool:
        """Whether its time was not over yet; there will be no call."""
        return self._due.pop(token, None) is not None

    def close(self) -> None:
        """Report none of the known deadlines any more; `remove` still returns whether one was known."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._look)

    def _look(self) -> None:
        # As the loop does, which may call a little early.
        now_s, self._timer = self._loop.time() + 0.001, None
        over = sorted((due_s, token) for token, (due_s, _) in self._due.items() if due_s <= now_s)
        for _, token in over:
            if token in self._due:  # one of those before may have ended it
                _, on_over = self._due.pop(token)
                on_over()
        if self._due:
            first_s = min(due_s for due_s, _ in self._due.values())
            if self._timer is None or first_s < self._timer.when():
                self._set(first_s)
