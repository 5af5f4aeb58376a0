"""The time during which a process ran.

A process that was stopped (SIGSTOP, a paused container, a starved processor) reads no requests. Its peers were not
silent meanwhile: their requests wait in its sockets.
"""

from __future__ import annotations

from typing import Final


class RunningTime:
    """Finds the pauses of a process: it did not run from when a timer was due, or from its last turn if that was later,
    until its next turn.
    """

    def __init__(self, now_ms: int, long_pause_ms: int) -> None:
        """A pause of `long_pause_ms` or more is reported by `take_pause`."""
        self._last_ms = now_ms
        self._lost_ms = 0
        self._long_pause_ms: Final = long_pause_ms
        self._pause_ms = 0

    def on_turn(self, now_ms: int, deadline_ms: int | None) -> int:
        """The process runs at `now_ms`; its timer was set to `deadline_ms`.

        Returns the running time: a clock in ms that stands still during pauses.
        """
        if deadline_ms is not None:
            self._note(max(0, now_ms - max(self._last_ms, deadline_ms)))
        self._last_ms = max(self._last_ms, now_ms)
        return now_ms - self._lost_ms

    def on_pause(self, now_ms: int, pause_ms: int) -> None:
        """Another timer of the process was late by `pause_ms`. A pause during which there was a turn is known."""
        if now_ms - pause_ms >= self._last_ms:
            self._note(pause_ms)
            self._last_ms = now_ms

    def _note(self, pause_ms: int) -> None:
        self._lost_ms += pause_ms
        if pause_ms >= self._long_pause_ms:
            self._pause_ms += pause_ms

    def take_pause(self) -> int:
        """The ms of the long pauses since the last call."""
        pause_ms, self._pause_ms = self._pause_ms, 0
        return pause_ms
