"""kafka-python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.moments import HOUR_AGO_MS

Name = Callable[[str], str]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_round_trip(bootstrap: str, name: Name, codec: str | None) -> None:
    topic = name("topic")
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all", linger_ms=10)
    futures = [producer.send(topic, key=b"k", value=b"v%d" % n, headers=[("h", b"1")]) for n in range(200)]
    assert [future.get(30).offset for future in futures] == list(range(200))
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=15_000
    )
    found = [next(consumer) for _ in range(200)]
    consumer.close()
    assert [record.value for record in found] == [b"v%d" % n for n in range(200)]
    assert found[0].headers == [("h", b"1")]


def test_group_commits(bootstrap: str, name: Name) -> None:
    topic, group = name("topic"), name("group")
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for n in range(10):
        producer.send(topic, b"%d" % n)
    producer.flush(30)
    producer.close()
    settings = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(topic, enable_auto_commit=False, consumer_timeout_ms=15_000, **settings)
    for _ in range(5):
        next(consumer)
    consumer.commit()
    consumer.close()
    again = KafkaConsumer(topic, enable_auto_commit=False, consumer_timeout_ms=15_000, **settings)
    assert next(again).value == b"5"
    assert again.committed(TopicPartition(topic, 0)) == 5
    again.close()


def test_offsets(bootstrap: str, name: Name) -> None:
    topic = name("topic")
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for n in range(10):
        producer.send(topic, b"x", timestamp_ms=HOUR_AGO_MS + n)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    found = consumer.offsets_for_times({partition: HOUR_AGO_MS + 3})[partition]
    assert found is not None
    assert found.offset == 3
    consumer.close()


def test_keys_headers_tombstones_and_timestamps(bootstrap: str, name: Name) -> None:
    topic, at_ms = name("topic"), HOUR_AGO_MS + 123
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.send(topic, key=b"k", value=None, headers=[("a", b"1"), ("a", b"2"), ("empty", b"")], timestamp_ms=at_ms)
    producer.send(topic, key=None, value=b"")
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=15_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    first, second = next(consumer), next(consumer)
    consumer.close()
    assert (first.key, first.value, first.timestamp) == (b"k", None, at_ms)
    assert first.headers == [("a", b"1"), ("a", b"2"), ("empty", b"")]
    assert (second.key, second.value) == (None, b"")
