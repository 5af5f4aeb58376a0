"""Damaged batches are replaced by those of another in-sync replica, whatever finds the damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from klamm import Cluster
from klamm.admin.client import Client
from klamm.admin.topics import create, topics
from klamm.embedded.parts import Broker
from tests.support.broker_processes import BrokerProcess, created
from tests.support.node_process import METADATA
from tests.support.waiting import wait_until

RECORDS = 60
REPAIRED = "are replaced by those of broker"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, flush=True) as running:
        yield running


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce("t", f"{number}".ljust(3000, ".").encode(), partition=0)
        assert producer.flush(60) == 0


def values(cluster: Cluster) -> list[int]:
    """The values that consumers read; after an error for damage another consumer continues."""
    found: list[int] = []
    while len(found) < RECORDS:
        read_on(cluster, found)
    return found


def read_on(cluster: Cluster, found: list[int]) -> None:
    """Read to the end of the log or to damage."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer(config | {"enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, len(found))])
    try:
        while len(found) < RECORDS:
            message = consumer.poll(60)
            assert message is not None, found
            if message.error() is not None:
                return
            value = message.value()
            assert value is not None
            found.append(int(value.rstrip(b".")))
    finally:
        consumer.close()


def log_of(cluster: Cluster, broker: Broker) -> Path:
    """The only segment of a broker's replica."""
    [path] = cluster.data.glob(f"*{broker.id}/**/t-0/*.log")
    return path


def flip(path: Path, position: int) -> bytes:
    """Damage a file; returns its previous content."""
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[position] ^= 0x10
    path.write_bytes(damaged)
    return whole


def isr(client: Client) -> set[int]:
    return set(topics(client, ["t"])[0].partitions[0].isr)


def leader(client: Client) -> int:
    return topics(client, ["t"])[0].partitions[0].leader


def repairs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if REPAIRED in record.getMessage()]


def test_damage_that_a_fetch_finds(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create_topic("t", replication_factor=3)
    produce(cluster.bootstrap_servers)
    with Client(cluster.bootstrap_servers) as client:
        first = leader(client)
        broker = next(each for each in cluster.brokers if each.id == first)
        broker.stop()
        path = log_of(cluster, broker)
        whole = flip(path, len(path.read_bytes()) // 2)
        broker.start()
    with Client(cluster.bootstrap_servers) as client:
        wait_until(lambda: len(isr(client)) == 3, bound_s=60)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result()
        wait_until(lambda: leader(client) == first, bound_s=60)
    assert values(cluster) == list(range(RECORDS))
    assert path.read_bytes()[: len(whole)] == whole
    # Another thread logs the line after the repair.
    wait_until(lambda: repairs(caplog))
    assert len(repairs(caplog)) == 1


def test_damage_that_a_start_finds(tmp_path: Path) -> None:
    nodes = [BrokerProcess(files) for files in created(tmp_path / "cluster", 3, {})]
    try:
        for node in nodes:
            node.launch()
        wait_until(lambda: all(node.answers(METADATA) for node in nodes), bound_s=60)
        servers = ",".join(node.bootstrap for node in nodes)
        with Client(servers) as client:
            create(client, ["t"], partitions=1, replication_factor=3)
            produce(servers)
            wait_until(lambda: len(isr(client)) == 3, bound_s=60)
            led_by = leader(client)
        follower = next(node for number, node in enumerate(nodes, 1) if number != led_by)
        [path] = follower.data.glob("**/t-0/*.log")
        follower.kill()
        # A start does not read what is below the recovery point.
        for checkpoint in follower.data.glob("**/recovery-point-offset-checkpoint"):
            checkpoint.unlink()
        size = len(path.read_bytes().rstrip(b"\0"))
        whole = flip(path, size // 2)
        follower.launch()
        wait_until(lambda: path.read_bytes()[:size] == whole[:size], follower.log, bound_s=60)
        wait_until(lambda: REPAIRED in follower.log())
        assert follower.log().count(REPAIRED) == 1
    finally:
        for node in nodes:
            node.kill()
