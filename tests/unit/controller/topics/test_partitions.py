"""Adding partitions to a topic (CreatePartitions)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.controller.cluster import Cluster

from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import PartitionRecord
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.create(CreatableTopic("foo", 2, 2))
    return cluster


def topic(name: str, count: int, *assignments: Sequence[int]) -> CreatePartitionsTopic:
    given = tuple(CreatePartitionsAssignment(tuple(brokers)) for brokers in assignments)
    return CreatePartitionsTopic(name, count, given or None)


def grow(
    cluster: Cluster, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics, validate_only=validate_only)
    return list(cluster.ask(request).results)


def test_new_partitions_have_as_many_replicas_as_the_old(cluster: Cluster) -> None:
    start = len(cluster.log)
    assert grow(cluster, topic("foo", 5)) == [CreatePartitionsTopicResult("foo")]
    records = cluster.records(start)
    assert [record.partition_id for record in records if isinstance(record, PartitionRecord)] == [2, 3, 4]
    topic_id = cluster.image.topic_id("foo")
    assert topic_id is not None
    assert [len(partition.replicas) for partition in cluster.image.partitions(topic_id)] == [2] * 5


def test_new_partitions_with_manual_assignments(cluster: Cluster) -> None:
    cluster.register(4)
    grow(cluster, topic("foo", 4, [3, 1], [4, 2]))
    topic_id = cluster.image.topic_id("foo")
    assert topic_id is not None
    third, fourth = cluster.image.partitions(topic_id)[2:]
    assert (third.replicas, third.isr, third.leader) == ([3, 1], [3, 1], 3)
    assert (fourth.replicas, fourth.isr, fourth.leader) == ([4, 2], [2], 2)


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        (topic("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (topic("foo", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (topic("foo", 1), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (topic("foo", 0), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (topic("foo", -(2**31)), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (topic("foo", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "at most"),
        (topic("foo", 4, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 are assigned"),
        (topic("foo", 3, [1, 2], [2, 3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 are assigned"),
        (topic("foo", 3, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "those before it to 2"),
        (topic("foo", 3, [1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not registered"),
        (topic("foo", 3, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
    ],
)
def test_what_is_refused(cluster: Cluster, wanted: CreatePartitionsTopic, code: ErrorCode, why: str | None) -> None:
    end = len(cluster.log)
    (result,) = grow(cluster, wanted)
    assert (result.name, result.error_code) == (wanted.name, code)
    assert why is None or why in (result.error_message or "")
    assert len(cluster.log) == end


def test_no_broker_to_place_on(cluster: Cluster) -> None:
    for broker_id in (1, 2):
        cluster.heartbeat(broker_id, want_fence=True)
    assert grow(cluster, topic("foo", 3, [1, 2]))[0].error_code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.heartbeat(3, want_fence=True)
    assert grow(cluster, topic("foo", 3))[0].error_code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_one_wrong_topic_does_not_stop_the_others(cluster: Cluster) -> None:
    cluster.create(CreatableTopic("bar", 1, 1))
    results = grow(cluster, topic("nope", 9), topic("bar", 2), topic("foo", 3), topic("foo", 4))
    assert [(result.name, result.error_code) for result in results] == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bar", ErrorCode.NONE),
        ("foo", ErrorCode.INVALID_REQUEST),
    ]
    assert cluster.image.partition_count == 4


def test_validate_only(cluster: Cluster) -> None:
    assert grow(cluster, topic("foo", 9), validate_only=True)[0].error_code is ErrorCode.NONE
    assert cluster.image.partition_count == 2
