"""Linearizable reads without a write: the leader's high watermark, once a majority confirmed its leadership.

A round asks every voter whether it has seen a higher epoch than the leader's. When a majority answers after the read
began that it has not, no other leader was elected before the read began. So everything committed by then is below this
leader's high watermark. Reads that arrive during a round share the next one (Raft 8; Ongaro 6.4, with responses in
place of heartbeats).
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from klamm.raft.library.driver.leadership import LeadershipView
from klamm.raft.library.driver.network import UnreachableError
from klamm.raft.ports import NotLeaderError

RETRY_S: Final = 0.02
LOOK_AGAIN_S: Final = 0.5


class Confirmer(Protocol):
    """Asks the other replicas."""

    async def confirmed_index(self) -> int:
        """As the leader: the high watermark, confirmed by a majority. Raises NotLeaderError, UnreachableError."""

    async def leaders_index(self, leader_id: int) -> int:
        """The leader's confirmed high watermark. Raises NotLeaderError, UnreachableError."""


class ReadIndexes:
    """The rounds of one replica's readers."""

    def __init__(self, confirmer: Confirmer, leadership: LeadershipView) -> None:
        self._confirmer, self._leadership = confirmer, leadership
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[int]] = []
        self._served: list[asyncio.Future[int]] = []
        self._rounds: asyncio.Task[None] | None = None

    async def index(self) -> int:
        """The offset below which a read that starts now must see everything applied. Waits for a leader."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append(future)
        if self._rounds is None:
            self._rounds = self._loop.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._served, self._waiting = self._waiting, []
                await self._serve(self._served)
        finally:
            self._rounds = None

    async def _serve(self, readers: list[asyncio.Future[int]]) -> None:
        while not all(reader.done() for reader in readers):
            leader = self._leadership.current
            if leader.leader_id is None:
                await self._leadership.changed(LOOK_AGAIN_S)
                continue
            try:
                if leader.is_self:
                    index = await self._confirmer.confirmed_index()
                else:
                    index = await self._confirmer.leaders_index(leader.leader_id)
            except (NotLeaderError, UnreachableError):
                await self._leadership.changed(RETRY_S)
                continue
            except Exception as error:  # the readers receive it
                _settle(readers, error)
                return
            _settle(readers, index)

    def stop(self, fault: Exception) -> None:
        """The replica stops: fail all waiting reads."""
        if self._rounds is not None:
            self._rounds.cancel()
        _settle(self._served + self._waiting, fault)


def _settle(readers: list[asyncio.Future[int]], outcome: int | Exception) -> None:
    for reader in readers:
        if reader.done():
            continue
        if isinstance(outcome, Exception):
            reader.set_exception(outcome)
        else:
            reader.set_result(outcome)
