"""Groups of librdkafka's consumers: assignors, joining and leaving members, static members, admin operations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

Name = Callable[[str], str]
PATIENCE_S = 30


@pytest.fixture
def topic(bootstrap: str, admin: AdminClient, name: Name) -> str:
    """Four partitions of one record each."""
    made = name("topic")
    admin.create_topics([NewTopic(made, 4, 1)])[made].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(4):
        producer.produce(made, value=b"%d" % partition, partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    return made


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    fixed = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(
        fixed | {"enable.auto.commit": False, "session.timeout.ms": 30_000, "heartbeat.interval.ms": 300} | settings
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Poll every consumer until the condition holds; the records are dropped."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.1)


def owned(consumer: Consumer) -> set[int]:
    return {partition.partition for partition in consumer.assignment()}


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_and_take_over(bootstrap: str, topic: str, name: Name, assignor: str) -> None:
    group = name("group")
    settings = {"partition.assignment.strategy": assignor}
    with member(bootstrap, group, topic, **settings) as first:
        poll_until(lambda: owned(first) == {0, 1, 2, 3}, first)
        with member(bootstrap, group, topic, **settings) as second:
            poll_until(lambda: len(owned(first)) == 2 and len(owned(second)) == 2, first, second)
            assert owned(first) | owned(second) == {0, 1, 2, 3}
        poll_until(lambda: owned(first) == {0, 1, 2, 3}, first)


def test_a_static_member_that_restarts_moves_nothing(
    bootstrap: str, topic: str, admin: AdminClient, name: Name
) -> None:
    group = name("group")
    assigned: list[set[int]] = []
    with member(bootstrap, group, topic, **{"group.instance.id": "stays"}) as stays:
        stays.subscribe([topic], on_assign=lambda _, parts: assigned.append({part.partition for part in parts}))
        with member(bootstrap, group, topic, **{"group.instance.id": "restarts"}) as restarts:
            poll_until(lambda: len(owned(stays)) == 2 and len(owned(restarts)) == 2, stays, restarts)
            had = owned(restarts)
        before = len(assigned)
        with member(bootstrap, group, topic, **{"group.instance.id": "restarts"}) as restarted:
            poll_until(lambda: owned(restarted) == had, stays, restarted)
            described = admin.describe_consumer_groups([group])[group].result()
        assert {one.group_instance_id for one in described.members} == {"stays", "restarts"}
        assert len(assigned) == before, "the other member's partitions were never taken away"


def test_a_second_of_the_same_instance_fences_the_first(bootstrap: str, topic: str, name: Name) -> None:
    group, same = name("group"), {"group.instance.id": "same"}
    with member(bootstrap, group, topic, **same) as first:
        poll_until(lambda: len(owned(first)) == 4, first)
        with member(bootstrap, group, topic, **same) as second:
            poll_until(lambda: len(owned(second)) == 4, second)
            with pytest.raises(KafkaException) as caught:
                first.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.FENCED_INSTANCE_ID


def refusal(future: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result()
    code: int = caught.value.args[0].code()
    return code


def test_admins_and_groups_in_use(bootstrap: str, topic: str, admin: AdminClient, name: Name) -> None:
    group, moved = name("group"), [TopicPartition(topic, 0, 1)]
    with member(bootstrap, group, topic) as consumer:
        poll_until(lambda: len(owned(consumer)) == 4, consumer)
        assert refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
        asked = ConsumerGroupTopicPartitions(group, moved)
        [refused] = admin.alter_consumer_group_offsets([asked])[group].result().topic_partitions
        assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    described = admin.describe_consumer_groups([group])[group].result()
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    admin.alter_consumer_group_offsets([asked])[group].result()
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert [(one.partition, one.offset) for one in found.topic_partitions] == [(0, 1)]
    admin.delete_consumer_groups([group])[group].result()
    assert refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND
