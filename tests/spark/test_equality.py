"""Row for row and batch for batch what Spark's own Kafka connector gives, of the same topics with the same options.

That connector is whole at 4.0.0 only, so that its Spark is a release behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from klamm.pipelines.bench import connector
from tests.spark import jobs, own_connector
from tests.spark.producing import Sent, numbered, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
MakeTopic = Callable[..., str]
TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[own_connector.OwnConnector]:
    if missing := connector.why_not():
        pytest.skip(missing)
    with own_connector.OwnConnector(tmp_path_factory.mktemp("own") / "stderr") as running:
        yield running


Compare = Callable[..., Any]


@pytest.fixture
def compare(spark: SparkSession, own: own_connector.OwnConnector, bootstrap: str, tmp_path: Path) -> Compare:
    """Runs a job over both, and gives what both gave."""

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


def test_streams_of_a_topic_that_is_gone(compare: Compare, bootstrap: str, topic: MakeTopic) -> None:
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


def test_a_checkpoint_of_the_own_connector_is_read_on(
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


def test_the_own_connector_writes_what_klamm_reads(
    own: own_connector.OwnConnector, compare: Compare, bootstrap: str, topic: MakeTopic
) -> None:
    name = topic(3)
    query = "select cast(id % 50 as string) as key, concat('value ', id) as value from range(1000)"
    options = {"kafka.bootstrap.servers": bootstrap, "topic": name}
    assert own.run({"kind": "write", "query": query, "options": options}) == "written"
    assert len(compare(subscribe=name)) == 1000
