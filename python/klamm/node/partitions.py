"""The engine's partitions in the shapes that handlers and the group coordinator ask for."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klamm._engine import Engine, Image
from klamm.broker.handlers.groups import Endpoint
from klamm.broker.handlers.log_dirs import LogDirInfo
from klamm.broker.handlers.offsets import TopicInfo
from klamm.coordinator.driver import LoadedRecord
from klamm.coordinator.records import LogRecord
from klamm.protocol.errors import ErrorCode, KafkaError

LOAD_BYTES: Final = 5 << 20
NO_LEADER: Final = -1


class LocalPartitions:
    """Partitions by topic name, for `RecordHandlers`."""

    def __init__(self, engine: Engine, image: Callable[[], Image]) -> None:
        self._engine = engine
        self._image = image

    def _topic_id(self, topic: str) -> bytes:
        topic_id = self._image().topic_id(topic)
        if topic_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_id

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Move the log start; the new one."""
        return self._engine.delete_records(self._topic_id(topic), partition, offset)

    def producers(self, topic: str, partition: int) -> Sequence[tuple[int, int, int, int, int, int]]:
        """Producers that the partition remembers."""
        return self._engine.producers(self._topic_id(topic), partition)


class ClusterView:
    """The committed image as handlers look at it: topics, and leaders as a listener's clients reach them."""

    def __init__(self, image: Callable[[], Image], create: Callable[[str], None]) -> None:
        """`create` asks the controller for an internal topic and does not wait."""
        self._image = image
        self._create = create

    def exists(self, topic: str) -> bool:
        """Whether the topic is there."""
        return self._image().topic_id(topic) is not None

    def create(self, topic: str) -> None:
        """Ask for an internal topic."""
        self._create(topic)

    def leader(self, topic: str, partition: int, listener: str) -> Endpoint | None:
        """The leader of a partition, when it is alive and has that listener."""
        image = self._image()
        topic_id = image.topic_id(topic)
        found = None if topic_id is None else image.partition(topic_id, partition)
        broker = None if found is None or found.leader == NO_LEADER else image.broker(found.leader)
        if broker is None or broker.fenced:
            return None
        for endpoint in broker.endpoints:
            if endpoint.name == listener:
                return Endpoint(broker.id, endpoint.host, endpoint.port)
        return None

    def by_name(self, name: str) -> TopicInfo | None:
        """The topic of this name."""
        topic_id = self._image().topic_id(name)
        return None if topic_id is None else self._info(name, topic_id)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of this id."""
        name = self._image().topic_name(topic_id)
        return None if name is None else self._info(name, topic_id)

    def _info(self, name: str, topic_id: bytes) -> TopicInfo:
        return TopicInfo(name, topic_id, self._image().topic_partition_count(topic_id))


class EngineGroupLog:
    """The log of `__consumer_offsets`: appends are answered through the engine's events."""

    def __init__(self, engine: Engine, topic_id: Callable[[], bytes | None]) -> None:
        self._engine = engine
        self._topic_id = topic_id
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
            self._engine.append(self._topic(), partition, records, now_ms, token)
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

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        """All records of a partition, from its start to its end."""
        topic_id, offset = self._topic(), 0
        while True:
            following, rows = self._engine.read_records(topic_id, partition, offset, LOAD_BYTES)
            for at, key, value, producer_id, is_control in rows:
                yield LoadedRecord(at, key or b"", value, producer_id, is_control)
            if following == offset:
                return
            offset = following


def describe_log_dirs(engine: Engine) -> list[LogDirInfo]:
    """The log directories with the open partitions in them, and their volumes' sizes."""
    found = []
    for path, _, failure, sizes in engine.log_dirs():
        if failure is not None:
            found.append(LogDirInfo(str(path), ErrorCode.KAFKA_STORAGE_ERROR, ()))
            continue
        volume = shutil.disk_usage(path)
        replicas = [(topic, partition, size, 0, False) for topic, partition, size in sizes]
        found.append(LogDirInfo(str(path), ErrorCode.NONE, replicas, volume.total, volume.free))
    return found
