"""The records that `write.format("klamm")` writes, read by librdkafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from tests.spark.patience import patiently
from tests.spark.producing import numbered, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
BOUND_S = 240


def stored(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    """The first `count` messages of a topic; waits until there are that many."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Message] = []
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {count} came"
            assert message.error() is None, message.error()
            found.append(message)
        ends = sum(consumer.get_watermark_offsets(TopicPartition(topic, n), 30)[1] for n in range(partitions))
        assert ends == count, "there is more than was to be written"
        return found
    finally:
        consumer.close()


def write(frame: DataFrame, bootstrap: str, **options: str) -> None:
    writer = frame.write.format("klamm").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).save()


def test_every_column_is_written(spark: SparkSession, bootstrap: str, topic: MakeTopic) -> None:
    name = topic(2)
    frame = spark.sql(f"""
        select * from values
          ('a', binary('1'), '{name}', 0, timestamp '2024-01-01 00:00:00.007',
           array(named_struct('key', 'h', 'value', binary('v')))),
          (null, binary(''), '{name}', 1, timestamp '2024-01-02 00:00:00', null),
          ('c', null, '{name}', 1, null, null)
        as of(key, value, topic, partition, timestamp, headers)
    """)
    write(frame.coalesce(1), bootstrap)
    found = stored(bootstrap, name, 3, 2)
    rows = sorted((m.partition(), m.offset(), m.key(), m.value(), m.headers()) for m in found)
    assert rows == [
        (0, 0, b"a", b"1", [("h", b"v")]),
        (1, 0, None, b"", None),
        (1, 1, b"c", None, None),
    ]
    times = {message.value(): message.timestamp()[1] for message in found}
    assert times[b"1"] == 1_704_067_200_007
    assert times[b""] == 1_704_153_600_000
    assert times[None] > 1_704_153_600_000, "without a timestamp it is now"


def test_the_option_sets_the_topic_and_extra_columns_are_ignored(
    spark: SparkSession, bootstrap: str, topic: MakeTopic
) -> None:
    name = topic()
    frame = spark.range(1000, numPartitions=2).selectExpr("cast(id as string) as value", "'elsewhere' as topic", "id")
    write(frame, bootstrap, topic=name, **{"kafka.compression.type": "zstd"})
    values = sorted(int(message.value() or b"") for message in stored(bootstrap, name, 1000))
    assert values == list(range(1000))


def test_rows_go_to_the_topics_in_their_column(spark: SparkSession, bootstrap: str, topic: MakeTopic) -> None:
    even, odd = topic(), topic()
    frame = spark.range(10, numPartitions=1).selectExpr(
        "cast(id as string) as value", f"if(id % 2 = 0, '{even}', '{odd}') as topic"
    )
    write(frame, bootstrap)
    assert [message.value() for message in stored(bootstrap, even, 5)] == [b"0", b"2", b"4", b"6", b"8"]
    assert [message.value() for message in stored(bootstrap, odd, 5)] == [b"1", b"3", b"5", b"7", b"9"]


def test_a_stream_continues_after_a_restart(
    spark: SparkSession, bootstrap: str, topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = topic(2), topic()
    for start in (0, 10):
        send(bootstrap, source, numbered(5, 0, start) + numbered(5, 1, start + 5))
        reader = spark.readStream.format("klamm").option("kafka.bootstrap.servers", bootstrap)
        stream = reader.options(subscribe=source, startingOffsets="earliest").load().select("key", "value")
        writer = stream.writeStream.format("klamm").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        writer = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
        assert patiently(lambda: writer.start().awaitTermination(BOUND_S))  # noqa: B023 - called here
        values = sorted(int(message.value() or b"") for message in stored(bootstrap, target, start + 10))
        assert values == list(range(start + 10))


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("select 'x' as value", {}, "no topic to write to: set the option topic, or add a column topic"),
        ("select 'x' as key", {"topic": "t"}, "there is no column 'value' to write; the columns are key"),
        ("select 1 as value", {"topic": "t"}, "column 'value' is int; it must be binary or string"),
        ("select 'x' as value, null as topic", {}, "column 'topic' is void; it must be string"),
        ("select 'x' as value", {"topics": "t"}, "option 'topics' ('t') is not known; did you mean 'topic'?"),
        ("select 'x' as value", {"topic": "t", "kafka.transactional.id": "i"}, "use deliveryGuarantee=exactly-once"),
        ("select 'x' as value", {"topic": "t", "kafka.acks": "1"}, "kafka.acks=1"),
        ("select 'x' as value, string(null) as topic", {}, "the column topic is null in a row"),
    ],
)
def test_invalid_rows_are_rejected(
    spark: SparkSession, bootstrap: str, query: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as refused:
        write(spark.sql(query), bootstrap, **options)
    assert message in str(refused.value)


def test_a_record_that_is_too_large_is_named(spark: SparkSession, bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    with pytest.raises(
        Exception, match=rf"for {name} takes 20000\d\d bytes, max\.request\.size allows 1048576: raise it"
    ):
        write(spark.sql("select repeat('x', 2000000) as value"), bootstrap, topic=name)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, bootstrap: str) -> None:
    writer = spark.sql("select 'x' as value").write.format("klamm").mode("overwrite").option("topic", "t")
    with pytest.raises(Exception, match=r"a topic cannot be overwritten: write with mode\('append'\)"):
        writer.option("kafka.bootstrap.servers", bootstrap).save()
