"""The tree and its recipes for programs without asyncio: every method blocks its caller, any thread may call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from klamm.raft.library.driver.options import ReplicaOptions
from klamm.raft.library.driver.threads import Closing, ThreadRunner
from klamm.raft.recipes.driver.barrier import Barrier
from klamm.raft.recipes.driver.counter import Counter
from klamm.raft.recipes.driver.election import Election
from klamm.raft.recipes.driver.lock import Lock
from klamm.raft.recipes.driver.queue import Queue
from klamm.raft.recipes.driver.session import Session
from klamm.raft.recipes.driver.tree import SESSION_TIMEOUT_S, Tree
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.nodes import ROOT, Change, Node


class SyncTree(ThreadRunner):
    """`Tree`, for threads."""

    def __init__(self, directory: str | Path, **options: Unpack[ReplicaOptions]) -> None:
        """As of `Tree`."""
        self.tree = Tree(directory, **options)
        """The tree itself, for its own thread."""
        super().__init__(self.tree, "klamm-tree")

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        session: SyncSession | None = None,
        is_sequential: bool = False,
        with_parents: bool = False,
    ) -> str:
        """See `Tree.create`."""
        owner = session.session if session is not None else None
        return self.loop.run(
            self.tree.create(path, data, session=owner, is_sequential=is_sequential, with_parents=with_parents)
        )

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """See `Tree.set`."""
        return self.loop.run(self.tree.set(path, data, version=version))

    def delete(self, path: str, *, version: int | None = None) -> None:
        """See `Tree.delete`."""
        self.loop.run(self.tree.delete(path, version=version))

    def get(self, path: str) -> Node:
        """See `Tree.get`."""
        return self.loop.run(self.tree.get(path))

    def find(self, path: str) -> Node | None:
        """See `Tree.find`."""
        return self.loop.run(self.tree.find(path))

    def children(self, path: str) -> list[str]:
        """See `Tree.children`."""
        return self.loop.run(self.tree.children(path))

    @property
    def position(self) -> int:
        """See `Tree.position`."""
        return self.loop.call(lambda: self.tree.position)

    def changes(self, path: str = ROOT, *, since: int | None = None) -> Iterator[Change]:
        """See `Tree.changes`; the iterator waits for the next one."""
        start = self.position if since is None else since
        found = self.tree.changes(path, since=start)
        while True:
            yield self.loop.run(_next(found))

    def wait_for(self, condition: Callable[[TreeMachine], Any], *, timeout_s: float | None = None) -> Any:
        """See `Tree.wait_for`; the condition is looked at on the tree's thread."""
        return self.loop.run(self.tree.wait_for(condition, timeout_s=timeout_s))

    def session(self, timeout_s: float = SESSION_TIMEOUT_S) -> SyncSession:
        """See `Tree.session`."""
        return SyncSession(self, self.loop.run(self.tree.session(timeout_s)))

    def counter(self, path: str) -> SyncCounter:
        """A `Counter`."""
        return SyncCounter(self, Counter(self.tree, path))

    def queue(self, path: str) -> SyncQueue:
        """A `Queue`."""
        return SyncQueue(self, Queue(self.tree, path))


async def _next(found: Any) -> Change:
    change: Change = await anext(found)
    return change


class SyncSession(Closing):
    """`Session`, for threads, and what needs one."""

    def __init__(self, tree: SyncTree, session: Session) -> None:
        self._tree, self.session = tree, session

    @property
    def is_alive(self) -> bool:
        """See `Session.is_alive`."""
        return self.session.is_alive

    def on_end(self, callback: Callable[[], object]) -> Callable[[], None]:
        """See `Session.on_end`; called on the tree's thread."""
        loop = self._tree.loop
        unsubscribe = loop.call(lambda: self.session.on_end(callback))
        return lambda: loop.call(unsubscribe)

    def close(self) -> None:
        """See `Session.close`."""
        self._tree.loop.run(self.session.close())

    def lock(self, path: str, data: bytes = b"") -> SyncLock:
        """A `Lock`."""
        return SyncLock(self._tree, Lock(self.session, path, data))

    def election(self, path: str, candidate: bytes) -> SyncElection:
        """An `Election`."""
        return SyncElection(self._tree, Election(self.session, path, candidate))

    def barrier(self, path: str, count: int) -> SyncBarrier:
        """A `Barrier`."""
        return SyncBarrier(self._tree, Barrier(self.session, path, count))


class SyncLock:
    """`Lock`, for threads."""

    def __init__(self, tree: SyncTree, lock: Lock) -> None:
        self._tree, self._lock = tree, lock

    @property
    def token(self) -> int | None:
        """See `Lock.token`."""
        return self._lock.token

    @property
    def is_held(self) -> bool:
        """See `Lock.is_held`."""
        return self._lock.is_held

    def acquire(self, *, timeout_s: float | None = None) -> int:
        """See `Lock.acquire`."""
        return self._tree.loop.run(self._lock.acquire(timeout_s=timeout_s))

    def release(self) -> None:
        """See `Lock.release`."""
        self._tree.loop.run(self._lock.release())

    def holder(self) -> bytes | None:
        """See `Lock.holder`."""
        return self._tree.loop.run(self._lock.holder())

    def __enter__(self) -> int:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SyncElection:
    """`Election`, for threads."""

    def __init__(self, tree: SyncTree, election: Election) -> None:
        self._tree, self._election = tree, election

    @property
    def is_leading(self) -> bool:
        """See `Election.is_leading`."""
        return self._election.is_leading

    @property
    def term(self) -> int | None:
        """See `Election.term`."""
        return self._election.term

    def campaign(self, *, timeout_s: float | None = None) -> int:
        """See `Election.campaign`."""
        return self._tree.loop.run(self._election.campaign(timeout_s=timeout_s))

    def resign(self) -> None:
        """See `Election.resign`."""
        self._tree.loop.run(self._election.resign())

    def leader(self) -> bytes | None:
        """See `Election.leader`."""
        return self._tree.loop.run(self._election.leader())


class SyncCounter:
    """`Counter`, for threads."""

    def __init__(self, tree: SyncTree, counter: Counter) -> None:
        self._tree, self._counter = tree, counter

    def add(self, number: int = 1) -> int:
        """See `Counter.add`."""
        return self._tree.loop.run(self._counter.add(number))

    def value(self) -> int:
        """See `Counter.value`."""
        return self._tree.loop.run(self._counter.value())


class SyncQueue:
    """`Queue`, for threads."""

    def __init__(self, tree: SyncTree, queue: Queue) -> None:
        self._tree, self._queue = tree, queue

    def put(self, item: bytes) -> None:
        """See `Queue.put`."""
        self._tree.loop.run(self._queue.put(item))

    def get(self, *, timeout_s: float | None = None) -> bytes:
        """See `Queue.get`."""
        return self._tree.loop.run(self._queue.get(timeout_s=timeout_s))

    def size(self) -> int:
        """See `Queue.size`."""
        return self._tree.loop.run(self._queue.size())


class SyncBarrier:
    """`Barrier`, for threads."""

    def __init__(self, tree: SyncTree, barrier: Barrier) -> None:
        self._tree, self._barrier = tree, barrier

    def enter(self, *, timeout_s: float | None = None) -> None:
        """See `Barrier.enter`."""
        self._tree.loop.run(self._barrier.enter(timeout_s=timeout_s))

    def leave(self, *, timeout_s: float | None = None) -> None:
        """See `Barrier.leave`."""
        self._tree.loop.run(self._barrier.leave(timeout_s=timeout_s))
