"""The log of `__consumer_offsets`, in the shape that the group coordinator asks for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence

from klamm._engine import Engine
from klamm.coordinator.driver import LoadedRecord
from klamm.coordinator.records import LogRecord
from klamm.node.partitions import opened
from klamm.protocol.errors import ErrorCode, KafkaError


class EngineGroupLog:
    """The log of `__consumer_offsets`: appends are answered through the engine's events."""

    def __init__(self, engine: Engine, topic_id: Callable[[], bytes | None], *, codec: int, load_bytes: int) -> None:
        """`codec` is the id of the compression of what is written, `load_bytes` how much is read at a time."""
        self._engine = engine
        self._topic_id = topic_id
        self._codec = codec
        self._load_bytes = load_bytes
        self._tokens = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def _topic(self) -> bytes:
        topic_id = self._topic_id()
        if topic_id is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return topic_id

    def append(self, partition: int, records: Sequence[LogRecord], now_ms: int) -> asyncio.Future[None]:
        """Append one batch; the future is done when it is committed."""
        token = next(self._tokens)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The answer cannot be drained before this method has returned: both are on the loop's thread.
        self._waiting[token] = future
        try:
            self._engine.append(self._topic(), partition, records, now_ms, token, self._codec)
        except BaseException:
            del self._waiting[token]
            raise
        return future

    def on_acked(self, token: int, code: int) -> None:
        """The engine tells what became of an append."""
        future = self._waiting.pop(token, None)
        if future is None or future.done():
            return
        if code == ErrorCode.NONE:
            future.set_result(None)
        else:
            future.set_exception(KafkaError(ErrorCode(code)))

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
