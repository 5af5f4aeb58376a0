"""The leader ends sessions that are silent: it sees their renewals in the log, times them by its own clock, and has the
end of a session decided by the log again.

A new leader gives every session its whole time. It waits a quarter longer than the session's time-out, which its owner
counts from before a renewal was sent: the owner knows first, even if the two clocks do not run at quite the same speed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from klamm.raft.library.driver.replica import Replica
from klamm.raft.library.errors import NoLeaderError, OutcomeUnknownError
from klamm.raft.ports import RaftStoppedError
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.packed import pack

logger = logging.getLogger("klamm.raft")

PATIENCE: Final = 1.25
LOOK_S: Final = 0.05


class Expiry:
    """Looks after sessions while its replica leads."""

    def __init__(self, replica: Replica[TreeMachine]) -> None:
        self._replica = replica
        self._seen: dict[str, tuple[int, float]] = {}  # by session: renewals, and since when it has had so many
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except (NoLeaderError, OutcomeUnknownError):
                continue
            except RaftStoppedError:
                return
            except Exception:  # whatever it was, sessions must go on to be looked after
                logger.exception("silent sessions could not be ended; it is tried again")

    async def _look(self) -> None:
        if not self._replica.leadership.is_self:
            self._seen.clear()
            return
        overdue = self._replica.read_local(self._overdue)
        if overdue:
            commands = [pack(["expire", name, renewals]) for name, renewals in overdue]
            await self._replica.execute_all(commands)

    def _overdue(self, machine: TreeMachine) -> list[tuple[str, int]]:
        now_s, overdue = time.monotonic(), []
        for name, session in machine.sessions.items():
            renewals, since_s = self._seen.get(name, (-1, now_s))
            if renewals != session.renewals:
                self._seen[name] = session.renewals, now_s
            elif now_s - since_s > session.timeout_ms / 1000 * PATIENCE:
                overdue.append((name, renewals))
        for name in self._seen.keys() - machine.sessions.keys():
            del self._seen[name]
        return overdue
