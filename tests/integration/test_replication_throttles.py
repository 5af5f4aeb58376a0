"""Replication to replicas that are out of sync is throttled at the leader and at the follower (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from klamm import Cluster
from klamm.admin.client import Client
from klamm.admin.configs import alter
from klamm.admin.reassignments import ongoing, reassign
from klamm.admin.topics import topics
from klamm.protocol.topic_partition import TopicPartition
from tests.support.waiting import wait_until

RECORDS = 24
RECORD_BYTES = 500_000
SIDES = {"leader": "kafka.server:type=LeaderReplication", "follower": "kafka.server:type=FollowerReplication"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        yield running


def produce(cluster: Cluster, count: int, size: int = RECORD_BYTES) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0})
    for _ in range(count):
        producer.produce("t", bytes(size), partition=0)
        assert producer.flush(60) == 0


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_replica_joins_slowly_without_delaying_others(cluster: Cluster, side: str) -> None:
    cluster.create_topic("t", replication_factor=1)
    produce(cluster, RECORDS)
    place = TopicPartition("t", 0)
    with Client(cluster.bootstrap_servers) as client:
        ids = [broker.id for broker in cluster.brokers]
        (leader,) = topics(client, ["t"])[0].partitions[0].replicas
        for broker in ids:
            alter(client, "broker", str(broker), {f"{side}.replication.throttled.rate": "1"})
        alter(client, "topic", "t", {f"{side}.replication.throttled.replicas": "*"})
        other = next(broker for broker in ids if broker != leader)
        reassign(client, {place: (leader, other)})
        throttled = next(broker for broker in cluster.brokers if broker.id == (leader if side == "leader" else other))

        def counted() -> int:
            return throttled.counters()[f"{SIDES[side]},name=byte-rate"]

        wait_until(lambda: counted() > 0, bound_s=60)
        # The leader acknowledges while the new replica waits for its quota.
        produce(cluster, 3, 1000)
        assert [one.partition for one in ongoing(client)] == [0]
        assert counted() < RECORDS * RECORD_BYTES
        for broker in ids:
            alter(client, "broker", str(broker), {f"{side}.replication.throttled.rate": None})
        wait_until(lambda: not ongoing(client), bound_s=120)
        # In-sync replicas are not throttled.
        for broker in ids:
            alter(client, "broker", str(broker), {f"{side}.replication.throttled.rate": "1"})
        produce(cluster, 3)
        assert set(topics(client, ["t"])[0].partitions[0].isr) == set(ids)
