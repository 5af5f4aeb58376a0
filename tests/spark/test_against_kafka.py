"""Reads what only Apache Kafka can write so far, transactions, and the gaps of compaction within a range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import apache_kafka
from tests.spark.producing import Sent, numbered, send
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CLUSTER_ID = "FmLEJzC1oDM5WR89ieSnJg"
CLEANER = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID, CLEANER) as node:
        yield node.bootstrap


def make(bootstrap: str, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(
        name, 1, 1, config={"retention.ms": "-1"} | {key.replace("_", "."): config[key] for key in config}
    )
    admin.create_topics([wanted])[name].result(60)


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> list[tuple[int, bytes]]:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | options
    rows = spark.read.format("klamm").options(**options).load().select("offset", "value").collect()
    return sorted((row.offset, bytes(row.value)) for row in rows)


def test_transactions(spark: SparkSession, kafka: str) -> None:
    make(kafka, "transactions")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "t"})
    producer.init_transactions(60)
    for word, is_committed in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce("transactions", word, partition=0)
        producer.flush(60)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(60)
    producer.begin_transaction()
    producer.produce("transactions", b"open", partition=0)
    producer.flush(60)

    # Each transaction ends with a marker, which takes an offset but is not a record.
    written = [(0, b"a"), (1, b"a"), (3, b"b"), (4, b"b"), (6, b"c"), (7, b"c"), (9, b"open")]
    assert read(spark, kafka, "transactions") == written
    committed = [row for row in written if row[1] in (b"a", b"c")]
    options = {"kafka.isolation.level": "read_committed"}
    assert read(spark, kafka, "transactions", **options) == committed
    assert read(spark, kafka, "transactions", maxRecordsPerPartition="1", **options) == committed
    producer.abort_transaction(60)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark: SparkSession, kafka: str, codec: str) -> None:
    make(kafka, codec)
    send(kafka, codec, numbered(500), **{"compression.codec": codec, "linger.ms": 50})
    assert read(spark, kafka, codec, minPartitions="3") == [(number, b"%d" % number) for number in range(500)]


def test_a_compacted_topic(spark: SparkSession, kafka: str) -> None:
    make(
        kafka,
        "compacted",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="100",
        segment_bytes="1048576",
    )
    for number in range(300):
        # Segments roll by record timestamps.
        send(kafka, "compacted", [Sent(b"%d" % number, b"%d" % (number % 7), timestamp_ms=(number + 1) * 1000)])
    wait_until(lambda: len(read(spark, kafka, "compacted")) < 300, bound_s=120)
    found = read(spark, kafka, "compacted")
    assert found[-1] == (299, b"299")
    assert all(value == b"%d" % offset for offset, value in found)
    assert {int(value) % 7 for _, value in found} == set(range(7))
    assert read(spark, kafka, "compacted", maxRecordsPerPartition="20") == found
