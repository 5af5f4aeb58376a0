"""Controllers and a broker as separate nodes in one process."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import klamm
from klamm.client.peer import Peer, Versions
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.embedded.cluster import Cluster
from klamm.embedded.parts import Controller
from klamm.node.controller.active_controller import ActiveController
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.raft.driver import RaftDriver
from tests.support.node_process import VERSIONS
from tests.support.waiting import wait_until

BOUND_S = 30


def active(cluster: Cluster) -> Controller:
    wait_until(lambda: any(one.is_active for one in cluster.controllers))
    return next(one for one in cluster.controllers if one.is_active)


def produce(cluster: Cluster, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(BOUND_S) == 0


def consume(cluster: Cluster, topic: str, count: int) -> list[str]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        found = consumer.consume(count, timeout=BOUND_S)
        return [(message.value() or b"").decode() for message in found]
    finally:
        consumer.close()


def announced_versions(bootstrap: str) -> dict[int, tuple[int, int]]:
    """The API versions that a client is shown."""
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), BOUND_S) as connection:
        connection.sendall(VERSIONS)
        answer = connection.makefile("rb")
        [size] = struct.unpack(">i", answer.read(4))
        body = answer.read(size)
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[10:])}


def test_clients_receive_no_version_that_an_older_active_controller_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks DescribeTopicPartitions, which brokers serve themselves, and UpdateFeatures, which they forward."""
    with klamm.Cluster(controllers=1) as cluster:
        newest = announced_versions(cluster.bootstrap_servers)
    on_opened = Peer.on_opened
    older = {"CreateTopics": (19, (2, 5)), "DescribeQuorum": (55, (0, 7))}

    def on_older_opened(self: Peer, versions: Versions) -> None:
        known = {**versions, **dict(older.values())}
        on_opened(self, {key: versions for key, versions in known.items() if key not in (57, 75)})

    monkeypatch.setattr(Peer, "on_opened", on_older_opened)
    with klamm.Cluster(controllers=1) as cluster:
        versions_now = announced_versions(cluster.bootstrap_servers)
    assert versions_now == {key: versions for key, versions in newest.items() if key != 57} | {19: (2, 5)}


def test_a_topic_created_by_a_separate_controller_exists_at_once() -> None:
    with klamm.Cluster(controllers=3) as cluster:
        names = [f"topic-{number:02}" for number in range(50)]
        heard = []
        for name in names:
            cluster.create_topic(name)
            heard.append(name in cluster.topics())
        assert heard == [True] * len(names)


def test_a_creation_is_retried_after_a_change_of_the_active_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt created the topic, and its response was lost with the controller."""
    ask = ActiveController.ask
    created, successor_leads = threading.Event(), threading.Event()

    async def ask_again(self: ActiveController, operation: Any, request: Any, *timeout_ms: int) -> Any:
        first = await ask(self, operation, request, *timeout_ms)
        if operation is not CREATE_TOPICS or created.is_set():
            return first
        created.set()
        await asyncio.to_thread(successor_leads.wait, BOUND_S)
        return await ask(self, operation, request, *timeout_ms)

    with klamm.Cluster(controllers=3) as cluster, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(ActiveController, "ask", ask_again)
        creating = pool.submit(cluster.create_topic, "twice")
        assert created.wait(BOUND_S)
        first = active(cluster)
        first.kill()
        active(cluster)
        successor_leads.set()
        with pytest.raises(KafkaError, match="The active controller changed during this request") as refused:
            creating.result(BOUND_S)
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        wait_until(lambda: cluster.topics() == ["twice"])
        with pytest.raises(KafkaError, match=r"already exists\.$"):
            cluster.create_topic("twice")


def test_a_broker_survives_a_stop_of_the_active_controller() -> None:
    with klamm.Cluster(controllers=3) as cluster:
        assert [one.id for one in cluster.controllers] == [2, 3, 4]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("a", 2, 1)], operation_timeout=BOUND_S)["a"].result(BOUND_S)
        produce(cluster, "a", "one", "two")
        assert sorted(consume(cluster, "a", 2)) == ["one", "two"]
        first = active(cluster)
        first.stop()
        # The broker forwards a client's request to the new active controller in an envelope.
        admin.create_topics([NewTopic("b", 1, 1)], operation_timeout=BOUND_S)["b"].result(BOUND_S)
        admin.create_partitions([NewPartitions("a", 3)], operation_timeout=BOUND_S)["a"].result(BOUND_S)
        second = active(cluster)
        assert second.id != first.id
        produce(cluster, "b", "three")
        assert {"a", "b"} <= set(cluster.topics())
        first.start()
        second.kill()
        cluster.create_topic("c")
        third = active(cluster)
        assert third.id != second.id
        assert [record.value for record in cluster.records("b")] == [b"three"]
        # Every controller has registered its endpoints and features (KIP-919).
        wait_until(lambda: cluster.registered_controllers() == [2, 3, 4])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("active_first", [True, False])
def test_the_last_node_stops_without_waiting(monkeypatch: pytest.MonkeyPatch, active_first: bool) -> None:
    """The last controller has no successor to wait for, and the broker no controller, so they stop at once."""
    monkeypatch.setattr("klamm.embedded.cluster.STOP_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(RaftDriver.close, "__defaults__", (3_600_000,))
    with klamm.Cluster(controllers=3) as cluster:
        left = list(cluster.controllers)
        while left:
            if len(left) > 1:
                cluster.create_topic(f"topic-{len(left)}")  # the epoch has begun, and two controllers are equal
            left.sort(key=lambda one: one.is_active, reverse=active_first)
            left.pop(0).stop()
        assert not any(one.is_running for one in cluster.controllers)


def test_without_a_majority_nothing_changes_and_nothing_is_lost(tmp_path: Path) -> None:
    with klamm.Cluster(tmp_path / "data", controllers=3) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", "one")
        followers = [one for one in cluster.controllers if not one.is_active]
        for one in followers:
            one.kill()
        # The broker keeps serving what needs no controller.
        produce(cluster, "a", "two")
        followers[0].start()
        cluster.create_topic("b")
        identity = cluster.cluster_id
    with klamm.Cluster(tmp_path / "data", controllers=3) as cluster:
        assert cluster.cluster_id == identity
        assert {"a", "b"} <= set(cluster.topics())
        assert [record.value for record in cluster.records("a")] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ({"controllers": 0}, "a broker and a controller at least"),
        ({"brokers": 0}, "a broker and a controller at least"),
    ],
)
def test_invalid_clusters_are_rejected(counts: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        klamm.Cluster(brokers=counts.get("brokers", 1), controllers=counts.get("controllers"))
