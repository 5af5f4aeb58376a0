"""A replica for programs without asyncio: its loop runs in a thread of its own, every method blocks its caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from klamm.raft.library.driver.config import ReplicaConfig
from klamm.raft.library.driver.leadership import Callback, Leadership
from klamm.raft.library.driver.network import Network
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
        except BaseException:
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


class SyncReplica(Generic[M]):
    """`Replica`, for threads: the same methods, guarantees and errors; any thread may call any of them.

    The state machine, queries and callbacks run on the replica's own thread, one at a time: there they may use the
    state without a lock, and may call nothing that blocks.
    """

    def __init__(
        self,
        machine: M,
        directory: str | Path,
        *,
        node_id: int = 1,
        voters: Mapping[int, str] | None = None,
        cluster: str = "klamm",
        config: ReplicaConfig | None = None,
        address: str | None = None,
        listen: str | None = None,
        network: Network | None = None,
    ) -> None:
        """As of `Replica`; starts with `start()`, or with `with`."""
        self.replica = Replica(
            machine,
            directory,
            node_id=node_id,
            voters=voters,
            cluster=cluster,
            config=config,
            address=address,
            listen=listen,
            network=network,
        )
        """The replica itself, for its own thread."""
        self._thread: LoopThread | None = None

    def start(self) -> None:
        """See `Replica.start`."""
        if self._thread is not None:
            raise RuntimeError("this replica was started before: make another one")
        self._thread = LoopThread("klamm-raft")
        try:
            self._thread.run(self.replica.start())
        except BaseException:
            self._thread.end()
            raise

    def close(self) -> None:
        """See `Replica.close`; may be called again."""
        if self._thread is not None and not self._thread.loop.is_closed():
            try:
                self._thread.run(self.replica.close())
            finally:
                self._thread.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def execute(self, command: bytes, *, timeout_s: float | None = None) -> bytes:
        """See `Replica.execute`."""
        return self._loop.run(self.replica.execute(command, timeout_s=timeout_s))

    def execute_all(self, commands: Sequence[bytes], *, timeout_s: float | None = None) -> list[bytes]:
        """See `Replica.execute_all`."""
        return self._loop.run(self.replica.execute_all(commands, timeout_s=timeout_s))

    def read(self, query: Callable[[M], T], *, timeout_s: float | None = None) -> T:
        """See `Replica.read`."""
        return self._loop.run(self.replica.read(query, timeout_s=timeout_s))

    def read_local(self, query: Callable[[M], T]) -> T:
        """See `Replica.read_local`."""
        return self._loop.call(lambda: self.replica.read_local(query))

    @property
    def leadership(self) -> Leadership:
        """See `Replica.leadership`."""
        return self._loop.call(lambda: self.replica.leadership)

    def on_leader_change(self, callback: Callback) -> Callable[[], None]:
        """See `Replica.on_leader_change`; called on the replica's thread."""
        unsubscribe = self._loop.call(lambda: self.replica.on_leader_change(callback))
        return lambda: self._loop.call(unsubscribe)

    def wait_for_leader(self, timeout_s: float | None = None) -> int:
        """See `Replica.wait_for_leader`."""
        return self._loop.run(self.replica.wait_for_leader(timeout_s))

    def resign(self) -> None:
        """See `Replica.resign`."""
        self._loop.call(self.replica.resign)

    @property
    def voters(self) -> dict[int, str]:
        """See `Replica.voters`."""
        return self._loop.call(lambda: self.replica.voters)

    def join(self, *, timeout_s: float = 60.0) -> None:
        """See `Replica.join`."""
        self._loop.run(self.replica.join(timeout_s=timeout_s))

    def remove_voter(self, node_id: int, *, timeout_s: float = 60.0) -> None:
        """See `Replica.remove_voter`."""
        self._loop.run(self.replica.remove_voter(node_id, timeout_s=timeout_s))

    @property
    def _loop(self) -> LoopThread:
        if self._thread is None or self._thread.loop.is_closed():
            raise RaftStoppedError("the replica is not running: `with SyncReplica(...)`, or `start()`")
        return self._thread
