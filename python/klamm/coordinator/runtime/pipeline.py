"""From a shard's records to the log and to the answers that wait for them.

Operations change the shard's state at once. Their records wait in a `Write` until the driver takes it, which it can
when the one before is committed, so that all that arrives meanwhile shares the next append. Each write has a snapshot,
taken when it was opened. Since only one append is under way, the state without the writes' changes is what is
committed: that is what plain reads see, and what a failed append goes back to. An operation belongs to one write, so it
is in the log whole or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from klamm.coordinator.runtime.effects import Reply, Ticket
from klamm.coordinator.runtime.log import LogRecord
from klamm.protocol.errors import ErrorCode

RECORD_OVERHEAD_BYTES_MAX: Final = 21
BATCH_OVERHEAD_BYTES: Final = 61

S = TypeVar("S")
"""A shard's snapshot."""
E = TypeVar("E")
"""A shard's own effects."""
Done = Callable[[int, ErrorCode], None]
"""Called with the time and how an append ended; before that with REQUEST_TIMED_OUT when it takes too long."""
OnError = Callable[[Any, ErrorCode], Any]
"""The answer to a request whose records could not be committed."""


@dataclass(slots=True)
class Hold:
    """An answer, or a call, that waits for a write."""

    deadline_ms: int
    ticket: Ticket
    response: Any = None
    request: Any = None
    on_error: OnError | None = None
    done: Done | None = None
    is_over: bool = False
    """It has ended, or has taken too long."""


class Write(Generic[S]):
    """Records of complete operations, the shard's snapshot before them, and the requests that wait for them."""

    __slots__ = ("holds", "records", "size", "snapshot")

    def __init__(self, snapshot: S) -> None:
        self.snapshot = snapshot
        self.records: list[LogRecord] = []
        self.size = BATCH_OVERHEAD_BYTES
        self.holds: list[Hold] = []


class Pipeline(Generic[S, E]):
    """The writes of one shard, in order (at most one under way, the others collect), and the shard's effects.

    `snapshot` is called when a write is opened. It returns what `Shard.rollback` needs to restore the state of that
    moment: a copy, or a container in which the shard keeps what its later changes overwrite.
    """

    def __init__(self, commit_timeout_ms: int, batch_bytes_max: int, snapshot: Callable[[], S]) -> None:
        self._commit_timeout_ms = commit_timeout_ms
        self._batch_bytes_max = batch_bytes_max
        self._snapshot = snapshot
        self._effects: list[Reply | E] = []
        self._in_flight: Write[S] | None = None
        self._queued: deque[Write[S]] = deque()
        self._waiting: deque[Hold] = deque()

    # For the shard

    def snapshots(self) -> list[S]:
        """Those of all writes that are not committed, oldest first."""
        queued = [write.snapshot for write in self._queued]
        return queued if self._in_flight is None else [self._in_flight.snapshot, *queued]

    @property
    def is_idle(self) -> bool:
        """Whether all that the state shows is committed."""
        return self._in_flight is None and not self._queued

    def add(self, effect: E) -> None:
        """Have an effect of the shard's own carried out."""
        self._effects.append(effect)

    def reply(self, ticket: Ticket, response: Any) -> None:
        """Answer now, whatever is under way."""
        self._effects.append(Reply(ticket, response))

    def reply_when_committed(self, now_ms: int, ticket: Ticket, response: Any, request: Any, on_error: OnError) -> None:
        """Answer once all that was written so far is committed; at once when it is."""
        if self._in_flight is None and not self._queued:
            self._effects.append(Reply(ticket, response))
            return
        self._hold(Hold(now_ms + self._commit_timeout_ms, ticket, response, request, on_error))

    def call_when_committed(self, now_ms: int, done: Done) -> None:
        """Call `done` when all that was written so far is committed or has failed, and when that takes too long."""
        self._hold(Hold(now_ms + self._commit_timeout_ms, None, done=done))

    def _hold(self, hold: Hold) -> None:
        last = self._queued[-1] if self._queued else self._in_flight
        assert last is not None, "a hold needs a write to wait for"
        last.holds.append(hold)
        self._waiting.append(hold)

    def write(self, records: list[LogRecord], size: int | None = None) -> S | None:
        """Write an operation's records; the caller then changes the state, for which it gets the write's snapshot.

        `size` is the bytes of their keys and values where that is known. None when they do not fit a batch at all; then
        the operation is to be refused with MESSAGE_TOO_LARGE.
        """
        if size is None:
            size = sum(len(key) + (0 if value is None else len(value)) for key, value in records)
        size += RECORD_OVERHEAD_BYTES_MAX * len(records)
        if size + BATCH_OVERHEAD_BYTES > self._batch_bytes_max:
            return None
        if not self._queued or self._queued[-1].size + size > self._batch_bytes_max:
            self._queued.append(Write(self._snapshot()))
        write = self._queued[-1]
        write.records += records
        write.size += size
        return write.snapshot

    def take_effects(self) -> list[Reply | E]:
        """The effects since the last call: what each event of the shard returns."""
        effects, self._effects = self._effects, []
        return effects

    # For the runtime

    def take_append(self) -> list[LogRecord] | None:
        """The records of the next write, which is under way from here on; None while another is, or there is none."""
        if self._in_flight is not None or not self._queued:
            return None
        self._in_flight = self._queued.popleft()
        return self._in_flight.records

    def on_committed(self, now_ms: int) -> None:
        """The append under way is below the high watermark."""
        write, self._in_flight = self._in_flight, None
        assert write is not None, "no append is under way"
        for hold in write.holds:
            self._release(now_ms, hold, ErrorCode.NONE)
        self._forget_released()

    def take_failed(self) -> list[Write[S]]:
        """All writes, newest first, forgotten: the append under way failed and the later ones rest on it.

        The caller rolls the shard back and then calls `fail`.
        """
        writes = [*reversed(self._queued)]
        if self._in_flight is not None:
            writes.append(self._in_flight)
        self._in_flight = None
        self._queued.clear()
        return writes

    def fail(self, now_ms: int, writes: list[Write[S]], error: ErrorCode) -> None:
        """Notify the waiters of `writes` (newest first) that these failed."""
        for write in reversed(writes):
            for hold in write.holds:
                self._release(now_ms, hold, error)
        self._forget_released()

    def _release(self, now_ms: int, hold: Hold, error: ErrorCode) -> None:
        hold.is_over = True
        if hold.done is not None:
            hold.done(now_ms, error)
        elif hold.ticket is not None:
            response = (
                hold.response if error is ErrorCode.NONE else hold.on_error and hold.on_error(hold.request, error)
            )
            self._effects.append(Reply(hold.ticket, response))
            hold.ticket = None

    def _forget_released(self) -> None:
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()

    @property
    def deadline_ms(self) -> int | None:
        """When the first of those that wait has waited too long."""
        return self._waiting[0].deadline_ms if self._waiting else None

    def on_timer(self, now_ms: int) -> None:
        """Answer those that waited for the commit time-out. What they wrote stays, and may yet be committed."""
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            self._release(now_ms, self._waiting.popleft(), ErrorCode.REQUEST_TIMED_OUT)
            self._forget_released()
