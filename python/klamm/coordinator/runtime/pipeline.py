"""Collects a shard's records into writes, and waiters responses until their records are committed.

Operations change the shard's state at once. Their records are collected in a `Write` until the driver takes it, at the
end of a turn of the loop. Several appends are in flight, so that a write does not wait for the replication of the one
before. While `RECORDS_IN_FLIGHT_MAX` records are in flight, further operations share the next append. Each write has a
snapshot, taken when it was created. The state without the changes of pending writes is the committed state, which plain
reads return. An operation belongs to one write, so it is in the log completely or not at all.

Writes are in the log in their order, so a committed write commits those before it, and a failed one is rolled back with
all later ones, which build on it. A transactional batch and a marker are writes of their own, because the log checks
their producer. If it refuses one, the requests of later writes are answered with COORDINATOR_NOT_AVAILABLE, which
clients retry.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from klamm.coordinator.runtime.effects import Reply, Ticket
from klamm.coordinator.runtime.log import LogRecord, Marker, Producer
from klamm.protocol.errors import ErrorCode

RECORD_OVERHEAD_BYTES_MAX: Final = 21
BATCH_OVERHEAD_BYTES: Final = 61
RECORDS_IN_FLIGHT_MAX: Final = 4
"""A busy shard always has more, and so one append in flight: more appends of fewer records cost processor time."""
REFUSALS: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The log did not accept this producer; it would accept the batch of another."""

S = TypeVar("S")
"""A shard's snapshot."""
E = TypeVar("E")
"""A shard's own effects."""
Done = Callable[[int, ErrorCode], None]
"""Called with the time and the result of an append; with REQUEST_TIMED_OUT if the result takes too long."""
OnError = Callable[[Any, ErrorCode], Any]
"""Makes the response to a request whose records could not be committed."""


@dataclass(slots=True)
class Waiter:
    """A response or a callback that waits for a write."""

    deadline_ms: int
    ticket: Ticket
    response: Any = None
    request: Any = None
    on_error: OnError | None = None
    done: Done | None = None
    is_done: bool = False
    """Whether it was answered, or timed out."""


class Write(Generic[S]):
    """Records of complete operations, the shard's snapshot before them, and what waits for their commit.

    With `producer` it is one operation as a transactional batch; with `marker` it has no records.
    """

    __slots__ = ("changes", "is_rolled_back", "marker", "producer", "records", "size", "snapshot", "waiters")

    def __init__(self, snapshot: S, producer: Producer | None = None, marker: Marker | None = None) -> None:
        self.snapshot = snapshot
        self.producer = producer
        self.marker = marker
        self.records: list[LogRecord] = []
        self.size = BATCH_OVERHEAD_BYTES
        self.changes: list[Callable[[int], None]] = []
        self.waiters: list[Waiter] = []
        self.is_rolled_back = False

    @property
    def count(self) -> int:
        """How many records the log gets; a marker is one, too."""
        return max(1, len(self.records))


class Pipeline(Generic[S, E]):
    """The writes of one shard in order, first those in flight, and the shard's effects.

    `snapshot` is called when a write is created. It returns what `Shard.rollback` needs to restore the state of that
    moment: a copy, or a container to which the shard adds the values that later changes overwrite.
    """

    def __init__(self, commit_timeout_ms: int, batch_bytes_max: int, snapshot: Callable[[], S]) -> None:
        self._commit_timeout_ms = commit_timeout_ms
        self._batch_bytes_max = batch_bytes_max
        self._snapshot = snapshot
        self._effects: list[Reply | E] = []
        self._in_flight: deque[Write[S]] = deque()
        self._queued: deque[Write[S]] = deque()
        self._waiting: list[tuple[int, int, Waiter]] = []
        """A heap: deadline, number, and a waiter that may have been released."""
        self._waiter_count = 0

    # For the shard

    def snapshots(self) -> list[S]:
        """The snapshots of all uncommitted writes, oldest first."""
        return [write.snapshot for writes in (self._in_flight, self._queued) for write in writes]

    @property
    def is_idle(self) -> bool:
        """Whether the whole state is committed."""
        return not self._in_flight and not self._queued

    def add(self, effect: E) -> None:
        """Add an effect that is specific to the shard."""
        self._effects.append(effect)

    def reply(self, ticket: Ticket, response: Any) -> None:
        """Respond now, regardless of pending writes."""
        self._effects.append(Reply(ticket, response))

    def reply_when_committed(
        self,
        now_ms: int,
        ticket: Ticket,
        response: Any,
        request: Any,
        on_error: OnError,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Respond after all records written so far are committed, at once if they are.

        After `timeout_ms`, or the commit timeout of the pipeline, respond with REQUEST_TIMED_OUT.
        """
        if not self._in_flight and not self._queued:
            self._effects.append(Reply(ticket, response))
            return
        timeout_ms = self._commit_timeout_ms if timeout_ms is None else timeout_ms
        self._add_waiter(Waiter(now_ms + timeout_ms, ticket, response, request, on_error))

    def call_when_committed(self, now_ms: int, done: Done) -> None:
        """Call `done` after all records written so far are committed, when they fail, or when the commit times out."""
        self._add_waiter(Waiter(now_ms + self._commit_timeout_ms, None, done=done))

    def apply_when_committed(self, change: Callable[[int], None]) -> None:
        """Call `change` with the time when the newest write is committed, however late; not if it fails.

        For a shard whose state changes only then. Responses that wait for the same write follow.
        """
        assert self._queued, "a change needs a write to wait for"
        self._queued[-1].changes.append(change)

    def _add_waiter(self, waiter: Waiter) -> None:
        last = (self._queued or self._in_flight)[-1]
        last.waiters.append(waiter)
        self._waiter_count += 1
        heapq.heappush(self._waiting, (waiter.deadline_ms, self._waiter_count, waiter))

    def write(self, records: list[LogRecord], size: int | None = None, *, producer: Producer | None = None) -> S | None:
        """Write the records of an operation. The caller then changes the state and adds the old values to the snapshot.

        `size` is the total bytes of keys and values if that is known. With `producer` the operation is a transactional
        batch of its own. Returns the snapshot of the write, or None if the records do not fit into a batch; the caller
        then refuses the operation with MESSAGE_TOO_LARGE.
        """
        if size is None:
            size = sum(len(key) + (0 if value is None else len(value)) for key, value in records)
        size += RECORD_OVERHEAD_BYTES_MAX * len(records)
        if size + BATCH_OVERHEAD_BYTES > self._batch_bytes_max:
            return None
        if producer is not None or not self._has_room(size):
            self._queued.append(Write(self._snapshot(), producer))
        write = self._queued[-1]
        write.records += records
        write.size += size
        return write.snapshot

    def write_marker(self, marker: Marker) -> S:
        """Write the end of a transaction, after all records written so far; as `write`."""
        write = Write(self._snapshot(), marker=marker)
        self._queued.append(write)
        return write.snapshot

    def _has_room(self, size: int) -> bool:
        last = self._queued[-1] if self._queued else None
        if last is None or last.producer is not None or last.marker is not None:
            return False
        return last.size + size <= self._batch_bytes_max

    def take_effects(self) -> list[Reply | E]:
        """The effects since the last call, which each event of the shard returns."""
        effects, self._effects = self._effects, []
        return effects

    # For the runtime

    def take_append(self) -> Write[S] | None:
        """Start the next write and return it; None if enough are in flight or none is queued."""
        if not self._queued or sum(write.count for write in self._in_flight) >= RECORDS_IN_FLIGHT_MAX:
            return None
        write = self._queued.popleft()
        self._in_flight.append(write)
        return write

    def on_committed(self, now_ms: int, write: Write[S]) -> None:
        """The high watermark has passed `write`, and so all writes before it, whose results may follow."""
        if write.is_rolled_back:
            raise RuntimeError("an append that builds on a failed one was committed")
        if write not in self._in_flight:
            return
        committed = None
        while committed is not write:
            committed = self._in_flight.popleft()
            for change in committed.changes:
                change(now_ms)
            for waiter in committed.waiters:
                self._release(now_ms, waiter, ErrorCode.NONE)
        self._remove_released()

    def take_failed(self, write: Write[S]) -> list[Write[S]]:
        """Remove and return `write`, which failed, and all later ones, newest first; nothing if it was rolled back.

        The caller rolls the shard back and then calls `fail`.
        """
        if write.is_rolled_back:
            return []
        failed = self._take_queued()
        last = None
        while last is not write:
            last = self._in_flight.pop()
            failed.append(last)
        for each in failed:
            each.is_rolled_back = True
        return failed

    def take_all(self) -> list[Write[S]]:
        """Remove and return all writes, newest first."""
        writes = [*self._take_queued(), *reversed(self._in_flight)]
        self._in_flight.clear()
        return writes

    def _take_queued(self) -> list[Write[S]]:
        queued = [*reversed(self._queued)]
        self._queued.clear()
        return queued

    def fail(self, now_ms: int, writes: list[Write[S]], error: ErrorCode) -> None:
        """Notify the waiters of `writes` (newest first) that these failed."""
        for write in reversed(writes):
            for waiter in write.waiters:
                self._release(now_ms, waiter, error)
            if error in REFUSALS:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._remove_released()

    def _release(self, now_ms: int, waiter: Waiter, error: ErrorCode) -> None:
        waiter.is_done = True
        if waiter.done is not None:
            waiter.done(now_ms, error)
        elif waiter.ticket is not None:
            response = (
                waiter.response
                if error is ErrorCode.NONE
                else waiter.on_error and waiter.on_error(waiter.request, error)
            )
            self._effects.append(Reply(waiter.ticket, response))
            waiter.ticket = None

    def _remove_released(self) -> None:
        while self._waiting and self._waiting[0][2].is_done:
            heapq.heappop(self._waiting)

    @property
    def deadline_ms(self) -> int | None:
        """When the next waiter times out."""
        return self._waiting[0][0] if self._waiting else None

    def on_timer(self, now_ms: int) -> None:
        """Answer the waiters whose time is over. Their records stay and may still be committed."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            self._release(now_ms, heapq.heappop(self._waiting)[2], ErrorCode.REQUEST_TIMED_OUT)
            self._remove_released()
