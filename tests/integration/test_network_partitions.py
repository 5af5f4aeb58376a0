"""The network of a cluster is partitioned, or a broker is paused: Kafka's guarantees hold on both sides."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from klamm import Cluster, records
from klamm.embedded.parts import Broker
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.support.raw_connection import RawConnection
from tests.support.waiting import wait_until

SESSION = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
TWO_OF_THREE = {"min.insync.replicas": "2"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SESSION) as running:
        yield running


Write = Callable[[list[bytes]], None]


def writer(cluster: Cluster, topic: str, *, without: Broker | None = None) -> Write:
    """Produces with acks=all, and waits for each acknowledgement.

    `without` names an isolated broker, whose metadata still show it as the leader. The others show another one.
    """
    brokers = [broker.address for broker in cluster.brokers if without is None or broker.id != without.id]
    # A paused leader holds requests without an answer.
    settings = (
        {"enable.idempotence": True, "socket.timeout.ms": 3_000, "request.timeout.ms": 2_000} if without is None else {}
    )
    producer = Producer({"bootstrap.servers": ",".join(brokers), "acks": "all", "log_level": 0, **settings})

    def write(values: list[bytes]) -> None:
        refused: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)

        for value in values:
            producer.produce(topic, value, on_delivery=on_delivery)
        assert producer.flush(60) == 0
        assert refused == []

    return write


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def partition_of(cluster: Cluster, topic: str) -> Any:
    """The partition in the newest committed metadata."""
    image = cluster._image()
    topic_id = image.topic_id(topic)
    assert topic_id is not None
    return image.partition(topic_id, 0)


def leader(cluster: Cluster, topic: str) -> Broker:
    found = partition_of(cluster, topic).leader
    return next(broker for broker in cluster.brokers if broker.id == found)


def leader_according_to(broker: Broker, topic: str) -> int:
    """The leader that this broker returns to clients; -1: none."""
    host, _, port = broker.address.rpartition(":")
    with RawConnection(host, int(port)) as connection:
        [response] = connection.ask(ApiKey.METADATA, {"topics": [{"name": topic}]}, 9).topics
    return int(response.partitions[0].leader_id)


def wait_until_others_lead(cluster: Cluster, topic: str, old: Broker) -> None:
    """Until clients of each other broker receive another leader: the old one would answer no produce of theirs."""
    others = [broker for broker in cluster.brokers if broker.id != old.id]
    wait_until(
        lambda: all(leader_according_to(broker, topic) not in (old.id, -1) for broker in others),
        "the others elect a leader",
    )


def has_everyone(cluster: Cluster, topic: str) -> bool:
    return set(partition_of(cluster, topic).isr) == {broker.id for broker in cluster.brokers}


def send(broker: Broker, topic: str, value: bytes, *, acks: int = -1, timeout_ms: int = 500) -> ErrorCode:
    """Produce to this broker, whether or not it is the leader."""
    host, _, port = broker.address.rpartition(":")
    partition = {"index": 0, "records": records.encode([records.NewRecord(value)])}
    topics = [{"name": topic, "partition_data": [partition]}]
    with RawConnection(host, int(port)) as connection:
        asked = {"acks": acks, "timeout_ms": timeout_ms, "topic_data": topics}
        [response] = connection.ask(ApiKey.PRODUCE, asked, 9).responses
    return ErrorCode(response.partition_responses[0].error_code)


def test_an_isolated_leader_acknowledges_nothing_and_follows_when_the_network_heals(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=3, config=TWO_OF_THREE)
    write = writer(cluster, "t")
    write(numbers(0, 100))
    old = leader(cluster, "t")
    with cluster.partition_network(old):
        # A client reaches it, and it appends the record, but no follower fetches it.
        assert send(old, "t", b"lost") is ErrorCode.REQUEST_TIMED_OUT
        wait_until_others_lead(cluster, "t", old)
        writer(cluster, "t", without=old)(numbers(100, 100))
        assert values(cluster, "t") == numbers(0, 200)
    wait_until(lambda: has_everyone(cluster, "t"), "the old leader truncates and follows")
    logs = [cluster.data / f"node-{broker.id}" / "t-0" / f"{0:020}.log" for broker in cluster.brokers]
    wait_until(lambda: len({log.read_bytes() for log in logs}) == 1, "all replicas hold the same")
    assert values(cluster, "t") == numbers(0, 200)


def test_a_partition_may_cut_one_direction_only(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=3, config=TWO_OF_THREE)
    write = writer(cluster, "t")
    write(numbers(0, 10))
    deaf, others = leader(cluster, "t"), [one for one in cluster.brokers if one.id != leader(cluster, "t").id]
    # Packets from the followers are lost: the leader receives neither fetches nor responses of the controllers.
    with cluster.partition_network(others, one_way=True):
        assert send(deaf, "t", b"late") is ErrorCode.REQUEST_TIMED_OUT
        wait_until_others_lead(cluster, "t", deaf)
        writer(cluster, "t", without=deaf)(numbers(10, 10))
    wait_until(lambda: has_everyone(cluster, "t"))
    # A waiting fetch was answered, so the record may exist although its produce timed out, as with Kafka.
    assert [value for value in values(cluster, "t") if value != b"late"] == numbers(0, 20)


def test_without_a_majority_nothing_changes_until_the_network_heals(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=3, config=TWO_OF_THREE)
    write = writer(cluster, "t")
    write(numbers(0, 10))
    network = cluster.partition_network(*([broker] for broker in cluster.brokers))
    before = partition_of(cluster, "t").leader
    assert send(leader(cluster, "t"), "t", b"late") is ErrorCode.REQUEST_TIMED_OUT
    assert partition_of(cluster, "t").leader == before
    network.heal()
    network.heal()
    write(numbers(10, 10))
    wait_until(lambda: has_everyone(cluster, "t"))
    # The record may exist although its produce timed out, as with Kafka.
    assert [value for value in values(cluster, "t") if value != b"late"] == numbers(0, 20)


def test_an_isolated_controller_resigns_and_the_others_decide() -> None:
    with Cluster(brokers=1, controllers=3) as cluster:
        active = next(controller for controller in cluster.controllers if controller.is_active)
        with cluster.partition_network(active):
            wait_until(lambda: any(one.is_active for one in cluster.controllers if one.id != active.id))
            cluster.create_topic("t")
            wait_until(lambda: not active.is_active, "it has no majority")
        others = [controller for controller in cluster.controllers if controller.id != active.id]
        others[0].kill()  # the remaining two are a majority if the healed one follows
        cluster.create_topic("u")
        assert cluster.topics() == ["t", "u"]


def test_a_crash_during_a_partition_is_not_noticed(cluster: Cluster) -> None:
    """The others learn of it only when its session expires: connections are neither closed nor refused."""
    cluster.create_topic("t", replication_factor=3, config=TWO_OF_THREE)
    killed = leader(cluster, "t")
    network = cluster.partition_network(killed)
    killed.kill()
    wait_until(lambda: leader(cluster, "t").id not in (killed.id, -1))
    network.heal()
    killed.start()
    wait_until(lambda: has_everyone(cluster, "t"))


def test_wrong_nodes_are_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="needs the nodes of one side"):
        cluster.partition_network()
    with (
        Cluster(brokers=1, controllers=3) as other,
        pytest.raises(ValueError, match=r"no nodes of this cluster: \[4\]"),
    ):
        cluster.partition_network(other.controllers[-1])


# Pauses


def in_background(work: Callable[[], Any]) -> Any:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


def test_a_paused_broker_answers_every_request_once_it_resumes(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=1, assignments=[[3]])
    broker = next(broker for broker in cluster.brokers if broker.id == 3)
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as early:
        broker.pause()
        assert broker.is_paused
        broker.pause()
        early.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        # The system accepts the connection, as for a stopped process.
        late = in_background(lambda: send(broker, "t", b"v", timeout_ms=30_000))
        early.settimeout(0.3)
        with pytest.raises(TimeoutError):
            early.recv(1)
        assert not late.done()
        broker.resume()
        broker.resume()
        assert not broker.is_paused
        early.settimeout(60)
        assert early.recv(4)
        assert late.result(60) in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_paused_leader_is_fenced_and_rejoins_without_loss(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=3, config=TWO_OF_THREE)
    seen, consumed = list[bytes](), threading.Event()
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "socket.timeout.ms": 3_000, "log_level": 0}
    consumer = Consumer(settings | {"bootstrap.servers": cluster.bootstrap_servers})
    consumer.subscribe(["t"])

    def consume() -> None:
        while len(seen) < 300 and not consumed.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.append(message.value() or b"")

    thread = threading.Thread(target=consume)
    thread.start()
    write = writer(cluster, "t")
    write(numbers(0, 100))
    paused = leader(cluster, "t")
    paused.pause()
    wait_until(lambda: leader(cluster, "t").id not in (paused.id, -1), "its session ends")
    write(numbers(100, 100))
    assert paused.id not in partition_of(cluster, "t").isr
    paused.resume()
    wait_until(lambda: has_everyone(cluster, "t"), "it joins again")
    write(numbers(200, 100))
    try:
        wait_until(lambda: len(seen) >= 300, lambda: f"{len(seen)} records were consumed", bound_s=60)
    finally:
        consumed.set()
        thread.join()
        consumer.close()
    assert seen == numbers(0, 300)
    assert values(cluster, "t") == numbers(0, 300)


def test_a_paused_active_controller_is_replaced_and_follows() -> None:
    with Cluster(brokers=1, controllers=3) as cluster:
        active = next(controller for controller in cluster.controllers if controller.is_active)
        active.pause()
        wait_until(lambda: any(one.is_active for one in cluster.controllers if one.id != active.id))
        cluster.create_topic("t")
        active.resume()
        wait_until(lambda: not active.is_active)
        assert cluster.topics() == ["t"]


def test_a_paused_node_can_be_stopped_and_closed(cluster: Cluster) -> None:
    first, second, third = cluster.brokers
    for broker in (first, second):
        broker.pause()
    first.stop()
    assert not first.is_running
    assert not first.is_paused
    first.pause()  # there is nothing to pause
    assert not first.is_paused
    first.start()
    second.kill()
    cluster.partition_network(third)
