"""Timeouts that rarely expire: one timer for many, so that a request does not need its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from klamm.driving.clock import DeadlineTimer, LoopClock


class Deadlines:
    """Must be created and used on the loop's thread."""

    def __init__(self) -> None:
        self._clock = LoopClock()
        self._timer = DeadlineTimer(self._clock, self._on_timer)
        self._tokens = itertools.count()
        self._due: dict[int, tuple[int, Callable[[], object]]] = {}

    def add(self, after_ms: float, on_over: Callable[[], object]) -> int:
        """Call `on_over` after that time. Returns a token for `remove`."""
        token, due_ms = next(self._tokens), self._clock.now_ms() + int(after_ms)
        self._due[token] = due_ms, on_over
        self._timer.arm(due_ms)
        return token

    def remove(self, token: int) -> bool:
        """Whether its time had not passed; then `on_over` is not called."""
        return self._due.pop(token, None) is not None

    def close(self) -> None:
        """Cancel all timeouts; `remove` still returns whether a token was known."""
        self._timer.cancel()

    def _on_timer(self, _: int) -> None:
        now_ms = self._clock.now_ms()
        over = sorted((due_ms, token) for token, (due_ms, _) in self._due.items() if due_ms <= now_ms)
        try:
            for _, token in over:
                if token in self._due:  # an earlier one may have removed it
                    _, on_over = self._due.pop(token)
                    on_over()
        finally:
            self._timer.arm(min((due_ms for due_ms, _ in self._due.values()), default=None))
