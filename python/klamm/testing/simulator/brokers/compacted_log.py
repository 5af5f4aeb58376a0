"""What the replicas of a compacted partition must hold: the invariants of compaction.

Sources: `LogCleaner` and `Cleaner` of Apache Kafka 4.3, KIP-58, KIP-534.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klamm._engine.records import record_batches
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from klamm._engine.records import RecordBatch
    from klamm._engine.simulation import ReplicaGauges


class Row(NamedTuple):
    """A record of a log. A value of None makes it a tombstone."""

    epoch: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class ReplicaRows:
    """The records of one replica's log, as they were last read."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self._end_offset = 0
        self._last_batch: bytes | None = None
        self._last_base_offset = 0

    def read(self, gauges: ReplicaGauges, batches: Callable[[int], bytes]) -> dict[int, Row]:
        """Read what was appended, or all of the log if it was truncated; returns what was read."""
        is_newest = self._last_batch is not None and gauges.log_end_offset >= self._end_offset
        if is_newest and gauges.log_end_offset > self._last_base_offset >= gauges.log_start_offset:
            found = list(record_batches(batches(self._last_base_offset)))
            if found and bytes(found[0]) == self._last_batch:
                return self._add(gauges, found[1:], found[-1])
        self.rows = {}
        found = list(record_batches(batches(gauges.log_start_offset)))
        return self._add(gauges, found, found[-1] if found else None)

    def read_all_again(self) -> None:
        """The log was cleaned."""
        self._last_batch = None

    def _add(self, gauges: ReplicaGauges, batches: list[RecordBatch], last: RecordBatch | None) -> dict[int, Row]:
        read = {
            record.offset: Row(batch.leader_epoch, record.key, record.value, record.timestamp_ms)
            for batch in batches
            for record in batch.records()
        }
        self.rows.update(read)
        self._end_offset = gauges.log_end_offset
        self._last_batch = None if last is None else bytes(last)
        self._last_base_offset = 0 if last is None else last.base_offset
        return read


class CompactedHistory:
    """What is known of one compacted partition.

    1. An offset and a leader epoch identify one record in all logs, cleaned or not.
    2. A replica holds the last committed record of each key below its high watermark. A leader holds that of each key.
    3. A tombstone may be missing after `delete.retention.ms`, and then no earlier record of its key is there. A replica
       that fetched the log only after that time may have missed it, as in Apache Kafka.
    4. What is acknowledged is committed.

    There are no unclean elections, and what is acknowledged is flushed.
    """

    def __init__(self, name: str, retention_ms: int) -> None:
        """`retention_ms` is `delete.retention.ms`."""
        self.name, self._retention_ms = name, retention_ms
        self.committed_end = 0
        self._committed_epoch = -1
        self._last: dict[bytes, tuple[int, Row]] = {}
        """The last committed record of each key."""
        self._known: dict[tuple[int, int], Row] = {}
        self._ends: dict[int, int] = {}
        """Where the log of each broker has ended."""
        self._missed: dict[tuple[int, bytes], int] = {}
        """The tombstones that were gone when a broker fetched past them."""

    def check(
        self, broker_id: int, gauges: ReplicaGauges, rows: dict[int, Row], read: dict[int, Row], now_ms: int
    ) -> None:
        """A replica has changed: `read` was read of it, `rows` is its log. Raises InvariantViolatedError."""
        for offset, row in read.items():
            if self._known.setdefault((offset, row.epoch), row) != row:
                raise InvariantViolatedError(f"{self.name}: broker {broker_id} has another record at {offset}: {row}")
        is_current = gauges.is_leader and gauges.leader_epoch >= self._committed_epoch
        if is_current:
            self._commit(gauges, rows)
        self._note_missed(broker_id, gauges, rows, now_ms)
        limit = self.committed_end if is_current else min(gauges.high_watermark, self.committed_end)
        if limit > gauges.log_end_offset:
            raise InvariantViolatedError(
                f"{self.name}: the log of broker {broker_id} ends at {gauges.log_end_offset}, and {limit} is committed"
            )
        for key, (offset, row) in self._last.items():
            if gauges.log_start_offset <= offset < limit and offset not in rows:
                self._check_missing(broker_id, key, (offset, row), rows, now_ms)

    def _commit(self, gauges: ReplicaGauges, rows: dict[int, Row]) -> None:
        end = min(gauges.high_watermark, gauges.log_end_offset)
        for offset in range(self.committed_end, end):
            row = rows.get(offset)
            if row is not None and row.key is not None:
                self._last[row.key] = offset, row
        if end > self.committed_end:
            self.committed_end, self._committed_epoch = end, gauges.leader_epoch

    def _note_missed(self, broker_id: int, gauges: ReplicaGauges, rows: dict[int, Row], now_ms: int) -> None:
        before = self._ends.get(broker_id, 0)
        self._ends[broker_id] = gauges.log_end_offset
        for key, (offset, row) in self._last.items():
            if before <= offset < gauges.log_end_offset and offset not in rows and self._is_over(row, now_ms):
                self._missed[broker_id, key] = offset

    def _is_over(self, row: Row, now_ms: int) -> bool:
        return row.value is None and now_ms >= row.timestamp_ms + self._retention_ms

    def _check_missing(
        self, broker_id: int, key: bytes, last: tuple[int, Row], rows: dict[int, Row], now_ms: int
    ) -> None:
        offset, row = last
        if not self._is_over(row, now_ms):
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} lacks the last record of {key!r} at {offset}: {row}"
            )
        earlier = [at for at, other in rows.items() if at < offset and other.key == key]
        if earlier and self._missed.get((broker_id, key)) != offset:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} has {key!r} at {earlier[-1]}, without its tombstone at {offset}"
            )

    def forget(self, broker_id: int) -> None:
        """A broker has no replica any more."""
        self._ends.pop(broker_id, None)

    def check_acked(self, broker_id: int, end_offset: int) -> None:
        """A leader acknowledges what ends there."""
        if end_offset > self.committed_end:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} acknowledges {end_offset}, and {self.committed_end} is committed"
            )

    def check_consumed(self, broker_id: int, data: bytes) -> None:
        """A consumer receives committed records."""
        for batch in record_batches(data):
            for record in batch.records():
                if record.offset >= self.committed_end or (record.offset, batch.leader_epoch) not in self._known:
                    raise InvariantViolatedError(
                        f"{self.name}: broker {broker_id} returns the record at {record.offset} to a consumer"
                    )
