"""The leader's periodic check for silent sessions."""

from __future__ import annotations

from klamm.raft.recipes.machine import SessionState
from klamm.raft.recipes.silence import LOOK_MS, EndSessions, SilentSessions

TIMEOUT_MS = 1_000


class Looking:
    """Runs the check when it is due, on sessions that a test renews."""

    def __init__(self, *names: str) -> None:
        self.core, self.now_ms = SilentSessions(), 0
        self.sessions = {name: SessionState(TIMEOUT_MS) for name in names}
        assert self.core.on_start(0) == []

    def until(self, end_ms: int, *, is_leading: bool = True) -> list[tuple[int, tuple[tuple[str, int], ...]]]:
        """Which sessions expire when; each expiry is written immediately."""
        found = []
        while self.core.deadline_ms is not None and self.core.deadline_ms <= end_ms:
            self.now_ms = self.core.deadline_ms
            for effect in self.core.on_timer(self.now_ms, self.sessions, is_leading=is_leading):
                found.append((self.now_ms, effect.sessions))
                for name, _ in effect.sessions:
                    del self.sessions[name]
                self.core.on_written(self.now_ms)
        return found


def test_a_session_expires_within_a_quarter_after_its_timeout() -> None:
    looking = Looking("a", "b")
    assert looking.until(600) == []
    looking.sessions["b"].renewals += 1
    assert looking.until(1_300) == []
    [(at_ms, ended)] = looking.until(1_400)
    assert (ended, at_ms) == ((("a", 0),), LOOK_MS + 1_250 + LOOK_MS)
    [(at_ms, ended)] = looking.until(2_000)
    assert ended == (("b", 1),)
    assert at_ms > 600 + 1_250


def test_nothing_is_due_while_expiries_are_written() -> None:
    looking = Looking("a")
    core = looking.core
    core.on_timer(LOOK_MS, looking.sessions, is_leading=True)
    assert core.on_timer(10_000, looking.sessions, is_leading=True) == [EndSessions((("a", 0),))]
    assert core.deadline_ms is None
    assert core.on_timer(20_000, looking.sessions, is_leading=True) == []
    assert core.on_written(20_001) == []
    assert core.deadline_ms == 20_001 + LOOK_MS
    assert core.on_timer(20_100, looking.sessions, is_leading=True) == [EndSessions((("a", 0),))], "it was not written"


def test_a_new_leader_restarts_every_session() -> None:
    looking = Looking("a")
    assert looking.until(1_200) == []
    assert looking.until(5_000, is_leading=False) == []
    assert looking.until(6_200) == []
    assert [ended for _, ended in looking.until(6_500)] == [(("a", 0),)]
