"""Writes quorum-state in a thread: a slow disk must not stop the loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from klamm.driving.clock import LoopClock
from klamm.raft.effects import PersistElection
from klamm.raft.election.election_state import encode
from klamm.raft.ports import ElectionStore


class ElectionWriter:
    """Writes the newest election state, one write at a time. Must be created and used on the loop's thread."""

    def __init__(
        self,
        store: ElectionStore,
        clock: LoopClock,
        on_done: Callable[[int, str | None], None],
        start_thread: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`on_done` receives the ticket of a state after its write, and the error if the write failed."""
        self._store, self._loop, self._on_done = store, clock.loop, on_done
        self._start_thread = start_thread or _start_thread
        self._next: PersistElection | None = None
        self._is_writing = False

    @property
    def is_writing(self) -> bool:
        """Whether a state is being written."""
        return self._is_writing

    def take(self, effect: PersistElection) -> None:
        """Set the state to write; it replaces one whose write has not begun."""
        self._next = effect

    def write(self) -> None:
        """Begin to write the newest state, unless another is being written."""
        effect = self._next
        if effect is None or self._is_writing:
            return
        self._next, self._is_writing = None, True
        data = encode(effect.state, effect.kraft_version, effect.voter_ids)
        # Not the loop's executor: it takes longer to import than the file to write, and every start writes it.
        try:
            self._start_thread(lambda: self._write_in_thread(effect.ticket, data))
        except Exception as error:  # no thread can be started: the vote is not durable, which stops the replica
            self._is_writing = False
            self._on_done(effect.ticket, f"cannot write {self._store}: {error}")

    def _write_in_thread(self, ticket: int, data: bytes) -> None:
        error: BaseException | None = None
        try:
            self._store.write(data)
        except BaseException as raised:  # whatever it is, it ends the replica and not this thread alone
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no task waits for it
            self._loop.call_soon_threadsafe(self._on_written, ticket, error)

    def _on_written(self, ticket: int, error: BaseException | None) -> None:
        self._is_writing = False
        cause = error.strerror if isinstance(error, OSError) else None
        self._on_done(ticket, None if error is None else f"cannot write {self._store}: {cause or error}")


def _start_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="quorum-state").start()
