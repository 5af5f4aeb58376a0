"""The time during which the controller ran, by which brokers' sessions are counted.

A process that was stopped (SIGSTOP, a paused container, a starved processor) reads no heartbeat. What it missed is not
the brokers' silence: their heartbeats lie in its sockets.
"""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)


class RunningTime:
    """A clock in ms that stands still while the controller does not run.

    It does not run from when its timer was due, or from its last turn if that was later, until its next turn.
    """

    def __init__(self, now_ms: int, long_pause_ms: int) -> None:
        """A pause of `long_pause_ms` or more is reported by `take_pause`."""
        self._last_ms = now_ms
        self._lost_ms = 0
        self._long_pause_ms: Final = long_pause_ms
        self._was_long = False

    def on_turn(self, now_ms: int, deadline_ms: int | None) -> int:
        """The controller runs at `now_ms`; its timer was set to `deadline_ms`. Returns the running time."""
        if deadline_ms is not None:
            pause_ms = max(0, now_ms - max(self._last_ms, deadline_ms))
            self._lost_ms += pause_ms
            if pause_ms >= self._long_pause_ms:
                self._was_long = True
                log.warning("The controller did not run for %d ms; broker sessions are extended by that", pause_ms)
        self._last_ms = max(self._last_ms, now_ms)
        return now_ms - self._lost_ms

    def take_pause(self) -> bool:
        """Whether there was a long pause since the last call."""
        was_long, self._was_long = self._was_long, False
        return was_long
