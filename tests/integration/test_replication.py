"""Three brokers: partitions are replicated, survive the loss of a broker, and are fully replicated after it returns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from klamm import Cluster
from klamm.admin import configs
from klamm.admin.client import Client
from klamm.controller.nodes.crash_detection import ProbeOutcome
from klamm.embedded.parts import Broker
from klamm.node.controller.broker_probes import BrokerProbes
from klamm.node.node import Node
from tests.support.waiting import wait_until

RF = 3


@pytest.fixture(params=["all", "none"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes of both roles, with and without a flush before they acknowledge."""
    config = {"klamm.flush.before.ack": request.param, "offsets.topic.num.partitions": "3"}
    with Cluster(brokers=3, config=config) as running:
        yield running


def produce(cluster: Cluster, topic: str, values: list[bytes], **settings: Any) -> None:
    """Produce with acks=all and wait for each acknowledgement."""
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 1, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert refused == []


def numbers(first: int, count: int) -> list[bytes]:
    """Distinct values."""
    return [b"%d" % number for number in range(first, first + count)]


def isr(cluster: Cluster, topic: str, partition: int = 0) -> set[int]:
    """The ISR in the committed metadata."""
    return set(described(cluster, topic, partition).isr)


def leader(cluster: Cluster, topic: str, partition: int = 0) -> Broker:
    """The broker that leads."""
    found = described(cluster, topic, partition).leader
    return next(broker for broker in cluster.brokers if broker.id == found)


def leader_at(broker: Broker, topic: str) -> int:
    """The leader of partition 0 in the broker's metadata: brokers learn of an election at different times."""
    found: int = (
        AdminClient({"bootstrap.servers": broker.address}).list_topics(topic, 30).topics[topic].partitions[0].leader
    )
    return found


def described(cluster: Cluster, topic: str, partition: int) -> Any:
    image = cluster._image()
    topic_id = image.topic_id(topic)
    assert topic_id is not None
    return image.partition(topic_id, partition)


def coordinator(cluster: Cluster, group: str) -> Broker:
    async def find() -> Node | None:
        return cluster._reader._coordinator_of(group)

    node = cluster.run(find())
    assert node is not None
    node_id = node.config.node_id
    return next(broker for broker in cluster.brokers if broker.id == node_id)


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    """The values below the leaders' high watermarks."""
    return [record.value for record in cluster.records(topic)]


def test_records_are_on_every_replica_before_they_are_acknowledged(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=RF)
    produce(cluster, "t", numbers(0, 1_000))
    assert values(cluster, "t") == numbers(0, 1_000)
    assert isr(cluster, "t") == {1, 2, 3}


def test_a_killed_leader_loses_no_record_and_returns_to_the_isr(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=RF, config={"min.insync.replicas": "2"})
    produce(cluster, "t", numbers(0, 1_000))
    killed = leader(cluster, "t")
    killed.kill()
    produce(cluster, "t", numbers(1_000, 1_000))
    assert leader(cluster, "t").id != killed.id
    assert values(cluster, "t") == numbers(0, 2_000)
    killed.start()
    wait_until(lambda: isr(cluster, "t") == {1, 2, 3})
    # The restarted broker has all records: it becomes the last possible leader.
    for other in cluster.brokers:
        if other.id != killed.id and leader(cluster, "t").id != killed.id:
            leader(cluster, "t").stop()
            wait_until(lambda: leader(cluster, "t").is_running)
            break
    assert values(cluster, "t") == numbers(0, 2_000)


def test_each_broker_stops_and_returns_in_turn_while_records_are_written(cluster: Cluster) -> None:
    cluster.create_topic("t", 3, replication_factor=RF, config={"min.insync.replicas": "2"})
    written = 0
    for broker in cluster.brokers:
        broker.stop()
        produce(cluster, "t", numbers(written, 500))
        written += 500
        broker.start()
        wait_until(lambda: all(isr(cluster, "t", index) == {1, 2, 3} for index in range(3)))
    assert sorted(values(cluster, "t"), key=lambda value: int(value or b"")) == numbers(0, written)


def test_a_group_keeps_its_offsets_when_its_coordinator_is_killed(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=RF)
    produce(cluster, "t", numbers(0, 10))
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    for _ in range(4):
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    coordinator(cluster, "g").kill()
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    message = consumer.poll(20)
    assert message is not None
    assert message.error() is None
    assert message.value() == b"4"
    consumer.close()


def test_records_and_offsets_are_shown_at_once_after_a_failure(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=RF)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer(settings)
    for count in range(1, 4):
        produce(cluster, "t", numbers(count - 1, 1))
        consumer.commit(offsets=[TopicPartition("t", 0, count)], asynchronous=False)
        killed = [leader(cluster, "t"), coordinator(cluster, "g")]
        killed[0].kill()
        assert values(cluster, "t") == numbers(0, count)
        killed[0].start()
        wait_until(lambda: isr(cluster, "t") == {1, 2, 3})
        killed[1].kill()
        assert set(cluster.committed("g").values()) == {count}
        killed[1].start()
        wait_until(lambda: isr(cluster, "t") == {1, 2, 3})
    consumer.close()


def test_the_number_of_fetchers_is_changed_while_records_are_written(cluster: Cluster) -> None:
    cluster.create_topic("t", 12, replication_factor=RF)
    for written, fetchers in enumerate((2, 4, 2, 1)):
        with Client(cluster.bootstrap_servers) as client:
            configs.alter(client, "broker", "", {"num.replica.fetchers": str(fetchers)})
        produce(cluster, "t", numbers(written * 100, 100))
        assert len(values(cluster, "t")) == (written + 1) * 100
    assert all(isr(cluster, "t", index) == {1, 2, 3} for index in range(12))


def test_records_are_deleted_on_all_live_replicas_before_the_answer(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=3)
    produce(cluster, "t", [b"%d" % n for n in range(100)])

    def delete(offset: int) -> int:
        # Create a new client each time: librdkafka would keep waiting for the leader that it knows.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        place = TopicPartition("t", 0, offset)
        return admin.delete_records([place])[place].result(30).low_watermark

    assert delete(60) == 60
    leads = leader(cluster, "t")
    leads.kill()
    wait_until(lambda: all(leader_at(broker, "t") != leads.id for broker in cluster.brokers if broker.is_running))
    assert [record.offset for record in cluster.records("t")] == list(range(60, 100)), (
        "the next leader deleted them too"
    )
    assert delete(80) == 80, "a broker that is away is not waited for"
    leads.start()
    wait_until(lambda: len(described(cluster, "t", 0).isr) == 3)
    for broker in cluster.brokers:
        if broker.id != leads.id:
            broker.kill()
            break
    wait_until(lambda: leader(cluster, "t").is_running)
    assert [record.offset for record in cluster.records("t")] == list(range(80, 100))


def test_metrics_show_what_is_not_replicated(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=6, replication_factor=3, config={"min.insync.replicas": "2"})
    produce(cluster, "t", [b"x" * 1000] * 60)
    [first, *others] = cluster.brokers

    def total(name: str) -> int:
        found = (broker.gauges() | broker.counters() for broker in cluster.brokers if broker.is_running)
        return sum(metrics[name] for metrics in found)

    manager, topics = "kafka.server:type=ReplicaManager,name=", "kafka.server:type=BrokerTopicMetrics,name="
    assert (total(f"{manager}LeaderCount"), total(f"{manager}PartitionCount")) == (6, 18)
    wait_until(lambda: total(f"{topics}ReplicationBytesInPerSec") >= 2 * 60 * 1000)
    assert total(f"{topics}ReplicationBytesOutPerSec") == total(f"{topics}ReplicationBytesInPerSec")
    assert total(f"{topics}ReplicationBytesInPerSec") == 2 * total(f"{topics}BytesInPerSec")
    states = ("UnderReplicatedPartitions", "AtMinIsrPartitionCount", "UnderMinIsrPartitionCount")

    def states_are(*expected: int) -> bool:
        return [total(f"{manager}{name}") for name in states] == list(expected)

    assert states_are(0, 0, 0)
    fetchers = "kafka.server:type=ReplicaFetcherManager,name="
    fetched = [f"{fetchers}{name},clientId=Replica" for name in ("MaxLag", "FailedPartitionsCount", "DeadThreadCount")]
    wait_until(lambda: [total(name) for name in fetched] == [0, 0, 0])

    def lags() -> list[str]:
        names = (name for broker in cluster.brokers for name in broker.gauges())
        return [name for name in names if "name=ConsumerLag" in name and ",topic=t,partition=" in name]

    wait_until(lambda: len(lags()) == 12)
    assert total("kafka.log:type=LogManager,name=OfflineLogDirectoryCount") == 0
    first.kill()
    wait_until(lambda: states_are(6, 6, 0))
    assert total(f"{manager}OfflineReplicaCount") == 0
    first.start()
    wait_until(lambda: states_are(0, 0, 0))
    assert sum(broker.counters()[f"{manager}IsrExpandsPerSec"] for broker in others) >= 4, (
        "the others lead some of them"
    )


def test_with_too_few_in_sync_replicas_acks_all_is_refused_and_acks_1_is_not(cluster: Cluster) -> None:
    cluster.create_topic("t", replication_factor=RF, config={"min.insync.replicas": "3"})
    produce(cluster, "t", numbers(0, 10))
    follower = next(broker for broker in cluster.brokers if broker.id != leader(cluster, "t").id)
    follower.kill()
    wait_until(lambda: len(isr(cluster, "t")) == 2)
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "message.timeout.ms": 1500})
    producer.produce("t", b"refused", on_delivery=lambda error, _: refused.append(error))
    producer.flush(20)
    assert len(refused) == 1
    produce(cluster, "t", [b"alone"], acks="1")
    follower.start()
    wait_until(lambda: isr(cluster, "t") == {1, 2, 3})
    wait_until(lambda: values(cluster, "t")[-1] == b"alone")
    assert values(cluster, "t")[:10] == numbers(0, 10)


def test_a_new_active_controller_fences_a_broker_that_crashed_with_its_predecessor(tmp_path: Path) -> None:
    """It waits neither for a session nor for the next image."""
    config = {"broker.session.timeout.ms": "600000", "metadata.max.idle.interval.ms": "600000"}
    with Cluster(tmp_path / "data", brokers=3, config=config) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=RF)
        wait_until(lambda: all(len(described(cluster, "t", each).isr) == RF for each in range(3)))
        [active] = [member for member in cluster._members.all if member.is_active]
        killed = next(broker for broker in cluster.brokers if broker.id == active.id)
        killed.kill()
        wait_until(lambda: all(leader(cluster, "t", each).id != killed.id for each in range(3)))


def test_a_crashed_broker_is_fenced_without_waiting_for_its_session(tmp_path: Path) -> None:
    """No session expires within the test, so fencing and registering again need other evidence of the crash.

    The controllers are separate nodes, because one that has just started and has not connected to a broker yet has no
    evidence of its crash.
    """
    config = {"broker.session.timeout.ms": "600000"}
    with Cluster(tmp_path / "data", brokers=3, controllers=3, config=config) as cluster:
        cluster.create_topic("t", replication_factor=RF, config={"min.insync.replicas": "2"})
        produce(cluster, "t", numbers(0, 10))
        for _ in range(3):
            killed = leader(cluster, "t")
            killed.kill()
            wait_until(lambda: leader(cluster, "t").id != killed.id)  # noqa: B023
            produce(cluster, "t", numbers(0, 10))
            killed.start()
            wait_until(lambda: isr(cluster, "t") == {1, 2, 3})
        assert len(values(cluster, "t")) == 40


def test_a_false_alarm_about_a_crash_costs_only_an_election(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller takes a broker's connection for closed, and something refuses probes of its listener; it lives."""
    config = {"broker.session.timeout.ms": "600000", "broker.heartbeat.interval.ms": "300"}
    with Cluster(tmp_path / "data", brokers=3, controllers=1, config=config) as cluster:
        cluster.create_topic("t", replication_factor=RF, config={"min.insync.replicas": "2"})
        produce(cluster, "t", numbers(0, 100))
        accused = leader(cluster, "t")
        before = cluster._image().broker(accused.id)
        connect = BrokerProbes._connect

        async def refuse(probes: BrokerProbes, broker_id: int) -> ProbeOutcome:
            return ProbeOutcome.REFUSED if broker_id == accused.id else await connect(probes, broker_id)

        monkeypatch.setattr(BrokerProbes, "_connect", refuse)

        async def lose_connection() -> None:
            [controller] = [member.node for member in cluster._members.all if member.is_active]
            assert controller._broker_probes is not None
            contact = controller._broker_probes._detection._contacts[accused.id]
            controller._broker_probes.on_closed(contact.connection_id)

        cluster.run(lose_connection())
        wait_until(lambda: leader(cluster, "t").id != accused.id)
        produce(cluster, "t", numbers(100, 100))
        wait_until(lambda: isr(cluster, "t") == {1, 2, 3})
        after = cluster._image().broker(accused.id)
        assert before is not None
        assert after is not None
        assert (after.epoch, after.fenced) == (before.epoch, False), "the same life of the broker"
        produce(cluster, "t", numbers(200, 100))
        assert values(cluster, "t") == numbers(0, 300)


def test_without_crash_detection_a_killed_broker_keeps_its_session(tmp_path: Path) -> None:
    config = {"broker.session.timeout.ms": "600000", "klamm.crash.detection": "false"}
    with Cluster(tmp_path / "data", brokers=3, controllers=1, config=config) as cluster:
        cluster.create_topic("t", replication_factor=RF)
        killed = leader(cluster, "t")
        killed.kill()
        time.sleep(1)  # a crash is detected after some milliseconds
        assert leader(cluster, "t").id == killed.id
