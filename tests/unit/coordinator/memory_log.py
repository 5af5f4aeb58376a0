"""The log of an internal topic, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from klamm.coordinator.runtime.log import Batch, LoadedRecord, LogRecord, Marker, Producer
from klamm.protocol.errors import ErrorCode, KafkaError

Entry = LogRecord | LoadedRecord
"""A plain or transactional record; its offset is its index in the list."""


def entries(records: Sequence[LogRecord], producer: Producer | None, marker: Marker | None) -> list[Entry]:
    """The records that an append adds to the log."""
    if marker is not None:
        key = bytes([0, marker.commits])
        value = b"\0\0" + marker.coordinator_epoch.to_bytes(4, "big", signed=True)
        return [LoadedRecord(-1, key, value, marker.producer.producer_id, is_control=True)]
    if producer is not None:
        return [LoadedRecord(-1, key, value, producer.producer_id) for key, value in records]
    return list(records)


def loaded(log: Sequence[Entry]) -> Iterator[LoadedRecord]:
    """The records in the form that a shard reads."""
    for offset, entry in enumerate(log):
        yield entry._replace(offset=offset) if isinstance(entry, LoadedRecord) else LoadedRecord(offset, *entry)


PART = 100
"""Records that are loaded per turn of the loop."""


class MemoryLog:
    """Commits in the loop's next turn, unless it is stopped."""

    topic = "__topic"

    def __init__(self) -> None:
        self.partitions: dict[int, list[Entry]] = {}
        self.stopped = False
        self.refusal: ErrorCode | None = None
        self.load_refusals: list[ErrorCode] = []
        self.calls: list[Sequence[Batch]] = []
        self.waiting: list[Callable[[ErrorCode | None], None]] = []

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        self.calls.append(batches)
        for batch in batches:
            if self.refusal is not None:
                batch.done(self.refusal)
                continue
            appended = entries(batch.records, batch.producer, batch.marker)
            self.partitions.setdefault(batch.partition, []).extend(appended)
            self.waiting.append(batch.done)
            if not self.stopped:
                asyncio.get_running_loop().call_soon(self.finish)

    def finish(self, code: ErrorCode | None = ErrorCode.NONE) -> None:
        self.waiting.pop(0)(code)

    def finish_all(self) -> None:
        """Commit the pending appends, and all later ones."""
        self.stopped = False
        while self.waiting:
            self.finish()

    def fail(self, code: ErrorCode, at: int = 0) -> None:
        """A pending append fails, and with it those of its partition that follow: they are removed from the log."""
        pending = {batch.done: batch for call in self.calls for batch in call}
        partition = pending[self.waiting[at]].partition
        failed = [done for done in self.waiting[at:] if pending[done].partition == partition]
        for done in failed:
            self.waiting.remove(done)
            batch = pending[done]
            del self.partitions[partition][-len(entries(batch.records, batch.producer, batch.marker)) :]
        for done in failed:
            done(code)

    async def open(self, partition: int) -> None:
        pass

    async def load(self, partition: int) -> AsyncIterator[Sequence[LoadedRecord]]:
        records = list(loaded(self.partitions.get(partition, [])))
        for at in range(0, len(records), PART):
            yield records[at : at + PART]
        if self.load_refusals:
            raise KafkaError(self.load_refusals.pop(0))


async def appended(log: MemoryLog, count: int = 1) -> None:
    """Wait until that many appends are pending."""
    for _ in range(10):
        if len(log.waiting) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{len(log.waiting)} appends are under way")
