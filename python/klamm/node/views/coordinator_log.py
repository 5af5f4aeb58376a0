"""The log of an internal topic as the coordinator runtime needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import groupby
from typing import Any, Final

from klamm._engine.node import Engine
from klamm.coordinator.runtime.log import Batch, LoadedRecord, RecordError
from klamm.node.coordinators.appends import Appends
from klamm.node.views.partitions import opened
from klamm.protocol.errors import ErrorCode, KafkaError

LOAD_STEP_RECORDS: Final = 200
"""Records replayed before other tasks of the loop run: about 2 ms."""


class EngineCoordinatorLog:
    """The log of an internal topic. The engine's events report the results of appends."""

    def __init__(
        self,
        engine: Engine,
        topic: str,
        topic_id: Callable[[], bytes | None],
        appends: Appends,
        *,
        codec: int,
        load_bytes: int,
        is_compacted: bool,
    ) -> None:
        """`topic_id` returns the id of `topic` while the committed image contains it.

        `appends` gets the engine's results. `codec` is the id of the compression for new batches, `load_bytes` the
        number of bytes per read.
        """
        self._engine = engine
        self.topic: Final = topic
        self._topic_id = topic_id
        self._codec = codec
        self._load_bytes = load_bytes
        self._is_compacted = is_compacted
        self._appends = appends

    def _topic(self) -> bytes:
        topic_id = self._topic_id()
        if topic_id is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return topic_id

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        """Append batches in order; `done` of each is called with the engine's result."""
        topic_id = self._topic_id()
        if topic_id is None:
            for batch in batches:
                batch.done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        added = [(self._appends.add(batch.done), batch) for batch in batches]
        try:
            for are_markers, run in groupby(added, lambda each: each[1].marker is not None):
                if are_markers:
                    # As in Kafka, a group shard ends a transaction also below min.insync.replicas.
                    self._engine.append_markers([_marker(topic_id, *each) for each in run], now_ms, needs_min_isr=False)
                else:
                    self._engine.append(topic_id, [_batch(*each) for each in run], now_ms, self._codec)
        except Exception:  # the caller notifies the waiters and receives the exception
            for token, _ in added:
                self._appends.remove(token)
            raise

    async def open(self, partition: int) -> None:
        """Open a partition's log, in a thread if it must be recovered."""
        await opened(self._engine, self._topic(), partition)

    async def load(self, partition: int) -> AsyncIterator[Sequence[LoadedRecord]]:
        """The records of a partition from its log start to its log end, read in a thread, one part ahead."""
        load = self._engine.load(self._topic(), partition, self._load_bytes, latest_only=self._is_compacted)
        reading = asyncio.ensure_future(asyncio.to_thread(load.read))
        try:
            while (part := await reading) is not None:
                reading = asyncio.ensure_future(asyncio.to_thread(load.read))
                while rows := part.take(LOAD_STEP_RECORDS):
                    yield [
                        LoadedRecord(at, key or b"", value, producer_id, is_control)
                        for at, key, value, producer_id, is_control in rows
                    ]
        finally:
            reading.cancel()

    def prune(self, partition: int, offset: int, key: bytes) -> None:
        """Delete the records before `offset`, where a record with this key is. Raises RecordError, or KafkaError."""
        topic_id = self._topic()
        _, rows = self._engine.read_records(topic_id, partition, offset, 1)
        found = next((found for at, found, *_ in rows if at == offset), None)
        if found != key:
            raise RecordError(f"partition {partition} of {self.topic} has another record at offset {offset}: {found!r}")
        self._engine.delete_records(topic_id, partition, offset)


def _batch(token: int, batch: Batch) -> Any:
    if batch.producer is None:
        return batch.partition, token, batch.series, batch.records
    return batch.partition, token, batch.series, batch.records, batch.producer


def _marker(topic_id: bytes, token: int, batch: Batch) -> Any:
    assert batch.marker is not None
    producer, commits, coordinator_epoch, version = batch.marker
    return topic_id, batch.partition, token, batch.series, *producer, commits, coordinator_epoch, version
