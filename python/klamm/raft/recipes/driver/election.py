"""Elects a leader among candidates, and shows the leader to all."""

from __future__ import annotations

from collections.abc import AsyncIterator

from klamm.raft.recipes.driver.lock import Lock
from klamm.raft.recipes.driver.session import Session
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.nodes import child_of


class Election:
    """One of many programs leads; the others stand by in the order in which they joined.

    As of `Lock`: at most one leads by its session's own clock, and `term` is its fencing token.
    """

    def __init__(self, session: Session, path: str, candidate: bytes) -> None:
        """`candidate` is the value that others see for the leader: a name, an address."""
        self._tree, self._path = session.tree, path
        self._lock = Lock(session, path, candidate)

    @property
    def is_leading(self) -> bool:
        """Whether this candidate leads."""
        return self._lock.is_held

    @property
    def term(self) -> int | None:
        """A number that increases from leader to leader; None while this candidate does not lead."""
        return self._lock.token

    async def campaign(self, *, timeout_s: float | None = None) -> int:
        """Wait until this candidate leads; its term. Raises as `Lock.acquire`."""
        return await self._lock.acquire(timeout_s=timeout_s)

    async def resign(self) -> None:
        """Give up leadership, or the candidacy."""
        await self._lock.release()

    async def leader(self) -> bytes | None:
        """The candidate that leads, None while none does."""
        return await self._lock.holder()

    async def leaders(self) -> AsyncIterator[bytes | None]:
        """The current leader, and then each observed change; of several quick changes perhaps only the last."""
        seen: list[str | None] = []

        def first(machine: TreeMachine) -> list[tuple[str | None, bytes | None]]:
            name = machine.first_child(self._path)
            if seen == [name]:
                return []
            node = machine.get(child_of(self._path, name)) if name is not None else None
            return [(name, node.data if node is not None else None)]

        while True:
            [(name, data)] = await self._tree.wait_for(first)
            seen = [name]
            yield data
