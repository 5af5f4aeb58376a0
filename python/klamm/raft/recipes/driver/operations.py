"""Operations on the nodes of a replicated tree: changes, reads, and waiting for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Unpack

from klamm.raft.library.driver.options import ReplicaOptions
from klamm.raft.library.driver.replica import Replica
from klamm.raft.recipes.errors import ERRORS, NoNodeError, TreeError
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.nodes import ROOT, Change, Node, checked_path
from klamm.raft.recipes.packed import pack, unpack

LOOK_AGAIN_S: Final = 0.5


class Owner(Protocol):
    """A session, as the owner of ephemeral nodes."""

    id: str

    def check_alive(self) -> None:
        """Raise SessionLostError unless it is alive."""


class TreeOperations:
    """The nodes of a tree, through one replica of it. `Tree` starts and closes the replica."""

    def __init__(self, directory: str | Path, **options: Unpack[ReplicaOptions]) -> None:
        options.setdefault("cluster", "klamm-tree")
        self.replica: Replica[TreeMachine] = Replica(TreeMachine(), directory, **options)
        self._waiting: set[asyncio.Future[None]] = set()

    # Changes

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        session: Owner | None = None,
        is_sequential: bool = False,
        with_parents: bool = False,
    ) -> str:
        """Make a node; its path, to which a sequential one has ten digits added, ascending under one parent.

        With a session the node is ephemeral: it ends with the session, and can have no children. Raises
        NodeExistsError, NoNodeError (no parent), NotEmptyError (the parent is ephemeral), SessionLostError.
        """
        owner = session.id if session is not None else None
        if session is not None:
            session.check_alive()
        return str(await self.change("create", checked_path(path), data, owner, is_sequential, with_parents))

    async def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Change a node's data, if it has that version; its new version. Raises NoNodeError, BadVersionError."""
        return int(await self.change("set", checked_path(path), data, version))

    async def delete(self, path: str, *, version: int | None = None) -> None:
        """Remove a node, if it has that version. Raises NoNodeError, BadVersionError, NotEmptyError."""
        await self.change("delete", checked_path(path), version)

    async def change(self, operation: str, *arguments: object, timeout_s: float | None = None) -> Any:
        """The result of one of the machine's operations."""
        answer = unpack(await self.replica.execute(pack([operation, *arguments]), timeout_s=timeout_s))
        if answer[0]:
            return answer[1]
        raise ERRORS.get(answer[1], TreeError)(answer[2])

    # Reads

    async def get(self, path: str) -> Node:
        """The node. Raises NoNodeError."""
        found = await self.find(path)
        if found is None:
            raise NoNodeError(f"{path} is not there")
        return found

    async def find(self, path: str) -> Node | None:
        """The node, None when there is none."""
        checked_path(path)
        return await self.replica.read(lambda machine: machine.get(path))

    async def children(self, path: str) -> list[str]:
        """The names of a node's children, in order. Raises NoNodeError."""
        return list((await self.get(path)).children)

    # Watching

    @property
    def position(self) -> int:
        """The position of the newest change that this replica has."""
        return self.replica.read_local(lambda machine: machine.position)

    async def changes(self, path: str = ROOT, *, since: int | None = None) -> AsyncIterator[Change]:
        """Each change of `path` and of what is under it, in order, none missing, none twice.

        Starts after position `since`, or with the next change. Positions are the same on every replica: a reader that
        resumes at the position of its last change, here or on another replica, misses none. Raises ChangesLostError
        when that change is too old (the tree keeps the newest 10 000), RaftStoppedError when the replica stops.
        """
        checked_path(path)
        position = self.position if since is None else since
        while True:
            # Create the future before the check, so that no change in between is missed.
            progress = self._progress()
            found = self.replica.read_local(partial(_changes_since, position, path))
            position = max(position, self.position)
            for change in found:
                yield change
            await self._next(progress)

    async def wait_for(self, condition: Callable[[TreeMachine], Any], *, timeout_s: float | None = None) -> Any:
        """The result of `condition` on the tree once it is true; evaluated after every change that arrives here.

        For conditions that stay true until they are observed: one that was true for a moment may be missed. Raises
        TimeoutError.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                progress = self._progress()
                try:
                    found = self.replica.read_local(condition)
                    if found:
                        return found
                    await self._next(progress)
                finally:
                    progress.cancel()

    def _progress(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    async def _next(self, progress: asyncio.Future[None]) -> None:
        """Return at the next progress. Raises RaftStoppedError."""
        while not progress.done():
            await asyncio.wait([progress], timeout=LOOK_AGAIN_S)
            self.replica.leadership  # noqa: B018 - raises when the replica has stopped

    def wake(self) -> None:
        """Let all waiters check again."""
        for future in list(self._waiting):
            if not future.done():
                future.set_result(None)


def _changes_since(position: int, path: str, machine: TreeMachine) -> list[Change]:
    return machine.changes_since(position, path)
