"""Archives of what only Apache Kafka can write so far: transactions, and the gaps of markers and compaction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

import klamm
from klamm.client import KafkaClient
from klamm.pipelines.archive import archive, read_mapping, restore, verify
from tests.spark.archives import assert_identical, fill
from tests.spark.producing import Sent, send
from tests.spark.test_against_kafka import kafka, make, read
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["kafka"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_topics_of_apache_kafka_go_to_klamm_and_back(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    kept, again = tmp_path / "kept", tmp_path / "again"
    make(kafka, "plain", message_timestamp_type="CreateTime")
    make(kafka, "gaps")
    make(kafka, "stamped", message_timestamp_type="LogAppendTime")
    _write_transactions(kafka, "gaps")
    send(kafka, "stamped", [Sent(b"%d" % number) for number in range(20)])
    with KafkaClient(kafka) as here:
        fill(here, "plain", 0, 30_000)
        here.flush()
        assert archive(["plain", "gaps", "stamped"], kept, bootstrap=kafka, spark=spark).records == 30_024
        assert verify(kept, spark=spark).records == 30_024
        with klamm.Cluster() as cluster, KafkaClient(cluster.bootstrap_servers) as there:
            done = restore(kept, bootstrap=cluster.bootstrap_servers, apply=True, compare=True, spark=spark)
            assert done.written == 30_024
            assert assert_identical(here, there, "plain", "plain", partition=0) == 30_000
            assert assert_identical(here, there, "stamped", "stamped", partition=0) == 20
            assert [value for _, value in read(spark, cluster.bootstrap_servers, "gaps")] == [b"a", b"a", b"c", b"c"]
            # Two of a, a marker, two of b and its marker, two of c.
            mapping = read_mapping(done.state)["gaps"]
            assert [mapping.translate(0, offset) for offset in range(9)] == [0, 1, 2, 2, 2, 2, 2, 3, 4]

            archive(["plain", "gaps"], again, bootstrap=cluster.bootstrap_servers, spark=spark)
            rename = {"plain": "plain-2", "gaps": "gaps-2"}
            restore(again, bootstrap=kafka, rename=rename, apply=True, compare=True, spark=spark)
            assert assert_identical(here, here, "plain", "plain-2", partition=0) == 30_000
            assert [value for _, value in read(spark, kafka, "gaps-2")] == [b"a", b"a", b"c", b"c"]


def _write_transactions(bootstrap: str, topic: str) -> None:
    """Committed, aborted, committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for word, is_committed in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(topic, word, partition=0)
        producer.flush(60)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(60)


def test_a_compacted_topic(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    name = "compacted-archive"
    make(kafka, name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    for number in range(300):
        send(kafka, name, [Sent(b"%d" % number, b"%d" % (number % 7), timestamp_ms=(number + 1) * 1000)])
    wait_until(lambda: len(read(spark, kafka, name)) < 300, bound_s=300)
    archive([name], tmp_path, bootstrap=kafka, spark=spark, records_per_task=50)
    found = verify(tmp_path, spark=spark).records
    assert found < 300
    with klamm.Cluster() as cluster:
        done = restore(tmp_path, bootstrap=cluster.bootstrap_servers, apply=True, spark=spark)
        assert done.written == found
        assert done.topics[0].configs["cleanup.policy"] == "compact"
        new = read(spark, cluster.bootstrap_servers, name)
        assert new[-1] == (found - 1, b"299")
        mapping = read_mapping(done.state)[name]
        assert [mapping.translate(0, offset) for offset in (0, 299, 300)] == [0, found - 1, found]
