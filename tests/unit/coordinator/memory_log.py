"""The log of an internal topic, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from klamm.coordinator.runtime.log import Batch, LoadedRecord, LogRecord
from klamm.protocol.errors import ErrorCode, KafkaError


class MemoryLog:
    """Commits in the loop's next turn, unless it is stopped."""

    topic = "__topic"

    def __init__(self) -> None:
        self.partitions: dict[int, list[LogRecord]] = {}
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
            self.partitions.setdefault(batch.partition, []).extend(batch.records)
            self.waiting.append(batch.done)
            if not self.stopped:
                asyncio.get_running_loop().call_soon(self.finish)

    def finish(self, code: ErrorCode | None = ErrorCode.NONE) -> None:
        self.waiting.pop(0)(code)

    def finish_all(self) -> None:
        """Commit what is under way, and what is appended from now on."""
        self.stopped = False
        while self.waiting:
            self.finish()

    def fail(self, code: ErrorCode) -> None:
        """The oldest append fails: its records do not stay in the log."""
        batch = next(batch for call in self.calls for batch in call if batch.done == self.waiting[0])
        del self.partitions[batch.partition][-len(batch.records) :]
        self.finish(code)

    async def open(self, partition: int) -> None:
        pass

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        for offset, (key, value) in enumerate(self.partitions.get(partition, [])):
            yield LoadedRecord(offset, key, value)
        if self.load_refusals:
            raise KafkaError(self.load_refusals.pop(0))


async def appended(log: MemoryLog, count: int = 1) -> None:
    """Wait until so many appends are under way."""
    for _ in range(10):
        if len(log.waiting) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{len(log.waiting)} appends are under way")
