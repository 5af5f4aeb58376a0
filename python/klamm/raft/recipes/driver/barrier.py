"""A reusable double barrier: no participant proceeds before all have entered, or leaves before all are done."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from klamm.raft.recipes.driver.session import Session
from klamm.raft.recipes.errors import BusyError, NoNodeError
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.nodes import child_of
from klamm.raft.recipes.operations import barrier_state


class Barrier:
    """`async with Barrier(session, "/barriers/name", 3):` begins when three have entered and ends when all are done.

    A participant that dies inside counts as done when its session ends.
    """

    def __init__(self, session: Session, path: str, count: int) -> None:
        """One object for each participant; all of them have the same count."""
        self._session, self._tree, self._path, self._count = session, session.tree, path, count
        self._round: int | None = None

    async def enter(self, *, timeout_s: float | None = None) -> None:
        """Enter, and wait until all have entered. Raises TimeoutError after leaving again; SessionLostError."""
        self._session.check_alive()
        async with asyncio.timeout(timeout_s):
            self._round = await self._come()
            try:
                await self._tree.wait_for(self._is_released)
            except BaseException:  # also a cancellation: others must not count a waiter that left
                await asyncio.shield(self._go())
                raise

    async def _come(self) -> int:
        while True:
            try:
                entered = await self._tree.change("enter", self._path, self._session.id, self._session.id, self._count)
            except BusyError:
                await self._tree.wait_for(self._is_left)
            else:
                return int(entered[0])

    async def leave(self, *, timeout_s: float | None = None) -> None:
        """Leave, and wait until all have left. Raises TimeoutError."""
        await self._go()
        await self._tree.wait_for(self._is_left, timeout_s=timeout_s)

    async def _go(self) -> None:
        with contextlib.suppress(NoNodeError):
            await self._tree.delete(child_of(self._path, self._session.id))

    def _state(self, machine: TreeMachine) -> tuple[int, int]:
        node = machine.get(self._path)
        return barrier_state(node.data if node is not None else b"")

    def _is_released(self, machine: TreeMachine) -> bool:
        round_number, released = self._state(machine)
        return self._round is not None and (round_number > self._round or released > 0)

    def _is_left(self, machine: TreeMachine) -> bool:
        round_number, released = self._state(machine)
        is_later = self._round is not None and round_number > self._round
        return is_later or not machine.members(self._path, released)

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()
