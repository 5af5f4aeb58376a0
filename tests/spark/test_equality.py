"""The same rows and batches as Spark's own Kafka connector, for the same topics with the same options.

That connector is complete only in 4.0.0, so its Spark is one release older. Everything is compared with klamm as the
broker, and with Apache Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from klamm.client import KafkaClient
from klamm.pipelines.bench import connector
from tests.interop import apache_kafka
from tests.spark import jobs, own_connector
from tests.spark.producing import Sent, numbered, send
from tests.support.foreign import give_up, require
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
MakeTopic = Callable[..., str]
TIME_MS = 1_700_000_000_000
CLUSTER_ID = "FmLEJzC1oDM5WR89ieSnJg"


KAFKA = "Apache Kafka"
CLEANER = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}


@pytest.fixture(scope="module", params=["klamm", KAFKA])
def bootstrap(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param != KAFKA:
        yield bootstrap
        return
    require("java", "mvn")
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID, CLEANER) as node:
        yield node.bootstrap


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[own_connector.OwnConnector]:
    if missing := connector.why_not():
        give_up(missing)
    with own_connector.OwnConnector(tmp_path_factory.mktemp("own") / "stderr") as running:
        yield running


Compare = Callable[..., Any]


@pytest.fixture
def compare(spark: SparkSession, own: own_connector.OwnConnector, bootstrap: str, tmp_path: Path) -> Compare:
    """Runs a job with both connectors, and returns both results."""

    def both(kind: str = "read", name: str = "", **options: str) -> Any:
        job = {"kind": kind, "options": {"kafka.bootstrap.servers": bootstrap} | options}
        theirs = own.run(job | {"checkpoint": str(tmp_path / f"theirs{name}")})
        ours = jobs.run(spark, job | {"format": "klamm", "checkpoint": str(tmp_path / f"ours{name}")})
        assert json.loads(json.dumps(ours)) == theirs
        return theirs

    return both


@pytest.fixture
def mixed(bootstrap: str, topic: MakeTopic) -> str:
    """A topic of three partitions, one of them empty: every codec, nulls, empty bytes, headers."""
    name = topic(3)
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        start = TIME_MS + index * 100_000
        sent = [Sent(b"%d" % n, b"k%d" % n, n % 2, start + n * 1000) for n in range(40)]
        sent += [
            Sent(None, b"tombstone", 0, start + 50_000),
            Sent(b"", None, 1, start + 51_000),
            Sent(b"h", b"", 1, start + 52_000, (("a", b"1"), ("a", None), ("\u00fc", b""))),
        ]
        send(bootstrap, name, sent, **{"compression.codec": codec, "linger.ms": 20})
    return name


def test_batches(compare: Compare, mixed: str, topic: MakeTopic) -> None:
    empty = topic()
    offsets = json.dumps({mixed: {"0": 7, "1": -2, "2": -2}})
    ends = json.dumps({mixed: {"0": 60, "1": -1, "2": 0}})
    times = json.dumps({mixed: {"0": TIME_MS + 30_500, "1": TIME_MS, "2": TIME_MS}})
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    many = len(compare(subscribe=mixed, includeHeaders="true"))
    assert many == 5 * 43
    compare(subscribe=f"{mixed},{empty}", minPartitions="7")
    compare(subscribePattern=f"{mixed}|{empty}", maxRecordsPerPartition="11")
    compare(assign=json.dumps({mixed: [1, 2]}))
    compare(subscribe=mixed, startingOffsets=offsets, endingOffsets=ends)
    compare(subscribe=mixed, startingOffsetsByTimestamp=times, **latest)
    found = compare(
        subscribe=mixed, startingTimestamp=str(TIME_MS + 1), endingTimestamp=str(TIME_MS + 200_000), **latest
    )
    assert 0 < len(found) < many
    assert compare(subscribe=mixed, startingTimestamp=str(TIME_MS)) == "refused", "a partition without a record"
    assert compare(subscribe=empty) == []


def test_offsets_out_of_range(compare: Compare, bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    send(bootstrap, name, numbered(20))
    admin, partition = AdminClient({"bootstrap.servers": bootstrap}), TopicPartition(name, 0, 8)
    admin.delete_records([partition])[partition].result(30)
    start = json.dumps({name: {"0": 3}})
    assert len(compare(subscribe=name)) == 12
    assert compare(subscribe=name, startingOffsets=start) == "refused"
    assert len(compare(subscribe=name, startingOffsets=start, failOnDataLoss="false")) == 12


def test_a_compacted_topic(compare: Compare, bootstrap: str) -> None:
    """Offsets without records at the beginning, in the middle and at the end of ranges."""
    name = "compacted"
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(60)
    for number in range(60):
        # Segments roll by record timestamps.
        send(bootstrap, name, [Sent(b"%d" % number, b"%d" % (number % 7), timestamp_ms=(number + 1) * 1000)])
    wait_until(lambda: count(bootstrap, name) < 30, bound_s=120)
    compare(subscribe=name, maxRecordsPerPartition="7")
    compare(subscribe=name, startingOffsets=json.dumps({name: {"0": 10}}), endingOffsets=json.dumps({name: {"0": 50}}))
    compare("stream", subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="20")


def count(bootstrap: str, topic: str) -> int:
    """The number of records in partition 0."""
    found = 0
    with KafkaClient(bootstrap) as client:
        at, end = 0, client.offsets(topic, {0: -1})[0]
        while at < end:
            fetched = client.fetch(topic, 0, at, end, columns=["offset"])
            found, at = found + len(fetched), fetched.next_offset
    return found


def test_transactions(compare: Compare, bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for number in range(12):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=0)
        producer.flush(60)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(60)
    assert len(compare(subscribe=name)) == 12
    committed = {"kafka.isolation.level": "read_committed"}
    assert len(compare(subscribe=name, **committed)) == 8
    assert len(compare(subscribe=name, maxRecordsPerPartition="5", **committed)) == 8
    batches = compare("stream", subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="5", **committed)
    assert sum(map(len, batches)) == 8


def test_streams(compare: Compare, mixed: str, bootstrap: str) -> None:
    """Batches end at the same offsets, also after a restart with new records and new partitions."""
    options = {
        "subscribe": mixed,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "90",
    }
    first = compare("stream", **options)
    assert [len(batch) for batch in first] == [90, 90, 35] or sum(len(batch) for batch in first) == 215
    assert compare("stream", **options) == []
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(mixed, 5)])[mixed].result(30)
    send(bootstrap, mixed, [*numbered(30, 3), *numbered(7, 4), *numbered(5, 0)])
    assert sum(len(batch) for batch in compare("stream", **options)) == 42


def test_streams_of_a_deleted_topic(compare: Compare, bootstrap: str, topic: MakeTopic) -> None:
    kept, gone = topic(), topic()
    for name in (kept, gone):
        send(bootstrap, name, numbered(5))
    options = {"subscribePattern": f"{kept}|{gone}", "startingOffsets": "earliest"}
    compare("stream", **options)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([gone])[gone].result(30)
    send(bootstrap, kept, numbered(5))
    assert compare("stream", **options) == "refused"
    assert sum(len(batch) for batch in compare("stream", **options, failOnDataLoss="false")) == 5


def test_a_checkpoint_of_sparks_connector_is_continued(
    spark: SparkSession, own: own_connector.OwnConnector, bootstrap: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(2)
    send(bootstrap, name, numbered(10) + numbered(10, 1, 10))
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "startingOffsets": "earliest"}
    job = {"kind": "stream", "checkpoint": str(tmp_path / "state"), "options": options}
    assert sum(len(batch) for batch in own.run(job)) == 20
    send(bootstrap, name, numbered(3, 1, 20))
    found = jobs.run(spark, job | {"format": "klamm"})
    assert [dict(row)["value"] for batch in found for row in batch] == [b"20".hex(), b"21".hex(), b"22".hex()]


def test_klamm_reads_what_sparks_connector_writes(
    own: own_connector.OwnConnector, compare: Compare, bootstrap: str, topic: MakeTopic
) -> None:
    name = topic(3)
    query = "select cast(id % 50 as string) as key, concat('value ', id) as value from range(1000)"
    options = {"kafka.bootstrap.servers": bootstrap, "topic": name}
    assert own.run({"kind": "write", "query": query, "options": options}) == "written"
    assert len(compare(subscribe=name)) == 1000
