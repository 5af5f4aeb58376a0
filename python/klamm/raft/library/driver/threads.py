"""A replica for programs without asyncio: its loop runs in a thread of its own, every method blocks its caller."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack

from klamm.raft.library.driver.leadership import Callback, Leadership
from klamm.raft.library.driver.options import ReplicaOptions
from klamm.raft.library.driver.replica import Replica
from klamm.raft.library.state_machine import StateMachine
from klamm.raft.ports import RaftStoppedError

M = TypeVar("M", bound=StateMachine)
T = TypeVar("T")


class LoopThread:
    """An asyncio loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the loop. Ctrl-C cancels it."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("called from a callback on the replica's own thread, which would wait for itself")
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:  # also Ctrl-C: the coroutine ends, too
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function, called on the loop's thread."""

        async def call() -> T:
            return function()

        return self.run(call())

    def end(self) -> None:
        """Stop the loop and wait for its thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


class Closing(ABC):
    """`with` closes."""

    @abstractmethod
    def close(self) -> None:
        """Cancel it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Startable(Protocol):
    """An object that runs on a loop from `start` to `close`."""

    async def start(self) -> None:
        """Begin."""

    async def close(self) -> None:
        """End."""


class ThreadRunner(Closing):
    """Runs `inner` on a loop in a thread of its own: started with `with`, or with `start()`."""

    def __init__(self, inner: Startable, thread_name: str) -> None:
        self._inner, self._thread_name = inner, thread_name
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """See `Replica.start`."""
        if self._thread is not None:
            raise RuntimeError(f"this {type(self).__name__} was started before: make another one")
        self._thread = LoopThread(self._thread_name)
        try:
            self._thread.run(self._inner.start())
        except BaseException:  # also Ctrl-C: no thread stays
            self._thread.end()
            raise

    def close(self) -> None:
        """See `Replica.close`; may be called again."""
        if self._thread is not None and not self._thread.loop.is_closed():
            try:
                self._thread.run(self._inner.close())
            finally:
                self._thread.end()

    @property
    def loop(self) -> LoopThread:
        """The thread. Raises RaftStoppedError."""
        if self._thread is None or self._thread.loop.is_closed():
            name = type(self).__name__
            raise RaftStoppedError(f"this {name} is not running: `with {name}(...)`, or `start()`")
        return self._thread


class SyncReplica(ThreadRunner, Generic[M]):
    """`Replica`, for threads: the same methods, guarantees and errors; any thread may call any of them.

    The state machine, queries and callbacks run on the replica's own thread, one at a time: there they may use the
    state without a lock, and may call nothing that blocks.
    """

    def __init__(self, machine: M, directory: str | Path, **options: Unpack[ReplicaOptions]) -> None:
        """As of `Replica`."""
        self.replica = Replica(machine, directory, **options)
        """The replica itself, for its own thread."""
        super().__init__(self.replica, "klamm-raft")

    def execute(self, command: bytes, *, timeout_s: float | None = None) -> bytes:
        """See `Replica.execute`."""
        return self.loop.run(self.replica.execute(command, timeout_s=timeout_s))

    def execute_all(self, commands: Sequence[bytes], *, timeout_s: float | None = None) -> list[bytes]:
        """See `Replica.execute_all`."""
        return self.loop.run(self.replica.execute_all(commands, timeout_s=timeout_s))

    def read(self, query: Callable[[M], T], *, timeout_s: float | None = None) -> T:
        """See `Replica.read`."""
        return self.loop.run(self.replica.read(query, timeout_s=timeout_s))

    def read_local(self, query: Callable[[M], T]) -> T:
        """See `Replica.read_local`."""
        return self.loop.call(lambda: self.replica.read_local(query))

    @property
    def leadership(self) -> Leadership:
        """See `Replica.leadership`."""
        return self.loop.call(lambda: self.replica.leadership)

    def on_leader_change(self, callback: Callback) -> Callable[[], None]:
        """See `Replica.on_leader_change`; called on the replica's thread."""
        unsubscribe = self.loop.call(lambda: self.replica.on_leader_change(callback))
        return lambda: self.loop.call(unsubscribe)

    def wait_for_leader(self, timeout_s: float | None = None) -> int:
        """See `Replica.wait_for_leader`."""
        return self.loop.run(self.replica.wait_for_leader(timeout_s))

    def resign(self) -> None:
        """See `Replica.resign`."""
        self.loop.call(self.replica.resign)

    @property
    def voters(self) -> dict[int, str]:
        """See `Replica.voters`."""
        return self.loop.call(lambda: self.replica.voters)

    def join(self, *, timeout_s: float = 60.0) -> None:
        """See `Replica.join`."""
        self.loop.run(self.replica.join(timeout_s=timeout_s))

    def remove_voter(self, node_id: int, *, timeout_s: float = 60.0) -> None:
        """See `Replica.remove_voter`."""
        self.loop.run(self.replica.remove_voter(node_id, timeout_s=timeout_s))
