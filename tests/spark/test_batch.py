"""`spark.read.format("klamm")` compared with the written records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark.producing import Sent, numbered, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
TIME_MS = 1_700_000_000_000
TIME = datetime(2023, 11, 14, 22, 13, 20)


@pytest.fixture
def read(spark: SparkSession, bootstrap: str) -> Callable[..., DataFrame]:
    """Reads with the options given."""

    def load(**options: str) -> DataFrame:
        reader = spark.read.format("klamm").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return load


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def test_columns_and_types_are_those_of_spark_s_own_source(read: Callable[..., DataFrame], topic: MakeTopic) -> None:
    name = topic()
    assert read(subscribe=name).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert (
        read(subscribe=name, includeHeaders="true")
        .schema.simpleString()
        .endswith(",headers:array<struct<key:string,value:binary>>>")
    )


def test_every_column_of_every_record(read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str) -> None:
    name = topic(2)
    sent = [
        Sent(b"plain", b"k", 0, TIME_MS),
        Sent(None, b"tombstone", 0, TIME_MS + 1),
        Sent(b"", None, 1, TIME_MS + 2, (("a", b"1"), ("a", None), ("\u00fc", b""))),
    ]
    send(bootstrap, name, sent)
    rows = read(subscribe=name, includeHeaders="true").orderBy("partition", "offset").collect()
    found = [
        (row.key, row.value, row.topic, row.partition, row.offset, row.timestamp, row.timestampType, row.headers)
        for row in rows
    ]
    ms = timedelta(milliseconds=1)
    headers = [("a", b"1"), ("a", None), ("\u00fc", b"")]
    assert found == [
        (b"k", b"plain", name, 0, 0, TIME, 0, None),
        (b"tombstone", None, name, 0, 1, TIME + ms, 0, None),
        (None, b"", name, 1, 0, TIME + 2 * ms, 0, headers),
    ]


def test_a_schema_selects_columns(spark: SparkSession, topic: MakeTopic, bootstrap: str) -> None:
    name = topic()
    send(bootstrap, name, numbered(3))
    reader = spark.read.format("klamm").schema("offset long, value binary")
    frame = reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", name).load()
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_the_option_columns_selects_columns(read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str) -> None:
    name = topic()
    send(bootstrap, name, [Sent(b'{"id": 7}', b"k", headers=(("a", b"1"),))])
    frame = read(subscribe=name, columns="offset, value")
    assert frame.schema.simpleString() == "struct<offset:bigint,value:binary>"
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [(0, b'{"id": 7}')]
    json = {"value.format": "json", "value.schema": "id long"}
    frame = read(subscribe=name, columns="value,headers,topic", **json)
    assert [(row.value.id, row.headers, row.topic) for row in frame.collect()] == [(7, [("a", b"1")], name)]
    assert read(subscribe=name, columns="topic").count() == 1


def test_columns_and_another_schema_contradict(spark: SparkSession, topic: MakeTopic, bootstrap: str) -> None:
    reader = spark.read.format("klamm").schema("offset long").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(Exception, match="option 'columns' is 'value', and the schema has offset: say one of them"):
        reader.options(subscribe=topic(), columns="value").load().collect()


def test_ranges_are_cut_into_tasks_and_lose_nothing(
    read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str
) -> None:
    name = topic(2)
    send(bootstrap, name, numbered(100) + numbered(10, 1, 100))
    frame = read(subscribe=name, minPartitions="6")
    assert frame.rdd.getNumPartitions() == 6
    assert values(frame) == sorted(b"%d" % number for number in range(110))
    assert read(subscribe=name, maxRecordsPerPartition="30").rdd.getNumPartitions() == 5


def test_partitions_are_cut_by_bytes(read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str) -> None:
    """A skewed topic: one partition of many small records, one of few large ones, one empty."""
    name = topic(3)
    large = [Sent(b"%04d" % number * 5000, partition=1) for number in range(100)]
    send(bootstrap, name, numbered(100) + large)
    frame = read(subscribe=name, maxBytesPerPartition="500k")
    tasks: dict[int, list[bytes]] = {}
    for row in frame.selectExpr("spark_partition_id() as task", "value").collect():
        tasks.setdefault(row.task, []).append(bytes(row.value))
    small, *rest = sorted(tasks.values(), key=lambda task: sum(map(len, task)))
    assert sorted(small) == sorted(b"%d" % number for number in range(100))
    assert sorted(value for task in rest for value in task) == sorted(one.value or b"" for one in large)
    assert [len(task) for task in rest] == [25] * 4, "2 MB in pieces of 500 KiB"


def test_offsets_say_where_to_start_and_end(read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str) -> None:
    name = topic(2)
    send(bootstrap, name, numbered(10) + numbered(10, 1, 10))
    start, end = f'{{"{name}": {{"0": 3, "1": -2}}}}', f'{{"{name}": {{"0": 5, "1": -1}}}}'
    found = values(read(subscribe=name, startingOffsets=start, endingOffsets=end))
    assert found == sorted([b"3", b"4", *(b"%d" % number for number in range(10, 20))])
    assert values(read(assign=f'{{"{name}": [0]}}')) == [b"%d" % number for number in range(10)]


def test_timestamps_say_where_to_start_and_end(
    read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str
) -> None:
    name = topic()
    send(bootstrap, name, [Sent(b"%d" % n, timestamp_ms=TIME_MS + n * 1000) for n in range(10)])
    begin, end = str(TIME_MS + 2500), str(TIME_MS + 6000)
    assert values(read(subscribe=name, startingTimestamp=begin, endingTimestamp=end)) == [b"3", b"4", b"5"]
    by_partition = {"startingOffsetsByTimestamp": f'{{"{name}": {{"0": {end}}}}}'}
    assert values(read(subscribe=name, **by_partition)) == [b"6", b"7", b"8", b"9"]
    late = str(TIME_MS + 60_000)
    assert values(read(subscribe=name, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == []
    with pytest.raises(Exception, match=rf"partition {name}-0 has no record at or after {late} ms"):
        read(subscribe=name, startingTimestamp=late).collect()


def test_a_pattern_and_an_empty_topic(read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str) -> None:
    empty, one, two = topic(), topic(), topic()
    send(bootstrap, one, numbered(2))
    send(bootstrap, two, numbered(2, start=2))
    assert values(read(subscribePattern=f"{one}|{two}|{empty}")) == [b"0", b"1", b"2", b"3"]
    assert values(read(subscribe=empty)) == []
    assert values(read(subscribePattern="no-such-.*")) == []


def test_deleted_records_are_a_loss_if_an_offset_requests_them(
    read: Callable[..., DataFrame], bootstrap: str, topic: MakeTopic
) -> None:
    name = topic()
    send(bootstrap, name, numbered(10))
    delete_before(bootstrap, name, 4)
    assert values(read(subscribe=name)) == [b"4", b"5", b"6", b"7", b"8", b"9"]
    start = f'{{"{name}": {{"0": 2}}}}'
    with pytest.raises(Exception, match=f"some data is lost: partition {name}-0 starts with offset 4, offset 2 was"):
        read(subscribe=name, startingOffsets=start).collect()
    left = read(subscribe=name, startingOffsets=start, failOnDataLoss="false")
    assert values(left) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(30)


# Filters


@pytest.fixture
def pushing(spark: SparkSession) -> object:
    """Spark pushes filters down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


FILTERS = [
    ("partition = 1", 1),
    ("partition in (0, 1) and not partition = 0", 1),
    ("topic = 'nowhere'", 0),
    ("offset >= 5 and offset < 8", 2),
    ("offset = 3 and partition > 0", 1),
    ("offset in (2, 7)", 2),
    ("timestamp >= timestamp '2023-11-14 22:13:25'", 2),
    ("timestamp > timestamp '2023-11-14 22:13:25.5' and partition = 0", 1),
    ("timestamp < timestamp '2023-11-14 22:13:22'", 2),
    ("value = cast('3' as binary)", 2),
    ("offset = 1 or partition = 1", 2),
]


@pytest.mark.usefixtures("pushing")
def test_filters_that_are_pushed_down_change_no_answer(
    read: Callable[..., DataFrame], topic: MakeTopic, bootstrap: str, spark: SparkSession
) -> None:
    name = topic(2)
    sent = [Sent(b"%d" % n, b"k", p, TIME_MS + n * 1000) for n in range(10) for p in (0, 1)]
    send(bootstrap, name, sent)
    frame = read(subscribe=name)
    everything = spark.createDataFrame(frame.collect(), frame.schema)
    for text, tasks in FILTERS:
        expected = sorted(everything.filter(text).collect())
        narrowed = frame.filter(text)
        assert sorted(narrowed.collect()) == expected, text
        assert narrowed.rdd.getNumPartitions() == max(1, tasks), text


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingoffset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"failOnDataLoss": "perhaps"}, "option 'failOnDataLoss' is 'perhaps': it must be true or false"),
        (
            {"kafka.security.protocol": "TLS"},
            "kafka.security.protocol=TLS: it must be PLAINTEXT or SSL or SASL_PLAINTEXT",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"},
            "option kafka.ssl.truststore.type: JKS",
        ),
        ({"kafka.no.such.key": "1"}, "kafka.no.such.key"),
    ],
)
def test_wrong_options_fail_at_load(read: Callable[..., DataFrame], options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as refused:
        read(subscribe="t", **options)
    assert message in str(refused.value)


def test_what_is_not_there_is_named(read: Callable[..., DataFrame], topic: MakeTopic) -> None:
    name = topic()
    with pytest.raises(Exception, match="no-such-topic"):
        read(subscribe="no-such-topic").collect()
    with pytest.raises(Exception, match=f"option 'assign' names {name}-7"):
        read(assign=f'{{"{name}": [0, 7]}}').collect()
    with pytest.raises(Exception, match=rf"option 'startingOffsets' names {name}-3, which is not among"):
        read(subscribe=name, startingOffsets=f'{{"{name}": {{"0": 0, "3": 0}}}}').collect()


def test_an_unreachable_cluster_is_named(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.default.api.timeout.ms": "500"}
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        spark.read.format("klamm").options(**options).load().collect()
