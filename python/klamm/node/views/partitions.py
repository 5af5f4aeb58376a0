"""The engine's partitions as `RecordHandlers` needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from klamm._engine.metadata import Image
from klamm._engine.node import Engine
from klamm.broker.request import monotonic_ms
from klamm.protocol.errors import ErrorCode, KafkaError

LOOK_S: Final = 0.005


async def opened(engine: Engine, topic_id: bytes, partition: int) -> None:
    """Wait until the partition is open, which may include a recovery. Raises KafkaError."""
    if engine.must_recover(topic_id, partition):
        await asyncio.to_thread(engine.open_partition, topic_id, partition)


class LocalPartitions:
    """Partitions by topic name, for `RecordHandlers`."""

    def __init__(self, engine: Engine, image: Callable[[], Image]) -> None:
        self._engine = engine
        self._image = image

    def _topic_id(self, topic: str) -> bytes:
        topic_id = self._image().topic_id(topic)
        if topic_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'.")
        return topic_id

    async def delete_records(self, topic: str, partition: int, offset: int, timeout_ms: int) -> tuple[int, bool]:
        """Advance the log start offset, and wait until all live replicas have advanced theirs.

        Returns the low watermark, and whether all of them have; if not, the timeout passed.
        """
        topic_id = self._topic_id(topic)
        await opened(self._engine, topic_id, partition)
        required = self._engine.delete_records(topic_id, partition, offset)
        deadline_ms = monotonic_ms() + timeout_ms
        # A broker that leaves ends the wait as well as a fetch does. So rare a request looks instead of being notified.
        while (low_watermark := self._engine.low_watermark(topic_id, partition)) < required:
            if monotonic_ms() >= deadline_ms:
                return low_watermark, False
            await asyncio.sleep(LOOK_S)
        return low_watermark, True

    async def producers(self, topic: str, partition: int) -> Sequence[tuple[int, int, int, int, int, int]]:
        """The producers whose state the partition keeps."""
        topic_id = self._topic_id(topic)
        await opened(self._engine, topic_id, partition)
        return self._engine.producers(topic_id, partition)
