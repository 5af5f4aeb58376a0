"""klamm's own client with Apache Kafka 4.3.1 and with klamm, also in transactions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm import Cluster
from klamm.client import ClientError, KafkaClient, OffsetOutOfRangeError, ProducerFencedError
from tests.interop import apache_kafka
from tests.support.foreign import require

pytestmark = pytest.mark.timeout(300)

CLUSTER_ID = "FmLEJzC1oDM5WR89ieSnJg"
COMMITTED = {"isolation.level": "read_committed", "fetch.max.wait.ms": "50"}
UNCOMMITTED = {"fetch.max.wait.ms": "50"}


@pytest.fixture(scope="module", params=["Apache Kafka", "klamm"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "klamm":
        with Cluster() as cluster:
            yield cluster.bootstrap_servers
        return
    require("java", "mvn")
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID) as node:
        yield node.bootstrap


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions."""
    name = f"{request.node.name.partition('[')[0]}-{abs(hash(request.node.name)) % 10_000}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


def values_of(client: KafkaClient, topic: str, partition: int) -> list[Any]:
    """All values of a partition up to the end offset of the client's isolation level."""
    offset, end = (client.offsets(topic, {partition: mark})[partition] for mark in (-2, -1))
    values: list[Any] = []
    while offset < end:
        fetched = client.fetch(topic, partition, offset, end, columns=["value"], max_records=7)
        assert fetched.next_offset > offset
        values += pa.record_batch(fetched)["value"].to_pylist()
        offset = fetched.next_offset
    return values


def wait_for_values(client: KafkaClient, topic: str, partition: int, expected: list[bytes]) -> None:
    """Wait for the markers: a transaction is decided when EndTxn is answered, and its markers are written later."""
    deadline = time.monotonic() + 30
    while (found := values_of(client, topic, partition)) != expected:
        assert time.monotonic() < deadline, found
        assert found == expected[: len(found)]


def batch(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_records_are_fetched(bootstrap: str, topic: str, codec: str) -> None:
    values = [b"%d" % at * (at % 50) for at in range(2000)]
    with KafkaClient(bootstrap, {"compression.type": codec, "batch.size": "10000"}) as client:
        client.produce(topic, 1, None, pa.array(values, pa.binary()))
        client.flush()
        assert values_of(client, topic, 1) == values
        with pytest.raises(OffsetOutOfRangeError) as refused:
            client.fetch(topic, 1, 2001, 2002, columns=["offset"])
        assert (refused.value.earliest, refused.value.latest) == (0, 2000)


def test_transactions_under_both_isolation_levels(bootstrap: str, topic: str) -> None:
    with (
        KafkaClient(bootstrap, {"transactional.id": topic}) as producer,
        KafkaClient(bootstrap, COMMITTED) as committed,
        KafkaClient(bootstrap, UNCOMMITTED) as uncommitted,
    ):
        producer.init_transactions()
        expected: list[bytes] = []
        everything: list[bytes] = []
        for number in range(12):
            producer.begin_transaction()
            values = [b"%d-%d" % (number, at) for at in range(5)]
            for partition in (0, 1):
                producer.produce(topic, partition, None, batch(*values))
            producer.flush()
            everything += values
            assert values_of(committed, topic, 0) == expected, "what is open is not read"
            assert values_of(uncommitted, topic, 0) == everything
            if number % 3 == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                expected += values
            for partition in (0, 1):
                wait_for_values(committed, topic, partition, expected)
                assert values_of(uncommitted, topic, partition) == everything


def test_an_abort_drops_unsent_records(bootstrap: str, topic: str) -> None:
    lingering = {"transactional.id": topic, "linger.ms": "60000", "batch.size": "300"}
    with KafkaClient(bootstrap, lingering) as producer, KafkaClient(bootstrap, COMMITTED) as committed:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.produce(topic, 0, None, batch(*[b"aborted %d" % at for at in range(200)]))
            producer.abort_transaction()
            producer.begin_transaction()
            producer.produce(topic, 0, None, batch(b"committed %d" % number))
            producer.commit_transaction()
        producer.begin_transaction()
        producer.commit_transaction()
        wait_for_values(committed, topic, 0, [b"committed 0", b"committed 1", b"committed 2"])


def test_a_newer_producer_fences_the_older_one(bootstrap: str, topic: str) -> None:
    same = {"transactional.id": topic}
    with KafkaClient(bootstrap, same) as older, KafkaClient(bootstrap, same) as newer:
        older.init_transactions()
        older.begin_transaction()
        older.produce(topic, 0, None, batch(b"older"))
        older.flush()
        newer.init_transactions()
        with pytest.raises(ProducerFencedError, match=r"same transactional\.id"):
            older.commit_transaction()
        newer.begin_transaction()
        newer.produce(topic, 0, None, batch(b"newer"))
        newer.commit_transaction()
        with KafkaClient(bootstrap, COMMITTED) as committed:
            wait_for_values(committed, topic, 0, [b"newer"])


def test_offsets_are_committed_only_with_the_transaction(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{topic}"})
    place = TopicPartition(topic, 0)
    with KafkaClient(bootstrap, {"transactional.id": topic}) as producer:
        producer.init_transactions()
        for offset, commits in [(5, True), (9, False), (12, True)]:
            producer.begin_transaction()
            producer.add_offsets(f"group-{topic}", {topic: {0: offset}})
            if commits:
                producer.commit_transaction()
                expected = offset
            else:
                producer.abort_transaction()
            deadline = time.monotonic() + 30
            while (found := consumer.committed([place], timeout=30)[0].offset) != expected:
                assert time.monotonic() < deadline, found
    consumer.close()


def test_calls_out_of_turn_are_refused(bootstrap: str, topic: str) -> None:
    with KafkaClient(bootstrap, {"transactional.id": topic}) as producer:
        with pytest.raises(ClientError, match=r"init_transactions\(\) comes first"):
            producer.produce(topic, 0, None, batch(b"x"))
        with pytest.raises(ClientError, match=r"init_transactions\(\) comes first"):
            producer.begin_transaction()
        producer.init_transactions()
        with pytest.raises(ClientError, match="no transaction has begun"):
            producer.produce(topic, 0, None, batch(b"x"))
        with pytest.raises(ClientError, match="no transaction has begun"):
            producer.abort_transaction()


def test_transactions_of_librdkafka(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "zstd"})
    producer.init_transactions(30)
    expected: list[bytes] = []
    for number in range(9):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, at) for at in range(30)]
        for value in values:
            producer.produce(topic, value, partition=0)
        with contextlib.ExitStack() as stack:
            stack.callback(producer.abort_transaction if number % 3 == 0 else producer.commit_transaction, 30)
            assert producer.flush(30) == 0
        expected += [] if number % 3 == 0 else values
    with KafkaClient(bootstrap, COMMITTED) as committed, KafkaClient(bootstrap, UNCOMMITTED) as uncommitted:
        wait_for_values(committed, topic, 0, expected)
        assert len(values_of(uncommitted, topic, 0)) == 9 * 30


def test_a_restart_in_the_middle(tmp_path: Path) -> None:
    node = apache_kafka.KafkaNode(tmp_path / "data")
    node.format(CLUSTER_ID)
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("restarted", 1, 1)])["restarted"].result()
        with KafkaClient(node.bootstrap) as client:
            client.produce("restarted", 0, None, batch(*[b"%d" % at for at in range(100)]))
            client.flush()
            assert len(client.fetch("restarted", 0, 0, 100, columns=["value"])) == 100
            node.stop()
            client.produce("restarted", 0, None, batch(*[b"%d" % at for at in range(100, 200)]))
            node.start()
            client.flush()
            assert values_of(client, "restarted", 0) == [b"%d" % at for at in range(200)]
