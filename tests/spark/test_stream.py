"""`spark.readStream.format("klamm")`: limits, restarts from the checkpoint, new and deleted partitions and topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.progress import offsets_behind_latest
from tests.spark.patience import patiently
from tests.spark.producing import numbered, send
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MakeTopic = Callable[..., str]
BOUND_S = 240


class Sink:
    """Keeps the values of each batch; a repeated batch replaces the earlier one."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.checkpoint = checkpoint
        self.batches: dict[int, list[bytes]] = {}

    def start(self, trigger: dict[str, object], **options: str) -> StreamingQuery:
        """A started query; raises the error with which it fails to start."""

        def begin() -> StreamingQuery:
            reader = self.spark.readStream.format("klamm").option("kafka.bootstrap.servers", self.bootstrap)
            writer = reader.options(**options).load().writeStream.foreachBatch(self.keep)
            writer = writer.option("checkpointLocation", str(self.checkpoint))
            query = writer.trigger(**trigger).start()  # type: ignore[arg-type]
            wait_until(lambda: query.recentProgress or not query.isActive, bound_s=BOUND_S)
            if failure := query.exception():
                raise failure
            return query

        return patiently(begin)

    def keep(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [bytes(row.value) for row in frame.collect()]

    def run(self, **options: str) -> StreamingQuery:
        """Reads the available records, and ends."""
        query = self.start({"availableNow": True}, **options)
        try:
            assert query.awaitTermination(BOUND_S), "the query did not end"
        finally:
            query.stop()
        return query

    def values(self) -> list[bytes]:
        return sorted(value for batch in list(self.batches.values()) for value in batch)

    def forget_the_end_of_the_first_batch(self) -> None:
        """Remove the commit of the first batch, as if the query had been killed during it."""
        self.batches.clear()
        for folder, kept in (("commits", ()), ("offsets", ("0", ".0.crc"))):
            for file in (self.checkpoint / folder).iterdir():
                if file.name not in kept:
                    file.unlink()


@pytest.fixture
def sink(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Sink:
    return Sink(spark, bootstrap, tmp_path / "checkpoint")


def words(count: int, start: int = 0) -> list[bytes]:
    return sorted(b"%d" % number for number in range(start, count))


def test_a_restart_continues_and_reads_nothing_twice(sink: Sink, topic: MakeTopic) -> None:
    name = topic(2)
    send(sink.bootstrap, name, numbered(10) + numbered(10, 1, 10))
    sink.run(subscribe=name, startingOffsets="earliest")
    assert sink.values() == words(20)
    send(sink.bootstrap, name, numbered(5, 1, 20))
    sink.run(subscribe=name, startingOffsets="earliest")
    assert sink.values() == words(25)
    sink.run(subscribe=name, startingOffsets="earliest")
    assert sink.values() == words(25)


def test_columns_may_change_after_a_restart(sink: Sink, topic: MakeTopic) -> None:
    name = topic()
    send(sink.bootstrap, name, numbered(3))
    sink.run(subscribe=name, startingOffsets="earliest", columns="value")
    send(sink.bootstrap, name, numbered(3, start=3))
    sink.run(subscribe=name, startingOffsets="earliest", columns="offset,value")
    assert sink.values() == words(6)


def test_a_limit_is_kept_and_all_is_read(sink: Sink, topic: MakeTopic) -> None:
    name = topic(2)
    send(sink.bootstrap, name, numbered(30) + numbered(10, 1, 30))
    query = sink.run(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="16")
    assert sink.values() == words(40)
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert [count for count in rows if count] == [16, 16, 8]


def test_progress_has_the_offsets_of_stream_and_topic(sink: Sink, topic: MakeTopic) -> None:
    name = topic()
    send(sink.bootstrap, name, numbered(10))
    query = sink.run(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    source = query.recentProgress[0]["sources"][0]
    assert json.loads(source["endOffset"])[name] == {"0": 6}
    assert json.loads(source["latestOffset"]) == {name: {"0": 10}}
    behind = [offsets_behind_latest(progress)[0].partitions for progress in query.recentProgress[:2]]
    assert behind == [{TopicPartition(name, 0): 4}, {TopicPartition(name, 0): 0}]


def test_a_stream_begins_with_new_records(sink: Sink, topic: MakeTopic) -> None:
    """The default of startingOffsets is latest, also when the first batch is repeated after a failure."""
    name = topic()
    send(sink.bootstrap, name, numbered(5))
    query = sink.start({"processingTime": "0 seconds"}, subscribe=name)
    try:
        wait_until(lambda: query.recentProgress, bound_s=BOUND_S)
        send(sink.bootstrap, name, numbered(5, start=5))
        wait_until(lambda: len(sink.values()) == 5, bound_s=BOUND_S)
    finally:
        query.stop()
    sink.forget_the_end_of_the_first_batch()
    send(sink.bootstrap, name, numbered(5, start=10))
    sink.run(subscribe=name)
    assert sink.values() == sorted(b"%d" % number for number in range(5, 15))


def test_new_partitions_are_read_from_their_beginning(sink: Sink, topic: MakeTopic) -> None:
    name = topic()
    send(sink.bootstrap, name, numbered(5))
    sink.run(subscribe=name, startingOffsets="earliest")
    admin = AdminClient({"bootstrap.servers": sink.bootstrap})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    send(sink.bootstrap, name, numbered(5, 1, 5))
    sink.run(subscribe=name, startingOffsets="earliest")
    assert sink.values() == words(10)


def test_a_deleted_topic_is_a_loss(sink: Sink, topic: MakeTopic) -> None:
    kept, gone = topic(), topic()
    send(sink.bootstrap, kept, numbered(5))
    send(sink.bootstrap, gone, numbered(5, start=5))
    options = {"subscribePattern": f"{kept}|{gone}", "startingOffsets": "earliest"}
    sink.run(**options)
    admin = AdminClient({"bootstrap.servers": sink.bootstrap})
    admin.delete_topics([gone])[gone].result(30)
    send(sink.bootstrap, kept, numbered(5, start=10))
    with pytest.raises(Exception, match=f"partition {gone}-0 is gone"):
        sink.run(**options)
    sink.run(**options, failOnDataLoss="false")
    assert sink.values() == words(15)


@pytest.fixture
def telling(spark: SparkSession) -> Iterator[None]:
    """Spark reports progress immediately when nothing is read, instead of after 10 s."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    yield
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


@pytest.mark.usefixtures("telling")
def test_a_batch_waits_for_its_minimum(sink: Sink, topic: MakeTopic) -> None:
    name = topic()
    send(sink.bootstrap, name, numbered(3))
    options = {"subscribe": name, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    query = sink.start({"processingTime": "0 seconds"}, **options)
    try:
        # The first batch does not wait.
        wait_until(lambda: sink.values() == words(3), bound_s=BOUND_S)
        send(sink.bootstrap, name, numbered(4, start=3))
        wait_until(lambda: says_latest(query, name, 7), bound_s=BOUND_S)
        assert sink.values() == words(3)
        send(sink.bootstrap, name, numbered(6, start=7))
        wait_until(lambda: sink.values() == words(13), bound_s=BOUND_S)
    finally:
        query.stop()


def says_latest(query: StreamingQuery, topic: str, offset: int) -> bool:
    progress = query.lastProgress
    latest = progress["sources"][0]["latestOffset"] if progress else None
    return bool(latest) and json.loads(latest) == {topic: {"0": offset}}


def test_a_stream_rejects_ending_offsets(sink: Sink, topic: MakeTopic) -> None:
    with pytest.raises(Exception, match="option 'endingOffsets' is 'latest': a stream has no end"):
        sink.run(subscribe=topic(), endingOffsets="latest")
