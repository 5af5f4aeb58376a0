"""Runs `SilentSessions` over a replica of the tree."""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.raft.library.driver.replica import Replica
from klamm.raft.library.errors import NoLeaderError, OutcomeUnknownError
from klamm.raft.ports import RaftStoppedError
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.packed import pack
from klamm.raft.recipes.silence import EndSessions, SilentSessions

logger = logging.getLogger("klamm.raft")


class Expiry:
    """Expires silent sessions while its replica leads. Must be created and used on the loop's thread."""

    def __init__(self, replica: Replica[TreeMachine]) -> None:
        self._replica = replica
        self._core = SilentSessions()
        self._clock = LoopClock()
        self._timer = DeadlineTimer(self._clock, lambda at_ms: self._on_timer())
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start checking."""
        self._carry_out(self._core.on_start(self._clock.now_ms()))

    async def stop(self) -> None:
        """Stop checking."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_timer(self) -> None:
        now_ms, is_leading = self._clock.now_ms(), self._replica.leadership.is_self
        look = self._core.on_timer
        self._carry_out(self._replica.read_local(lambda machine: look(now_ms, machine.sessions, is_leading=is_leading)))

    def _carry_out(self, effects: list[EndSessions]) -> None:
        for effect in effects:
            match effect:
                case EndSessions(sessions):
                    self._task = asyncio.create_task(self._end(sessions))
                case _:
                    assert_never(effect)
        self._timer.arm(self._core.deadline_ms)

    async def _end(self, sessions: tuple[tuple[str, int], ...]) -> None:
        try:
            await self._replica.execute_all([pack(["expire", name, renewals]) for name, renewals in sessions])
        except (NoLeaderError, OutcomeUnknownError):
            pass  # the next look finds them again
        except RaftStoppedError:
            return
        except Exception:  # after any exception, sessions must still be checked
            logger.exception("silent sessions could not be ended; it is tried again")
        self._carry_out(self._core.on_written(self._clock.now_ms()))
