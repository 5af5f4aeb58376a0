"""From an operation's records to the log and to the answers that wait for them (facts 11.1).

Operations change memory at once. Their records wait in a `Write` until the driver takes it, which it can when the one
before is committed, so that all that arrives meanwhile shares the next append; a write remembers what it overwrote.
Since only one append is under way, memory without the writes' changes is what is committed: that is what plain reads
see, and what a failed append goes back to. An operation belongs to one write, so it is in the log whole or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from klamm.coordinator.effects import Reply, Ticket
from klamm.coordinator.records import LogRecord, OffsetAndMetadata
from klamm.protocol.errors import ErrorCode

RECORD_OVERHEAD_BYTES_MAX: Final = 21
BATCH_OVERHEAD_BYTES: Final = 61

OffsetPlace = tuple[str, int]
"""Topic and partition."""
Done = Callable[[int, ErrorCode], None]
"""Called with the time and how an append ended; before that with REQUEST_TIMED_OUT when it takes too long."""
OnError = Callable[[Any, ErrorCode], Any]
"""The answer to a request whose records could not be committed."""

FAILED_APPENDS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """The code for the client when an append ends with `error`."""
    return FAILED_APPENDS.get(error, error)


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


class Write:
    """Records of complete operations, what they overwrote in memory, and the requests that wait for them."""

    __slots__ = ("groups", "holds", "offsets", "records", "size", "undo")

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.size = BATCH_OVERHEAD_BYTES
        self.holds: list[Hold] = []
        self.offsets: dict[str, dict[OffsetPlace, OffsetAndMetadata | None]] = {}
        """Per group and place: the offset before this write."""
        self.groups: dict[str, Any] = {}
        """Per group id: the classic group before this write, or None."""
        self.undo: list[Callable[[], None]] = []
        """How to take back the changes that plain reads need not see through."""


class Pipeline:
    """The writes of one shard, in order: at most one under way, the others collect."""

    def __init__(self, commit_timeout_ms: int, batch_bytes_max: int) -> None:
        self._commit_timeout_ms = commit_timeout_ms
        self._batch_bytes_max = batch_bytes_max
        self._replies: list[Reply] = []
        self._in_flight: Write | None = None
        self._queued: deque[Write] = deque()
        self._waiting: deque[Hold] = deque()

    def writes(self) -> list[Write]:
        """All that is not committed, oldest first."""
        return list(self._queued) if self._in_flight is None else [self._in_flight, *self._queued]

    @property
    def is_idle(self) -> bool:
        """Whether all that memory shows is committed."""
        return self._in_flight is None and not self._queued

    def reply(self, ticket: Ticket, response: Any) -> None:
        """Answer now, whatever is under way."""
        self._replies.append(Reply(ticket, response))

    def reply_when_committed(self, now_ms: int, ticket: Ticket, response: Any, request: Any, on_error: OnError) -> None:
        """Answer once all that was written so far is committed; at once when it is."""
        if self._in_flight is None and not self._queued:
            self._replies.append(Reply(ticket, response))
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

    def open_write(self, records: list[LogRecord], size: int | None = None) -> Write | None:
        """The write that takes an operation's records, to note there what applying them overwrites.

        `size` is the bytes of their keys and values where that is known. None when they do not fit a batch at all; then
        the operation is to be refused with MESSAGE_TOO_LARGE.
        """
        if size is None:
            size = sum(len(key) + (0 if value is None else len(value)) for key, value in records)
        size += RECORD_OVERHEAD_BYTES_MAX * len(records)
        if size + BATCH_OVERHEAD_BYTES > self._batch_bytes_max:
            return None
        if not self._queued or self._queued[-1].size + size > self._batch_bytes_max:
            self._queued.append(Write())
        write = self._queued[-1]
        write.records += records
        write.size += size
        return write

    def take_replies(self) -> list[Reply]:
        """The answers that are due since the last call."""
        replies, self._replies = self._replies, []
        return replies

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

    def take_failed(self) -> list[Write]:
        """All writes, newest first, forgotten: the append under way failed and the later ones rest on it.

        The caller takes their changes back and then calls `fail`.
        """
        writes = self.writes()
        writes.reverse()
        self._in_flight = None
        self._queued.clear()
        return writes

    def fail(self, now_ms: int, writes: list[Write], error: ErrorCode) -> None:
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
            self._replies.append(Reply(hold.ticket, response))
            hold.ticket = None

    def _forget_released(self) -> None:
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()

    @property
    def deadline_ms(self) -> int | None:
        """When the first of those that wait has waited too long."""
        return self._waiting[0].deadline_ms if self._waiting else None

    def on_timer(self, now_ms: int) -> None:
        """Answer those that waited for `offsets.commit.timeout.ms`. What they wrote stays, and may yet be committed."""
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            self._release(now_ms, self._waiting.popleft(), ErrorCode.REQUEST_TIMED_OUT)
            self._forget_released()
