"""A replica of the tree with its sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Final, Self, Unpack

from klamm.raft.library.driver.options import ReplicaOptions
from klamm.raft.recipes.driver.expiry import Expiry
from klamm.raft.recipes.driver.operations import TreeOperations
from klamm.raft.recipes.driver.session import Session

SESSION_TIMEOUT_S: Final = 10.0


class Tree(TreeOperations):
    """A replica of the tree; arguments, guarantees and errors are those of `klamm.raft.Replica`.

    Changes are durable on a majority when they return and are made once; reads are linearizable. TreeError and its
    subclasses: refused, and nothing has changed.
    """

    def __init__(self, directory: str | Path, **options: Unpack[ReplicaOptions]) -> None:
        super().__init__(directory, **options)
        self._sessions: set[Session] = set()
        self._expiry: Expiry | None = None

    async def start(self) -> None:
        """See `Replica.start`."""
        self.replica.on_applied(lambda offset: self.wake())
        await self.replica.start()
        self._expiry = Expiry(self.replica)
        self._expiry.start()

    async def close(self, *, timeout_s: float = 2.0) -> None:
        """End the sessions that were opened here, and stop."""
        await asyncio.gather(*(session.close(timeout_s=timeout_s) for session in self._sessions))
        if self._expiry is not None:
            await self._expiry.stop()
        await self.replica.close(timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Sessions

    async def session(self, timeout_s: float = SESSION_TIMEOUT_S) -> Session:
        """Open a session that is renewed until it is closed, or for `timeout_s` no renewal succeeds.

        It survives the loss of a leader if that is several times the duration of an election: 5 s or more with the
        default timeouts of `ReplicaConfig`.
        """
        session = Session(self, timeout_s)
        await session.open()
        self._sessions.add(session)
        session.on_end(lambda: self._sessions.discard(session))
        return session
