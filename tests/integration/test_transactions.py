"""Transactional producers on clusters of one and three brokers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from klamm import Cluster
from klamm.admin.client import Client
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse, ProducersTopic
from tests.support.waiting import wait_until

ID = "orders"
READ_S = 30.0


@pytest.fixture(scope="module", params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    config = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
    }
    with Cluster(brokers=request.param, config=config) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    cluster.create_topic(name, partitions=3, replication_factor=len(cluster.brokers))
    return name


def producer_of(cluster: Cluster, transactional_id: str = ID, **settings: object) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **settings,
        }
    )
    made.init_transactions(READ_S)
    return made


def read(cluster: Cluster, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """The values of `count` records from all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    try:
        found = consumer.consume(count, READ_S)
    finally:
        consumer.close()
    assert all(each.error() is None for each in found), found
    return sorted(each.value() for each in found)


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)


def test_committed_records_are_read_and_aborted_ones_are_not(cluster: Cluster, topic: str) -> None:
    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    send(producer, topic, b"a", b"b", b"c")
    producer.flush(READ_S)
    producer.abort_transaction(READ_S)
    for value in (b"d", b"e", b"f"):
        producer.begin_transaction()
        send(producer, topic, value, value)
        producer.commit_transaction(READ_S)
    assert read(cluster, topic, 6) == [b"d", b"d", b"e", b"e", b"f", b"f"]
    assert len(read(cluster, topic, 9, "read_uncommitted")) == 9
    for name in (
        "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs",
        "klamm.coordinator:type=Transactions,name=AppendedRecords",
    ):
        assert sum(broker.counters()[name] for broker in cluster.brokers) > 0
    waiting = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=UnknownDestinationQueueSize"
    assert [broker.gauges()[waiting] for broker in cluster.brokers] == [0] * len(cluster.brokers)


def test_open_transactions_are_measured(cluster: Cluster, topic: str) -> None:
    def lag() -> int:
        name = f"kafka.cluster:type=Partition,name=LastStableOffsetLag,topic={topic},partition=0"
        return max(broker.gauges().get(name, 0) for broker in cluster.brokers)

    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    send(producer, topic, b"a")
    producer.flush(READ_S)
    wait_until(lambda: lag() == 1)
    producer.commit_transaction(READ_S)
    wait_until(lambda: lag() == 0)
    manager = "kafka.server:type=ReplicaManager,name="
    assert sum(broker.gauges()[f"{manager}ProducerIdCount"] for broker in cluster.brokers) > 0
    assert all(broker.gauges()[f"{manager}PartitionsWithLateTransactionsCount"] == 0 for broker in cluster.brokers)
    groups = "kafka.server:type=group-coordinator-metrics,name=num-partitions,state="
    assert all(broker.gauges()[f"{groups}failed"] == 0 for broker in cluster.brokers)


def test_a_second_producer_fences_the_first(cluster: Cluster, topic: str) -> None:
    first = producer_of(cluster, topic)
    first.begin_transaction()
    send(first, topic, b"lost")
    first.flush(READ_S)
    second = producer_of(cluster, topic)
    second.begin_transaction()
    send(second, topic, b"kept")
    second.commit_transaction(READ_S)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(READ_S)
    assert refused.value.args[0].fatal()
    assert read(cluster, topic, 1) == [b"kept"]


def test_consume_transform_produce(cluster: Cluster, topic: str) -> None:
    output = f"{topic}-out"
    cluster.create_topic(output, partitions=3)
    source = producer_of(cluster, f"{topic}-source")
    source.begin_transaction()
    send(source, topic, *(b"%d" % number for number in range(6)))
    source.commit_transaction(READ_S)
    group = f"{topic}-group"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    producer = producer_of(cluster, f"{topic}-copier")
    copied = 0
    while copied < 6:
        found = consumer.consume(6 - copied, 1.0)
        if not found:
            continue
        producer.begin_transaction()
        for message in found:
            producer.produce(output, message.value(), partition=message.partition())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), READ_S)
        producer.commit_transaction(READ_S)
        copied += len(found)
    consumer.close()
    assert read(cluster, output, 6) == [b"%d" % number for number in range(6)]
    # A marker may or may not be counted as read.
    wait_until(lambda: [offset in (2, 3) for offset in cluster.committed(group).values()] == [True] * 3, "all offsets")


async def test_aiokafka(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic, acks="all"
    ) as producer:
        async with producer.transaction():
            for number in range(3):
                await producer.send(topic, b"%d" % number, partition=number)
            await producer.send_offsets_to_transaction({AioPartition(topic, 0): 7}, group)
        with contextlib.suppress(ValueError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"aborted", partition=0)
                raise ValueError("the application gives up")
        async with producer.transaction():
            await producer.send(topic, b"last", partition=0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([AioPartition(topic, partition) for partition in range(3)])
        found = [(await asyncio.wait_for(consumer.getone(), READ_S)).value for _ in range(4)]
    assert sorted(found) == [b"0", b"1", b"2", b"last"]
    assert list(cluster.committed(group).values()) == [7]


def test_a_transaction_that_times_out_is_aborted(cluster: Cluster, topic: str) -> None:
    """The coordinator also fences its producer."""
    producer = producer_of(cluster, topic, **{"transaction.timeout.ms": 5_000})
    producer.begin_transaction()
    send(producer, topic, b"late")
    producer.flush(READ_S)
    assert read_uncommitted(cluster, topic) == [b"late"]
    cluster.clock.advance(30)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(READ_S)
    assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort()
    other = producer_of(cluster, f"{topic}-other")
    other.begin_transaction()
    send(other, topic, b"next")
    other.commit_transaction(READ_S)
    assert read(cluster, topic, 1) == [b"next"]


def read_uncommitted(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_a_killed_coordinator_leaves_the_transaction_to_its_successor(topic: str, cluster: Cluster) -> None:
    """The leader of a partition is killed at the same time."""
    producer = producer_of(cluster, topic)
    for number in range(9):
        producer.begin_transaction()
        send(producer, topic, b"%d" % number, b"%d" % number, b"%d" % number)
        if number % 3 == 1:
            broker = cluster.brokers[number // 3]
            broker.kill()
            producer.commit_transaction(READ_S)
            broker.start()
        else:
            producer.commit_transaction(READ_S)
    assert read(cluster, topic, 27) == sorted(b"%d" % number for number in range(9) for _ in range(3))


@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_followers_describe_producers_as_the_leader_does(topic: str, cluster: Cluster) -> None:
    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(READ_S)
    request = DescribeProducersRequest((ProducersTopic(topic, (0,)),))

    def described() -> list[tuple[ErrorCode, list[tuple[int, int]]]]:
        answers = [broker.ask(request, DescribeProducersResponse, 0).topics[0].partitions[0] for broker in brokers]
        return [
            (one.error_code, [(each.producer_epoch, each.current_txn_start_offset) for each in one.active_producers])
            for one in answers
        ]

    with Client(cluster.bootstrap_servers) as client:
        brokers = client.brokers()
        wait_until(lambda: described() == [(ErrorCode.NONE, [(0, 0)])] * 3, described)
        producer.commit_transaction(READ_S)
        wait_until(lambda: described() == [(ErrorCode.NONE, [(0, -1)])] * 3, described)
