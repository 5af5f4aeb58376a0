"""klamm's own client produces to a node, or to the broker that KLAMM_TEST_BOOTSTRAP names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import klamm
from klamm._engine.spark import digest_rows
from klamm.client import ClientError, KafkaClient
from tests.support.moments import HOUR_AGO_MS

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COUNT = 3000


@pytest.fixture
def topic3(admin: AdminClient, name: Callable[[str], str]) -> str:
    """A topic of three partitions."""
    made = name("topic")
    admin.create_topics([NewTopic(made, 3, 1)])[made].result()
    return made


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaClient]:
    with KafkaClient(bootstrap) as made:
        yield made


def key_of(at: int) -> bytes | None:
    return None if at % 7 == 0 else b"k%d" % at


def value_of(at: int) -> bytes | None:
    return None if at % 5 == 0 else b"v" * (at % 200)


def headers_of(at: int) -> list[dict[str, Any]] | None:
    return [{"key": "h", "value": b"%d" % at}, {"key": "null", "value": None}] if at % 9 == 0 else None


def consumed(bootstrap: str, topic: str, partitions: int) -> list[list[Any]]:
    """All messages by partition, by librdkafka."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    rows: list[list[Any]] = []
    for partition in range(partitions):
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        messages: list[Any] = []
        while len(messages) < end:
            messages += consumer.consume(end - len(messages), timeout=30)
        rows.append(messages)
    consumer.close()
    return rows


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_what_was_produced(bootstrap: str, topic3: str, codec: str) -> None:
    keys = pa.array([key_of(at) for at in range(COUNT)], pa.binary())
    values = pa.array([value_of(at) for at in range(COUNT)], pa.large_binary())
    headers = pa.array([headers_of(at) for at in range(COUNT)], HEADERS)
    times = pa.array([(HOUR_AGO_MS + at) * 1000 for at in range(COUNT)], pa.timestamp("us", "UTC"))
    with KafkaClient(bootstrap, {"compression.type": codec, "batch.size": "5000"}) as client:
        for start in range(0, COUNT, 700):
            part = slice(start, start + 700)
            client.produce(topic3, 1, keys[part], values[part], headers[part], times[part])
        client.flush()
        assert client.offsets(topic3, {0: -1, 1: -1, 2: -1}) == {0: 0, 1: COUNT, 2: 0}
    for at, message in enumerate(consumed(bootstrap, topic3, 3)[1]):
        assert message.offset() == at
        assert message.key() == key_of(at)
        assert message.value() == value_of(at)
        assert message.timestamp() == (1, HOUR_AGO_MS + at)
        expected = headers_of(at)
        assert message.headers() == (expected and [(one["key"], one["value"]) for one in expected])


def test_keys_go_to_the_partitions_of_the_java_client(client: KafkaClient, bootstrap: str, topic3: str) -> None:
    keys = [b"key-%d" % at for at in range(500)]
    client.produce(topic3, None, pa.array(keys, pa.binary()), None)
    client.flush()
    ours = [[message.key() for message in rows] for rows in consumed(bootstrap, topic3, 3)]
    # librdkafka's murmur2 partitioner is the Java client's.
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
    theirs: dict[bytes, int] = {}
    for key in keys:
        producer.produce(
            topic3, None, key, on_delivery=lambda _, message: theirs.__setitem__(message.key(), message.partition())
        )
    assert producer.flush(30) == 0
    assert ours == [[key for key in keys if theirs[key] == partition] for partition in range(3)]


def test_partitions_by_row_and_strings(client: KafkaClient, bootstrap: str, topic3: str) -> None:
    partitions = pa.array([2, None, 0, 2], pa.int32())
    values = pa.array(["a", "b", "c", "d"], pa.string())
    client.produce(topic3, partitions, pa.array([None, "abc", None, None], pa.string()), values)
    client.flush()
    got = [[message.value() for message in rows] for rows in consumed(bootstrap, topic3, 3)]
    # murmur2("abc") is 479470107.
    expected: list[list[bytes]] = [[b"c"], [], [b"a", b"d"]]
    expected[479470107 % 3] = sorted([*expected[479470107 % 3], b"b"])
    assert [sorted(rows) for rows in got] == expected


def test_round_robin(bootstrap: str, topic3: str) -> None:
    round_robin = {"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    with KafkaClient(bootstrap, round_robin) as client:
        client.produce(topic3, None, None, pa.array([b"x"] * 30))
        client.flush()
        assert client.offsets(topic3, {0: -1, 1: -1, 2: -1}) == {0: 10, 1: 10, 2: 10}


def test_a_small_buffer_makes_producers_wait(bootstrap: str, topic: str) -> None:
    small = {"buffer.memory": "20000", "batch.size": "4000"}
    with KafkaClient(bootstrap, small) as client:
        client.produce(topic, 0, None, pa.array([b"x" * 100] * 5000))
        client.flush()
        assert client.offsets(topic, {0: -1}) == {0: 5000}


def test_lingering_batches_are_sent_without_a_flush(client: KafkaClient, topic: str) -> None:
    client.produce(topic, 0, None, pa.array([b"x"]))
    fetched = client.fetch(topic, 0, 0, 1, columns=["value"])
    while fetched.next_offset == 0:
        fetched = client.fetch(topic, 0, 0, 1, columns=["value"])
    assert pa.record_batch(fetched).to_pylist() == [{"value": b"x"}]


def test_rows_that_cannot_be_produced(client: KafkaClient, topic: str) -> None:
    one = pa.array([b"x"])
    with pytest.raises(ValueError, match=rf"{topic} has 1 partitions.* there is no 7"):
        client.produce(topic, 7, None, one)
    with pytest.raises(ClientError, match=r"record 1 for .* takes 2000016 bytes, max\.request\.size allows 1048576"):
        client.produce(topic, 0, None, pa.array([b"x", b"x" * 2_000_000]))
    with pytest.raises(TypeError, match=r"keys: binary or string.* not Arrow's type 'l'"):
        client.produce(topic, 0, pa.array([1]), None)
    with pytest.raises(TypeError, match="values: an Arrow array is wanted, not list"):
        client.produce(topic, 0, None, [b"x"])
    with pytest.raises(ValueError, match="1 and 2 rows"):
        client.produce(topic, 0, one, pa.array([b"x", b"y"]))
    with pytest.raises(ClientError, match=r"no transactional\.id"):
        client.begin_transaction()
    client.flush()
    assert client.offsets(topic, {0: -1}) == {0: 1}, "the row before the large one was taken"


def test_offsets_committed_by_another_client(
    client: KafkaClient, bootstrap: str, topic3: str, name: Callable[[str], str]
) -> None:
    group = name("group")
    assert client.committed(group) == client.committed(group, topic3) == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = [TopicPartition(topic3, 0, 5, metadata="first"), TopicPartition(topic3, 2, 7)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    for stable in (True, False):
        # confluent-kafka also counts the zero byte at the end of its text.
        found = [(*one, said.rstrip("\0")) for *one, said in client.committed(group, stable=stable)]
        assert sorted(found) == [(topic3, 0, 5, "first"), (topic3, 2, 7, "")]
        (only,) = client.committed(group, topic3, stable=stable)
        assert only[:3] == (topic3, 0, 5)


def test_a_digest_depends_only_on_the_rows() -> None:
    keys, values = pa.array([b"a", None, b"b"]), pa.array(["x", "y", None])
    whole = digest_rows("t", None, keys, values)
    parts = [digest_rows("t", None, keys[at : at + 1], values[at : at + 1]) for at in (2, 0, 1)]
    assert sum(parts) % 2**64 == whole
    # Text and bytes, or a partition per row and one for all, are the same rows.
    assert digest_rows("t", None, keys, values.cast(pa.binary())) == whole
    of_three = digest_rows("t", pa.array([3, 3, 3], pa.int32()), keys, values)
    assert of_three == digest_rows("t", 3, keys, values) != whole
    assert digest_rows("u", None, keys, values) != whole


def test_closing_the_client_ends_a_flush() -> None:
    with klamm.Cluster() as cluster:
        cluster.create_topic("orders")
        client = KafkaClient(cluster.bootstrap_servers, {"linger.ms": "3600000"})
        client.produce("orders", 0, None, pa.array([b"x"]))
    messages: list[str] = []

    def flush() -> None:
        with pytest.raises(ClientError) as error:
            client.flush()
        messages.append(str(error.value))

    # The broker is gone, so no acknowledgement arrives: unless closing ended the wait, it would take two minutes.
    waiting = threading.Thread(target=flush)
    waiting.start()
    client.close()
    waiting.join(30)
    assert messages == ["the client is closed"]
