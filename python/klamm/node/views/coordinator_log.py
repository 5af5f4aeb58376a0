"""The log of an internal topic, in the shape that the coordinator runtime asks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klamm._engine import Engine
from klamm.coordinator.runtime.log import Batch, LoadedRecord
from klamm.node.views.partitions import opened
from klamm.protocol.errors import ErrorCode, KafkaError


class EngineCoordinatorLog:
    """The log of an internal topic: appends are answered through the engine's events."""

    def __init__(
        self, engine: Engine, topic: str, topic_id: Callable[[], bytes | None], *, codec: int, load_bytes: int
    ) -> None:
        """`topic_id` gives the id of `topic` while the committed image has it.

        `codec` is the id of the compression of what is written, `load_bytes` how much is read at a time.
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
        """Append batches, each to another partition; `done` of each is called when the engine tells."""
        topic_id = self._topic_id()
        if topic_id is None:
            for batch in batches:
                batch.done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        appends = [(batch.partition, next(self._tokens), batch.records) for batch in batches]
        # None of the answers can be drained before this method has returned: both are on the loop's thread.
        self._waiting.update((token, batch.done) for (_, token, _), batch in zip(appends, batches, strict=True))
        try:
            self._engine.append(topic_id, appends, now_ms, self._codec)
        except BaseException:  # the caller tells those who wait; the error goes on
            for _, token, _ in appends:
                self._waiting.pop(token, None)
            raise

    def on_acked(self, token: int, code: int | None) -> None:
        """The engine tells what became of an append; None: it has, and that was lost."""
        done = self._waiting.pop(token, None)
        if done is not None:
            done(ErrorCode(code) if code else ErrorCode.NONE if code == 0 else None)

    async def open(self, partition: int) -> None:
        """Open a partition's log, on a thread when it has to be recovered."""
        await opened(self._engine, self._topic(), partition)

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        """All records of a partition, from its start to its end."""
        topic_id, offset = self._topic(), 0
        while True:
            following, rows = self._engine.read_records(topic_id, partition, offset, self._load_bytes)
            for at, key, value, producer_id, is_control in rows:
                yield LoadedRecord(at, key or b"", value, producer_id, is_control)
            if following == offset:
                return
            offset = following
