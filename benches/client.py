"""Requests of the cells themselves: topics, a first record, a first commit. The load generator sends the rest."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from klamm import records
from klamm.admin import groups as group_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client, check
from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.messages.partitions import (
    ALL_IN_SYNC_REPLICAS,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

PATIENCE_S: Final = 120.0
LOAD_PATIENCE_S: Final = 900.0
"""A coordinator loads its log before it accepts a commit; Apache Kafka takes minutes for 1 GB on a busy machine."""
POLL_S: Final = 0.001
# The timestamp of the load that follows: a much older record would make it roll a segment. Compacted topics need a key.
BATCH: Final = records.encode([(time.time_ns() // 1_000_000, b"key", b"x" * 100)])

_numbers = itertools.count()


def fresh_name(kind: str) -> str:
    """A name that has not been used yet."""
    return f"{kind}-{next(_numbers)}"


def create(address: str, names: Sequence[str], partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Create topics with one replica in one request. Raises ClientError."""
    with Client(address, PATIENCE_S) as client:
        topic_admin.create(client, names, partitions=partitions, replication_factor=1, configs=configs)


def create_when_ready(address: str, name: str, replicas: int = 1) -> None:
    """Create a topic once there are an active controller and brokers. Raises ClientError after two minutes."""
    assignment = {0: tuple(range(1, replicas + 1))}
    _until(lambda: create_assigned(address, name, assignment))


def create_assigned(
    address: str, name: str, assignment: Mapping[int, Sequence[int]], configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic whose partitions have these replicas, the leader first. Raises ClientError."""
    wanted = tuple(CreatableReplicaAssignment(partition, tuple(ids)) for partition, ids in assignment.items())
    pairs = tuple(CreatableTopicConfig(key, value) for key, value in (configs or {}).items())
    request = CreateTopicsRequest((CreatableTopic(name, -1, -1, wanted, pairs),), int(PATIENCE_S * 1000))
    with Client(address, PATIENCE_S) as client:
        [created] = client.any.ask(request, CreateTopicsResponse, topic_admin.CREATE_TOPICS_VERSION_MAX).topics
        check(created.error_code, f"topic {name}", created.error_message)


def delete(address: str, name: str) -> None:
    """Delete a topic. Raises ClientError."""
    with Client(address, PATIENCE_S) as client:
        topic_admin.delete(client, [name])


def connect(address: str) -> Connection:
    """A connection that has fetched the API versions. Raises ClientError."""
    host, _, port = address.rpartition(":")
    return Connection(host, int(port), PATIENCE_S)


def produce(connection: Connection, topic: str, partition: int = 0) -> None:
    """Produce one record of 100 bytes with acks=all. Raises ClientError."""
    wanted = TopicProduceData(topic, partition_data=(PartitionProduceData(partition, BATCH),))
    answer = connection.ask(ProduceRequest(ALL_IN_SYNC_REPLICAS, 30_000, (wanted,)), ProduceResponse, 9)
    check(answer.responses[0].partition_responses[0].error_code, f"{topic}-{partition}")


def until_answered(address: str) -> None:
    """Wait until ApiVersions is answered. Raises ClientError after two minutes."""
    _until(lambda: connect(address).close())


def until_acknowledged(address: str, topic: str, partitions: Sequence[int] = (0,)) -> None:
    """Wait until each partition has acknowledged a record. Raises ClientError after two minutes."""

    def ask() -> None:
        with connect(address) as connection:
            while left:
                produce(connection, topic, left[0])
                left.pop(0)

    left = list(partitions)
    _until(ask)


def until_committed(address: str, group: str, topic: str) -> None:
    """Wait until the group's coordinator has accepted a commit. Raises ClientError after a quarter of an hour."""

    def ask() -> None:
        with Client(address) as client:
            group_admin.commit(client, group, {(topic, 0): 1})

    _until(ask, LOAD_PATIENCE_S)


def _until(ask: Callable[[], None], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except ClientError:
            if time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)
