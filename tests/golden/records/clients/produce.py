"""Produces the records of this folder's batches with three clients, through a broker that stores them unchanged.

Usage: produce.py HOST:PORT. Needs confluent-kafka, kafka-python and aiokafka with their compression extras, and a
broker with auto.create.topics.enable and log segments to copy: <client>-<codec>-0/00000000000000000000.log becomes
<client>-<codec>.bin.
"""

import asyncio
import sys

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

TIME_MS = 1_700_000_000_000
LINGER_MS = 500
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]


def rows() -> list[Row]:
    """Three unusual records, and sixty that compress well."""
    odd: list[Row] = [(b"key", b"value", [("source", b"test")]), (None, b"no key", []), (b"tombstone", None, [])]
    return odd + [(b"key-%d" % i, b'{"id":%d,"state":"shipped"},' % i * 30, []) for i in range(60)]


def produce_librdkafka(servers: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": LINGER_MS})
    for i, (key, value, headers) in enumerate(rows()):
        # Only librdkafka sends headers with null values.
        extra = [("none", None)] if headers else []
        producer.produce(
            f"librdkafka-{codec}", value, key, partition=0, timestamp=TIME_MS + i, headers=[*headers, *extra]
        )
    producer.flush(20)


def produce_kafka_python(servers: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers, compression_type=codec, linger_ms=LINGER_MS, batch_size=1_000_000
    )
    for i, (key, value, headers) in enumerate(rows()):
        producer.send(f"kafka-python-{codec}", value, key, partition=0, timestamp_ms=TIME_MS + i, headers=headers)
    producer.flush(20)
    producer.close()


async def produce_aiokafka(servers: str, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, compression_type=codec, linger_ms=LINGER_MS, max_batch_size=1_000_000
    )
    await producer.start()
    sent = [
        await producer.send(f"aiokafka-{codec}", value, key, partition=0, timestamp_ms=TIME_MS + i, headers=headers)
        for i, (key, value, headers) in enumerate(rows())
    ]
    await asyncio.gather(*sent)
    await producer.stop()


def main(servers: str) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        produce_librdkafka(servers, codec)
        produce_kafka_python(servers, codec)
        asyncio.run(produce_aiokafka(servers, codec))


if __name__ == "__main__":
    main(sys.argv[1])
