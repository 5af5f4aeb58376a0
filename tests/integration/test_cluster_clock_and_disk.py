"""A cluster's clock is advanced, or a node's disk is slowed down: only what depends on them is affected."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Message, Producer
from confluent_kafka.admin import AdminClient

from klamm import Cluster
from klamm.protocol.errors import ErrorCode
from tests.integration.test_network_partitions import (
    TWO_OF_THREE,
    has_everyone,
    leader,
    numbers,
    partition_of,
    send,
    values,
    writer,
)
from tests.support.waiting import wait_until

# Longer than any test waits.
LONG_SESSION = {"broker.session.timeout.ms": "50000"}


@pytest.fixture
def durable() -> Iterator[Cluster]:
    """Brokers that flush before they acknowledge."""
    config = {"klamm.flush.before.ack": "all", **LONG_SESSION}
    with Cluster(brokers=3, controllers=1, config=config) as running:
        yield running


def test_acks_of_all_wait_for_the_disk_of_a_follower(durable: Cluster) -> None:
    durable.create_topic("t", replication_factor=3, config=TWO_OF_THREE)
    write = writer(durable, "t")
    write(numbers(0, 10))
    leads = leader(durable, "t")
    slow = next(broker for broker in durable.brokers if broker.id != leads.id)
    slow.slow_disk(3600)
    assert send(leads, "t", b"10", acks=1) is ErrorCode.NONE
    assert send(leads, "t", b"11") is ErrorCode.REQUEST_TIMED_OUT
    slow.slow_disk(0)
    write([b"12"])
    assert values(durable, "t") == numbers(0, 13)


def test_a_leader_acknowledges_when_its_disk_has_flushed(durable: Cluster) -> None:
    durable.create_topic("t")
    leads = leader(durable, "t")
    leads.slow_disk(0.3)
    began = time.monotonic()
    assert send(leads, "t", b"v", timeout_ms=30_000) is ErrorCode.NONE
    assert time.monotonic() - began >= 0.3
    with pytest.raises(ValueError, match="negative"):
        leads.slow_disk(-1)


def test_a_stalled_follower_leaves_the_isr_after_its_time(durable: Cluster) -> None:
    durable.create_topic("t", replication_factor=3, config=TWO_OF_THREE)
    write = writer(durable, "t")
    write(numbers(0, 10))
    leads = leader(durable, "t")
    slow = next(broker for broker in durable.brokers if broker.id != leads.id)
    slow.slow_disk(3600)
    assert send(leads, "t", b"10") is ErrorCode.REQUEST_TIMED_OUT
    assert has_everyone(durable, "t")
    durable.clock.advance(31)  # replica.lag.time.max.ms is 30 s
    wait_until(lambda: slow.id not in partition_of(durable, "t").isr)
    assert leader(durable, "t").id == leads.id
    assert values(durable, "t") == numbers(0, 11)
    slow.slow_disk(0)
    wait_until(lambda: has_everyone(durable, "t"))


def test_only_a_paused_broker_is_fenced_after_its_session() -> None:
    with Cluster(brokers=3, controllers=1, config=LONG_SESSION) as cluster:
        cluster.create_topic("t", 3, replication_factor=3, config=TWO_OF_THREE)
        wait_until(lambda: has_everyone(cluster, "t"))
        paused = leader(cluster, "t")
        paused.pause()
        cluster.clock.advance(45)
        assert leader(cluster, "t").id == paused.id
        cluster.clock.advance(15)
        wait_until(lambda: leader(cluster, "t").id not in (paused.id, -1))
        image = cluster._image()
        fenced = {broker.id: found.fenced for broker in cluster.brokers if (found := image.broker(broker.id))}
        assert fenced == {broker.id: broker.id == paused.id for broker in cluster.brokers}
        paused.resume()
        wait_until(lambda: has_everyone(cluster, "t"))


def test_records_expire_and_are_stamped_by_the_clusters_clock() -> None:
    with Cluster() as cluster:
        day_s = 24 * 3600
        cluster.create_topic("old", config={"retention.ms": str(3600 * 1000)})
        cluster.create_topic("kept")
        cluster.create_topic("new", config={"message.timestamp.type": "LogAppendTime"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for topic in ("old", "kept"):
            producer.produce(topic, b"v")
        assert producer.flush(60) == 0
        cluster.clock.advance(day_s)
        assert cluster.clock.advanced_s == day_s
        wait_until(lambda: cluster.records("old") == [])
        assert len(cluster.records("kept")) == 1
        producer.produce("new", b"v")
        assert producer.flush(60) == 0
        kind, timestamp_ms = consumed(cluster, "new").timestamp()
        assert kind == 2
        assert timestamp_ms / 1000 == pytest.approx(time.time() + day_s, abs=120)
        with pytest.raises(ValueError, match="can be advanced by 0 to"):
            cluster.clock.advance(-1)


def consumed(cluster: Cluster, topic: str) -> Message:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    assert message.error() is None
    consumer.close()
    return message


def test_a_silent_member_is_removed_after_its_session() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

        def state() -> ConsumerGroupState:
            found: ConsumerGroupState = admin.describe_consumer_groups(["g"])["g"].result(60).state
            return found

        # Its next heartbeat is due only after the end of this test.
        silent = {"session.timeout.ms": 100_000, "heartbeat.interval.ms": 95_000}
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"} | silent)
        consumer.subscribe(["t"])
        wait_until(lambda: consumer.poll(0.1) is None and state() is ConsumerGroupState.STABLE)
        cluster.clock.advance(59)
        assert state() is ConsumerGroupState.STABLE
        cluster.clock.advance(59)
        wait_until(lambda: state() is ConsumerGroupState.EMPTY)
        consumer.close()
