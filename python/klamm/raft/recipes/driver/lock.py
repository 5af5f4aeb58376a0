"""A fair lock: one holder at a time, in the order of requests, with a fencing token per holder."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from klamm.raft.library.errors import NoLeaderError, OutcomeUnknownError
from klamm.raft.ports import RaftStoppedError
from klamm.raft.recipes.driver.session import Session
from klamm.raft.recipes.errors import NoNodeError, SessionLostError
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.nodes import child_of, name_of


class Lock:
    """`async with Lock(session, "/locks/name") as token:`

    The lock is held until it is released or the session ends, whichever comes first. A long-running holder should check
    `session.is_alive` or register with `session.on_end`. The process may still pause after such a check. So the
    protected resource should remember the highest token it has seen and refuse lower ones: tokens ascend from holder to
    holder.
    """

    def __init__(self, session: Session, path: str, data: bytes = b"") -> None:
        """`data` identifies the holder to others."""
        self._session, self._tree, self._path, self._data = session, session.tree, path, data
        self._own: str | None = None
        self.token: int | None = None
        """The fencing token of this holder; None while it does not hold the lock."""

    @property
    def is_held(self) -> bool:
        """Whether this is the holder, by its session's own clock."""
        return self.token is not None and self._session.is_alive

    async def acquire(self, *, timeout_s: float | None = None) -> int:
        """Wait until the lock is held; returns the token.

        Raises TimeoutError, after withdrawing its request; SessionLostError; after OutcomeUnknownError close the
        session, and with it everything that it may have created.
        """
        if self._own is not None:
            raise RuntimeError(f"{self._path} was asked for by this object already: use one for each holder")
        self._own = await self._tree.create(
            child_of(self._path, "holder-"),
            self._data,
            session=self._session,
            is_sequential=True,
            with_parents=True,
        )
        try:
            self.token = await self._wait(self._own, timeout_s)
        except BaseException:  # also a cancellation: a waiter that left must not get the lock
            await asyncio.shield(self.release())
            raise
        return self.token

    async def _wait(self, own: str, timeout_s: float | None) -> int:
        def is_first(machine: TreeMachine) -> int:
            if not self._session.is_alive or not machine.exists(own):
                raise SessionLostError(f"the session ended while {self._path} was waited for")
            return (machine.created(own) or 0) if machine.first_child(self._path) == name_of(own) else 0

        unsubscribe = self._session.on_end(self._tree.wake)
        try:
            return int(await self._tree.wait_for(is_first, timeout_s=timeout_s))
        finally:
            unsubscribe()

    async def release(self) -> None:
        """Release the lock; no effect if it is not held."""
        own, self._own, self.token = self._own, None, None
        if own is None:
            return
        # Without a leader it goes with the session.
        with contextlib.suppress(NoNodeError, NoLeaderError, OutcomeUnknownError, RaftStoppedError):
            await self._tree.delete(own)

    async def holder(self) -> bytes | None:
        """The data of the holder, None while the lock is free."""

        def first(machine: TreeMachine) -> bytes | None:
            name = machine.first_child(self._path)
            node = machine.get(child_of(self._path, name)) if name is not None else None
            return node.data if node is not None else None

        return await self._tree.replica.read(first)

    async def __aenter__(self) -> int:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()
