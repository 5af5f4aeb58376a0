"""Flushes of the log: one at a time; the next flush covers everything that is appended meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.raft.log.metadata_log import MetadataLog

# No commit depends on the disk of a replica that never votes: it fetches again what a power cut destroys. So it flushes
# once per interval, where no caller waits for the fsync. Apache Kafka leaves these writes to the page cache.
OBSERVER_FLUSH_MS: Final = 1_000


class Flusher:
    """Must be created and used on the loop's thread."""

    def __init__(
        self, log: MetadataLog, clock: LoopClock, on_done: Callable[[str | None], None], *, never_votes: bool
    ) -> None:
        """`on_done` is called after each flush, with None or the error, which names the file."""
        self._log, self._loop, self._on_done, self._never_votes = log, clock.loop, on_done, never_votes
        self._fd = log.flush_fd
        self._is_flushing = False
        self._at_end_of_turn: asyncio.Handle | None = None
        self._timer = DeadlineTimer(clock, lambda at_ms: self._flush())

    def start(self) -> None:
        """Receive the ends of flushes from now on."""
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._log.on_flush_end)

    @property
    def is_busy(self) -> bool:
        """Whether a flush is due or in progress."""
        return self._is_flushing or self._at_end_of_turn is not None or self._timer.is_armed

    def schedule(self, *, is_leading: bool) -> None:
        """Flush the log; a leader does so at the end of this turn of the loop, for all proposals of the turn."""
        if self.is_busy or self._log.flushed_offset >= self._log.end_offset:
            return
        if self._never_votes:
            self._timer.arm_in(OBSERVER_FLUSH_MS)
        elif is_leading:
            self._at_end_of_turn = self._loop.call_soon(self._flush)
        else:
            self._flush()

    def flush_now(self) -> None:
        """Start a due flush without a delay."""
        if self._at_end_of_turn is not None or self._timer.is_armed:
            self._cancel()
            self._flush()

    def stop(self) -> None:
        """Start no more flushes."""
        self._cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)

    def _cancel(self) -> None:
        self._timer.cancel()
        if self._at_end_of_turn is not None:
            self._at_end_of_turn.cancel()
            self._at_end_of_turn = None

    def _flush(self) -> None:
        self._at_end_of_turn, self._is_flushing = None, True
        self._log.start_flush(self._on_end_in_any_thread if self._fd is None else self._on_end)

    def _on_end_in_any_thread(self, flushed_offset: int, error: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no task waits for it
            self._loop.call_soon_threadsafe(self._on_end, flushed_offset, error)

    def _on_end(self, flushed_offset: int, error: str | None) -> None:
        self._is_flushing = False
        self._on_done(error)
