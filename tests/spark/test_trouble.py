"""Brokers that die during a query and may restart, topics that are deleted and created again, and a full disk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.spark import reason
from tests.spark.patience import patiently
from tests.spark.producing import numbered, send
from tests.spark.test_stream import Sink, words
from tests.support.node_process import NodeProcess
from tests.support.ports import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
BOUND_S = 240
SOON_MS = "1500"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A separate broker with a topic `t` of three partitions."""
    with NodeProcess(tmp_path / "data") as running:
        make(running.bootstrap, "t", 3)
        yield running


def make(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([wanted])[topic].result(60)


def read(spark: SparkSession, node: NodeProcess, **options: str) -> DataFrame:
    reader = spark.read.format("klamm").option("kafka.bootstrap.servers", node.bootstrap)
    return reader.options(subscribe="t", **options).load()


def test_a_batch_query_continues_when_its_broker_restarts(spark: SparkSession, node: NodeProcess) -> None:
    send(node.bootstrap, "t", [one for number in range(3) for one in numbered(100, number, 100 * number)])
    rows = read(spark, node).rdd.toLocalIterator()  # runs a task when its rows are requested
    found = [next(rows).value for _ in range(100)]
    node.kill()
    node.start(timeout_s=BOUND_S)
    found += [row.value for row in rows]
    assert sorted(map(bytes, found)) == words(300)


def test_a_batch_query_reports_a_broker_that_stays_down(spark: SparkSession, node: NodeProcess) -> None:
    send(node.bootstrap, "t", [one for number in range(3) for one in numbered(100, number, 100 * number)])
    rows = read(spark, node, **{"kafka.default.api.timeout.ms": SOON_MS}).rdd.toLocalIterator()
    assert len([next(rows) for _ in range(100)]) == 100
    node.kill()
    with pytest.raises(Exception, match=r"(?s).*") as failed:
        list(rows)
    check_message(str(failed.value), node, "default.api.timeout.ms")


def check_message(text: str, node: NodeProcess, option: str) -> None:
    """Whether one line names the address, and the option for waiting longer."""
    lines = [line for line in text.splitlines() if node.bootstrap in line and option in line]
    assert lines, text


def test_a_stream_continues_when_its_broker_restarts(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    sink = Sink(spark, node.bootstrap, tmp_path / "checkpoint")
    send(node.bootstrap, "t", numbered(100))
    options = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    query = sink.start({"processingTime": "0 seconds"}, **options)
    try:
        wait_until(lambda: len(sink.values()) >= 30, bound_s=BOUND_S)
        node.kill()
        node.start(timeout_s=BOUND_S)
        send(node.bootstrap, "t", numbered(50, 1, 100))
        wait_until(lambda: len(sink.values()) == 150 or not query.isActive, bound_s=BOUND_S)
        assert query.exception() is None
        assert sink.values() == words(150)
    finally:
        query.stop()


def test_a_stream_reports_a_broker_that_stays_down_and_resumes(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    sink = Sink(spark, node.bootstrap, tmp_path / "checkpoint")
    send(node.bootstrap, "t", numbered(10))
    options = {"subscribe": "t", "startingOffsets": "earliest", "kafka.default.api.timeout.ms": SOON_MS}
    query = sink.start({"processingTime": "0 seconds"}, **options)
    try:
        wait_until(lambda: len(sink.values()) == 10, bound_s=BOUND_S)
        node.kill()
        wait_until(lambda: not query.isActive, bound_s=BOUND_S)
        check_message(str(query.exception()), node, "default.api.timeout.ms")
    finally:
        query.stop()
    node.start(timeout_s=BOUND_S)
    send(node.bootstrap, "t", numbered(5, 2, 10))
    sink.run(**options | {"kafka.default.api.timeout.ms": "60000"})
    assert sink.values() == words(15)


def test_a_sink_reports_a_broker_that_stays_down(spark: SparkSession, node: NodeProcess) -> None:
    node.kill()
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": "t", "kafka.max.block.ms": SOON_MS}
    frame = spark.range(5).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match=r"(?s).*") as failed:
        frame.write.format("klamm").mode("append").options(**options).save()
    check_message(str(failed.value), node, "max.block.ms")


# Topics and offsets that change during a stream


@pytest.fixture
def sink(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Sink:
    return Sink(spark, bootstrap, tmp_path / "checkpoint")


def test_a_recreated_topic_is_a_loss(sink: Sink, topic: MakeTopic) -> None:
    name = topic()
    send(sink.bootstrap, name, numbered(10))
    options = {"subscribe": name, "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "10"}
    sink.run(**options)
    admin = AdminClient({"bootstrap.servers": sink.bootstrap})
    admin.delete_topics([name])[name].result(30)
    make(sink.bootstrap, name)
    send(sink.bootstrap, name, numbered(4, start=10))
    with pytest.raises(Exception, match=f"the end of partition {name}-0 went back from offset 10 to 4"):
        sink.run(**options)
    sink.run(**options, failOnDataLoss="false")
    assert sink.values() == words(10), "what it has is passed over, as Spark's own source does"
    send(sink.bootstrap, name, numbered(3, start=10))
    sink.run(**options, failOnDataLoss="false")
    assert sink.values() == words(13)


@pytest.mark.parametrize("has_ids", [True, False], ids=["", "an old checkpoint"])
def test_a_recreated_topic_that_has_outgrown_its_old_end(sink: Sink, topic: MakeTopic, has_ids: bool) -> None:
    name = topic()
    send(sink.bootstrap, name, numbered(4))
    options = {"subscribe": name, "startingOffsets": "earliest"}
    sink.run(**options)
    if not has_ids:
        forget_topic_ids(sink.checkpoint)
        send(sink.bootstrap, name, numbered(2, start=4))
        sink.run(**options)
        assert sink.values() == words(6), "it is read on, and learns the id"
    create_again(sink.bootstrap, name)
    send(sink.bootstrap, name, numbered(9, start=10))
    with pytest.raises(Exception, match=rf"topic {name} was deleted and created again \(its id was .* and is "):
        sink.run(**options)
    before = sink.values()
    sink.run(**options, failOnDataLoss="false")
    assert len(sink.values()) > len(before), "as with Spark's own Kafka source, it continues at its offsets"
    send(sink.bootstrap, name, numbered(2, start=19))
    sink.run(**options)
    assert {b"19", b"20"} <= set(sink.values()), "the loss was reported once"


def create_again(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    make(bootstrap, topic)


def forget_topic_ids(checkpoint: Path) -> None:
    """Write the checkpoint as an older klamm would."""
    for file in (checkpoint / "offsets").iterdir():
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        if file.name.startswith("."):
            continue
        *head, offset = file.read_text().split("\n")
        found = json.loads(offset)
        assert found.pop("@ids")
        found.get("@initial", {}).pop("@ids", None)
        file.write_text("\n".join([*head, json.dumps(found)]))


def test_a_batch_query_reads_no_other_topic_than_it_was_planned_for(
    spark: SparkSession, bootstrap: str, topic: MakeTopic
) -> None:
    name = topic()
    send(bootstrap, name, numbered(4))
    reader = spark.read.format("klamm").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
    rows = reader.load().rdd  # planned now, read later
    create_again(bootstrap, name)
    send(bootstrap, name, numbered(9))
    with pytest.raises(Exception, match=r"and another one with id .* has its name") as failed:
        rows.collect()
    assert reason(failed.value).startswith(f"some data is lost: partition {name}-0, [0, 4)")


def test_a_bootstrap_server_that_refuses_is_named_soon(spark: SparkSession, bootstrap: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    message = f"nothing listens at bootstrap.servers={address}, tried for 5000 ms"
    options = {"kafka.bootstrap.servers": address}
    with pytest.raises(Exception, match=message) as failed:
        spark.read.format("klamm").options(**options, subscribe="t").load().count()
    assert reason(failed.value).startswith(f"cannot find the partitions of t: {message}")
    writer = spark.range(5).selectExpr("cast(id as string) as value").write.format("klamm").mode("append")
    with pytest.raises(Exception, match=message):
        writer.options(**options, topic="t").save()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_sink_without_a_broker_fails_soon(spark: SparkSession, tmp_path: Path, guarantee: str) -> None:
    """The source does not know the address, so the first batch of the sink finds that nothing listens there."""
    address = f"127.0.0.1:{free_port()}"
    stream = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value").writeStream
    options = {"kafka.bootstrap.servers": address, "topic": "t", "deliveryGuarantee": guarantee}
    writer = stream.format("klamm").options(**options, checkpointLocation=str(tmp_path / "state"))
    with pytest.raises(Exception, match=rf"nothing listens at bootstrap\.servers={address}, tried for 2000 ms"):
        patiently(lambda: writer.start().awaitTermination())


def test_records_that_were_deleted_before_a_stream_read_them(sink: Sink, topic: MakeTopic) -> None:
    name = topic()
    send(sink.bootstrap, name, numbered(5))
    options = {"subscribe": name, "startingOffsets": "earliest"}
    sink.run(**options)
    send(sink.bootstrap, name, numbered(10, start=5))
    partition = TopicPartition(name, 0, 9)
    admin = AdminClient({"bootstrap.servers": sink.bootstrap})
    admin.delete_records([partition])[partition].result(30)
    message = rf"some data is lost: partition {name}-0 holds \[9, 15\), but \[5, 15\) is needed"
    with pytest.raises(Exception, match=message):
        sink.run(**options)
    sink.run(**options, failOnDataLoss="false")
    assert sink.values() == sorted([*words(5), *words(15, 9)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "{"}, "option 'startingOffsets' is '{': it is no JSON"),
        ({"startingOffsets": '{"NAME": {"0": 0, "7": 0}}'}, "option 'startingOffsets' names NAME-7, which is not"),
        ({"startingOffsets": '{"NAME": {"0": 0}}', "subscribePattern": "NAME.*"}, "subscribe and subscribePattern"),
        ({"assign": '{"NAME": [0, 3]}', "subscribe": ""}, "subscribe and assign"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "9"}, "minOffsetsPerTrigger"),
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}, "127.0.0.1:1"),
    ],
)
def test_an_invalid_stream_gives_the_reason(
    sink: Sink, topic: MakeTopic, options: dict[str, str], message: str
) -> None:
    name = topic()
    given = {"subscribe": name} | {key: value.replace("NAME", name) for key, value in options.items()}
    with pytest.raises(Exception, match=r"(?s).*") as refused:
        sink.run(**given)
    assert message.replace("NAME", name) in str(refused.value)


# A full disk


class SmallDisk(NodeProcess):
    """A node whose files are limited to a few MiB."""

    file_mib: int | None = 24

    def command(self) -> list[str]:
        command = list(super().command())
        if self.file_mib is None:
            return command
        return ["bash", "-c", f'ulimit -f {self.file_mib * 1024}; exec "$@"', "-", *command]


def test_a_full_disk_fails_the_query_which_resumes_later(spark: SparkSession, tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "data") as node:
        make(node.bootstrap, "t")
        frame = spark.range(40_000, numPartitions=1).selectExpr("repeat(cast(id as string), 200) as value")
        options = {"kafka.bootstrap.servers": node.bootstrap, "topic": "t"}
        options |= {"kafka.max.block.ms": "5000", "kafka.delivery.timeout.ms": "5000"}
        with pytest.raises(Exception, match=r"(?s).*") as failed:
            frame.write.format("klamm").mode("append").options(**options).save()
        # A broker whose only disk has failed stops, as Apache Kafka's does.
        assert node.bootstrap in str(failed.value)
        assert re.search("records were not delivered, the first of them to t-0|of t: no answer", str(failed.value))
        assert node.wait(BOUND_S) != 0
        node.file_mib = None
        node.start(timeout_s=BOUND_S)
        frame.limit(10).write.format("klamm").mode("append").options(**options).save()
        rows = read(spark, node).selectExpr("offset", "value").collect()
        values = [bytes(row.value) for row in sorted(rows, key=lambda row: row.offset)]
        assert [row.offset for row in sorted(rows, key=lambda row: row.offset)] == list(range(len(rows)))
        whole = [str(number).encode() * 200 for number in range(40_000)]
        assert values[:-10] == whole[: len(values) - 10]
        assert values[-10:] == whole[:10]
