"""The log directories of brokers, what is in them, and moves between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Client, broker_error, check
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
)
from klamm.protocol.topic_partition import TopicPartition

DESCRIBE_VERSION_MAX: Final = 5
ALTER_VERSION_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class PlacedLog:
    """A log in a directory; sizes in bytes, the lag in offsets."""

    broker: int
    path: str
    topic: str
    partition: int
    size: int
    lag: int
    is_future: bool
    """It is a copy that is to replace the log in another directory."""


def describe(client: Client, brokers: Iterable[int] | None = None) -> dict[int, tuple[LogDir, ...]]:
    """The log directories of some brokers, or of all. Raises ClientError."""
    ids = sorted(broker.node_id for broker in client.metadata().brokers) if brokers is None else brokers
    found = {}
    for broker in ids:
        answer = client.broker(broker).ask(DescribeLogDirsRequest(), DescribeLogDirsResponse, DESCRIBE_VERSION_MAX)
        check(answer.error_code, f"log directories of broker {broker}")
        found[broker] = answer.results
    return found


def logs(described: Mapping[int, Iterable[LogDir]], topics: Iterable[str] | None = None) -> list[PlacedLog]:
    """The logs in these directories, of some topics or of all, sorted by topic and partition."""
    wanted = None if topics is None else set(topics)
    found = [
        PlacedLog(
            broker,
            place.log_dir,
            topic.name,
            one.partition_index,
            one.partition_size,
            one.offset_lag,
            one.is_future_key,
        )
        for broker, places in described.items()
        for place in places
        for topic in place.topics
        if wanted is None or topic.name in wanted
        for one in topic.partitions
    ]
    return sorted(found, key=lambda one: (one.topic, one.partition, one.broker, one.is_future))


def move(client: Client, broker: int, path: str, places: Iterable[TopicPartition]) -> None:
    """Begin to move a broker's replicas into one of its log directories.

    Raises ClientError, which names every replica that cannot be moved; the others are.
    """
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    topics = tuple(AlterReplicaLogDirTopic(name, tuple(indexes)) for name, indexes in by_topic.items())
    request = AlterReplicaLogDirsRequest((AlterReplicaLogDir(path, topics),))
    answer = client.broker(broker).ask(request, AlterReplicaLogDirsResponse, ALTER_VERSION_MAX)
    refused: list[str] = []
    code = ErrorCode.NONE
    for topic in answer.results:
        for one in topic.partitions:
            if one.error_code is not ErrorCode.NONE:
                code = one.error_code
                refused.append(f"{topic.topic_name}-{one.partition_index} on broker {broker}: {code.name}")
    if refused:
        raise broker_error(code, "\n".join(refused))
