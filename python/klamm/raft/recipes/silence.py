"""The leader ends sessions that are silent: it sees their renewals in the log, times them by its own clock, and has the
end of a session decided by the log again.

A new leader gives every session its whole time. It waits a quarter longer than the session's time-out, which its owner
counts from before a renewal was sent: the owner knows first, even if the two clocks do not run at quite the same speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.protocol.value import Value
from klamm.raft.recipes.machine import SessionState

GRACE: Final = 1.25
LOOK_MS: Final = 50


class EndSessions(Value):
    """Write the end of sessions, each with the number of its renewals; then report `on_written`."""

    sessions: tuple[tuple[str, int], ...]


class SilentSessions:
    """The silence of sessions, looked at regularly, except while the ends of some are being written."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # by session: the number of renewals, and since when
        self._look_ms: int | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When to call `on_timer`."""
        return self._look_ms

    def on_start(self, now_ms: int) -> list[EndSessions]:
        """Begin to look."""
        self._look_ms = now_ms + LOOK_MS
        return []

    def on_timer(self, now_ms: int, sessions: Mapping[str, SessionState], *, is_leading: bool) -> list[EndSessions]:
        """Find the sessions that are overdue."""
        if self._look_ms is None or now_ms < self._look_ms:
            return []
        self._look_ms = now_ms + LOOK_MS
        if not is_leading:
            self._seen.clear()
            return []
        overdue = self._overdue(now_ms, sessions)
        if not overdue:
            return []
        self._look_ms = None
        return [EndSessions(overdue)]

    def on_written(self, now_ms: int) -> list[EndSessions]:
        """The ends of the sessions are in the log, or could not be written: look again later."""
        self._look_ms = now_ms + LOOK_MS
        return []

    def _overdue(self, now_ms: int, sessions: Mapping[str, SessionState]) -> tuple[tuple[str, int], ...]:
        overdue = []
        for name, session in sessions.items():
            renewals, since_ms = self._seen.get(name, (-1, now_ms))
            if renewals != session.renewals:
                self._seen[name] = session.renewals, now_ms
            elif now_ms - since_ms > session.timeout_ms * GRACE:
                overdue.append((name, renewals))
        for name in self._seen.keys() - sessions.keys():
            del self._seen[name]
        return tuple(overdue)
