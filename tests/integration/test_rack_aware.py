"""Consumers read from the replica in their rack (KIP-392)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from klamm import Cluster
from klamm.config.node_config import NodeConfigError
from klamm.embedded.parts import Broker
from tests.support.waiting import wait_until

SELECTOR = "replica.selector.class"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = ("a", "b", "c")
CONFIG = {"replica.lag.time.max.ms": "2000"}


@contextlib.contextmanager
def consumer(cluster: Cluster, rack: str) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "client.rack": rack,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    reading = Consumer(settings)
    reading.assign([TopicPartition("t", 0, 0)])
    try:
        yield reading
    finally:
        reading.close()


def write(cluster: Cluster, values: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce("t", str(value))
    assert producer.flush(30) == 0


def read(reading: Consumer, values: range) -> None:
    for value in values:
        message = None
        while message is None:
            message = reading.poll(30)
        assert message.error() is None, message.error()
        assert message.value() == str(value).encode()


def fetches_of(broker: Broker) -> int:
    """The fetches of librdkafka, whose version is older than the followers'."""
    counters = broker.counters().items()
    requests = [(name, count) for name, count in counters if "RequestsPerSec,request=Fetch," in name]
    return sum(count for name, count in requests if not name.endswith("version=18"))


def brokers_by_role(cluster: Cluster) -> tuple[Broker, list[Broker]]:
    """The leader and the followers of the partition."""
    image = cluster._image()
    topic_id = image.topic_id("t")
    assert topic_id is not None
    partition = image.partition(topic_id, 0)
    assert partition is not None
    leader = next(broker for broker in cluster.brokers if broker.id == partition.leader)
    return leader, [broker for broker in cluster.brokers if broker.id != leader.id]


def test_a_consumer_reads_from_the_follower_in_its_rack_or_else_from_the_leader() -> None:
    with Cluster(brokers=3, controllers=1, racks=RACKS, config=CONFIG | {SELECTOR: RACK_AWARE}) as cluster:
        cluster.create_topic("t", replication_factor=3)
        write(cluster, range(100))
        leader, (follower, other) = brokers_by_role(cluster)
        with consumer(cluster, RACKS[follower.id - 1]) as reading:
            read(reading, range(100))
            assert fetches_of(follower) > 0
            assert fetches_of(other) == 0
            at_leader = fetches_of(leader)
            write(cluster, range(100, 200))
            read(reading, range(100, 200))
            assert fetches_of(leader) == at_leader
            follower.kill()
            write(cluster, range(200, 300))
            read(reading, range(200, 300))


def test_without_a_selector_leaders_serve_and_followers_may_be_asked() -> None:
    with Cluster(brokers=2, controllers=1, racks=("a", "b"), config=CONFIG) as cluster:
        cluster.create_topic("t", replication_factor=2)
        write(cluster, range(10))
        _, [follower] = brokers_by_role(cluster)
        with consumer(cluster, RACKS[follower.id - 1]) as reading:
            read(reading, range(10))
        assert fetches_of(follower) == 0


def test_a_follower_serves_committed_records_before_the_next_write() -> None:
    """The follower learns the high watermark without waiting for more records (KIP-1166)."""
    with Cluster(brokers=2, controllers=1, racks=("a", "b"), config={SELECTOR: RACK_AWARE}) as cluster:
        cluster.create_topic("t", replication_factor=2)
        _, [follower] = brokers_by_role(cluster)
        with consumer(cluster, RACKS[follower.id - 1]) as reading:
            for value in range(20):
                write(cluster, range(value, value + 1))
                read(reading, range(value, value + 1))
            wait_until(lambda: fetches_of(follower) > 0)


def test_invalid_racks_and_selectors_are_rejected() -> None:
    with pytest.raises(ValueError, match="each of the 3 brokers needs a rack"):
        Cluster(brokers=3, racks=("a",))
    with pytest.raises(
        NodeConfigError, match=r"replica\.selector\.class=com\.example\.Nearest.*RackAwareReplicaSelector"
    ):
        Cluster(config={SELECTOR: "com.example.Nearest"})
