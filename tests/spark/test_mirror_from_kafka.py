"""`klamm mirror` from Apache Kafka to klamm: transactions, gaps of compaction, groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

import klamm
from klamm.pipelines.mirror import MirrorOptions, groups, mirror, topics
from tests.interop import apache_kafka
from tests.spark.producing import Sent, numbered, send
from tests.spark.test_against_kafka import CLEANER, make
from tests.spark.test_mirror import commit, rows, values_from
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CLUSTER_ID = "0D3yrxVPQBmdvu4cVMZpMw"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID, CLEANER) as node:
        yield node.bootstrap


@pytest.fixture(scope="module")
def there() -> Iterator[klamm.Cluster]:
    with klamm.Cluster() as running:
        yield running


def go(spark: SparkSession, kafka: str, there: klamm.Cluster, topic: str, state: Path) -> None:
    wanted = topics(names=[topic])
    mirror(
        MirrorOptions(kafka, there.bootstrap_servers, str(state), wanted, groups(names=[topic]), once=True), spark=spark
    )


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [row[2] for row in rows(bootstrap, topic)[0]]


def test_aborted_records_are_not_copied(spark: SparkSession, kafka: str, there: klamm.Cluster, tmp_path: Path) -> None:
    make(kafka, "transactions")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "t"})
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        for part in range(3):
            producer.produce("transactions", b"%d-%d" % (number, part), partition=0)
        producer.flush(60)
        (producer.abort_transaction if number % 4 == 3 else producer.commit_transaction)(60)
    # The group has read transactions 0 to 9, of which 3 and 7 were aborted; each ends with a marker.
    commit(kafka, "transactions", "transactions", {0: 40})
    go(spark, kafka, there, "transactions", tmp_path)
    copied = values(there.bootstrap_servers, "transactions")
    assert copied == [b"%d-%d" % (number, part) for number in range(20) if number % 4 != 3 for part in range(3)]
    assert there.committed("transactions") == {("transactions", 0): 8 * 3}


def test_a_compacted_topic_keeps_records_and_positions(
    spark: SparkSession, kafka: str, there: klamm.Cluster, tmp_path: Path
) -> None:
    config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "100"}
    make(kafka, "compacted", segment_bytes="1048576", **config)
    for number in range(300):
        send(kafka, "compacted", [Sent(b"%d" % number, b"%d" % (number % 7), timestamp_ms=(number + 1) * 1000)])
    wait_until(lambda: len(rows(kafka, "compacted")[0]) < 300, bound_s=120)
    kept = rows(kafka, "compacted")[0]
    middle = kept[len(kept) // 2][0]
    commit(kafka, "compacted", "compacted", {0: middle})
    go(spark, kafka, there, "compacted", tmp_path)
    copied = rows(there.bootstrap_servers, "compacted")[0]
    assert [row[1:] for row in copied[-5:]] == [row[1:] for row in kept[-5:]]
    at = there.committed("compacted")["compacted", 0]
    # Compaction continues on both sides: later records of the source exist on the target, or newer ones with their
    # keys.
    after = {row[1]: row[2] for row in kept if row[0] >= middle}
    assert {row[1]: row[2] for row in copied if row[0] >= at} == after


def test_a_group_of_the_consumer_protocol_continues(
    spark: SparkSession, kafka: str, there: klamm.Cluster, tmp_path: Path
) -> None:
    make(kafka, "orders")
    send(kafka, "orders", numbered(100))
    config = {"bootstrap.servers": kafka, "group.id": "orders", "auto.offset.reset": "earliest"}
    consumer = Consumer(config | {"group.protocol": "consumer", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    for _ in range(40):
        message = consumer.poll(60)
        assert message is not None
        consumer.commit(message, asynchronous=False)
    consumer.close()
    go(spark, kafka, there, "orders", tmp_path)
    assert there.committed("orders") == {("orders", 0): 40}
    wanted = {b"%d" % number for number in range(40, 100)}
    assert values_from(there.bootstrap_servers, "orders", "orders", 60) == wanted
