"""The log of an internal topic as the coordinator runtime needs it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klamm._engine.node import Engine
from klamm.coordinator.runtime.log import Batch, LoadedRecord
from klamm.node.views.partitions import opened
from klamm.protocol.errors import ErrorCode, KafkaError


class EngineCoordinatorLog:
    """The log of an internal topic. The engine's events report the results of appends."""

    def __init__(
        self, engine: Engine, topic: str, topic_id: Callable[[], bytes | None], *, codec: int, load_bytes: int
    ) -> None:
        """`topic_id` returns the id of `topic` while the committed image contains it.

        `codec` is the id of the compression for new batches, `load_bytes` the number of bytes per read.
        """
        self._engine = engine
        self.topic: Final = topic
        self._topic_id = topic_id
        self._codec = codec
        self._load_bytes = load_bytes
        self._tokens = itertools.count(1)
        self._waiting: dict[int, Callable[[ErrorCode | None], None]] = {}

    def _topic(self) -> bytes:
        topic_id = self._topic_id()
        if topic_id is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return topic_id

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        """Append batches, each to a different partition; `done` of each is called with the engine's result."""
        topic_id = self._topic_id()
        if topic_id is None:
            for batch in batches:
                batch.done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        appends = [(batch.partition, next(self._tokens), batch.records) for batch in batches]
        # No result can be drained before this method returns: both run in the loop's thread.
        self._waiting.update((token, batch.done) for (_, token, _), batch in zip(appends, batches, strict=True))
        try:
            self._engine.append(topic_id, appends, now_ms, self._codec)
        except BaseException:  # the caller notifies the waiters and receives the exception
            for _, token, _ in appends:
                self._waiting.pop(token, None)
            raise

    def on_acked(self, token: int, code: int | None) -> None:
        """The engine completed an append; a `code` of None means that its outcome is unknown.

        After an exception the waiter is kept, and the node reports an unknown outcome.
        """
        done = self._waiting.get(token)
        if done is None:
            return
        if code is None:
            del self._waiting[token]
            done(None)
        else:
            done(ErrorCode(code) if code else ErrorCode.NONE)
            del self._waiting[token]

    async def open(self, partition: int) -> None:
        """Open a partition's log, in a thread if it must be recovered."""
        await opened(self._engine, self._topic(), partition)

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        """All records of a partition from its log start to its log end."""
        topic_id, offset = self._topic(), 0
        while True:
            following, rows = self._engine.read_records(topic_id, partition, offset, self._load_bytes)
            for at, key, value, producer_id, is_control in rows:
                yield LoadedRecord(at, key or b"", value, producer_id, is_control)
            if following == offset:
                return
            offset = following
