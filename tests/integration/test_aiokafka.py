"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.moments import HOUR_AGO_MS

Name = Callable[[str], str]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_round_trip(bootstrap: str, name: Name, codec: str | None) -> None:
    topic = name("topic")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all") as producer:
        sent = [await producer.send(topic, b"v%d" % n, key=b"k") for n in range(100)]
        offsets = [(await future).offset for future in sent]
    assert offsets == list(range(100))
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        found = [await asyncio.wait_for(consumer.getone(), 15) for _ in range(100)]
    assert [record.value for record in found] == [b"v%d" % n for n in range(100)]


async def test_idempotent_producer_and_group(bootstrap: str, name: Name) -> None:
    topic, group = name("topic"), name("group")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for n in range(20):
            await producer.send_and_wait(topic, b"%d" % n)
    settings = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer(topic, enable_auto_commit=False, **settings)
    async with consumer:
        for _ in range(8):
            await asyncio.wait_for(consumer.getone(), 15)
        await consumer.commit()
        assert await consumer.committed(TopicPartition(topic, 0)) == 8
    again = AIOKafkaConsumer(topic, enable_auto_commit=False, **settings)
    async with again:
        assert (await asyncio.wait_for(again.getone(), 15)).value == b"8"


async def test_keys_headers_tombstones_seek_and_offsets_by_time(bootstrap: str, name: Name) -> None:
    topic, at_ms = name("topic"), HOUR_AGO_MS
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait(topic, None, key=b"k", headers=headers, timestamp_ms=at_ms)
        for n in range(1, 10):
            await producer.send_and_wait(topic, b"%d" % n, timestamp_ms=at_ms + n)
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        first = await asyncio.wait_for(consumer.getone(), 15)
        assert (first.key, first.value, first.timestamp, list(first.headers)) == (b"k", None, at_ms, headers)
        consumer.seek(partition, 7)
        assert (await asyncio.wait_for(consumer.getone(), 15)).value == b"7"
        found = await consumer.offsets_for_times({partition: at_ms + 3})
        assert (found[partition].offset, found[partition].timestamp) == (3, at_ms + 3)
        assert await consumer.end_offsets([partition]) == {partition: 10}
