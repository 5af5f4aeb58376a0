"""A client of brokers, klamm's and Apache Kafka's alike, whose bytes move in Rust: for Spark, tools and tests.

    with KafkaClient("localhost:9092") as client:
        end = client.offsets("orders", {0: -1})[0]
        offset = client.offsets("orders", {0: -2})[0]
        while offset < end:
            fetched = client.fetch("orders", 0, offset, end, columns=["key", "value", "offset"])
            batch = pyarrow.record_batch(fetched)
            offset = fetched.next_offset

        client.produce("copies", None, batch["key"], batch["value"])
        client.flush()

Records come decompressed and decoded as Arrow columns, only those that are asked for, and go as Arrow columns.
"""

from __future__ import annotations

from klamm._engine import (
    BrokerError,
    ClientError,
    ClientTimeoutError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    ConnectRefusedError,
    DamagedBatchError,
    FetchedSlice,
    KafkaClient,
    NotDeliveredError,
    NoTransactionsError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    SecurityError,
    TopicRecreatedError,
    UnreachableError,
    UnsupportedVersionError,
)

__all__ = [
    "BrokerError",
    "ClientError",
    "ClientTimeoutError",
    "ConfigError",
    "ConnectError",
    "ConnectRefusedError",
    "ConnectionLostError",
    "DamagedBatchError",
    "FetchedSlice",
    "KafkaClient",
    "NoTransactionsError",
    "NotDeliveredError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "SecurityError",
    "TopicRecreatedError",
    "UnreachableError",
    "UnsupportedVersionError",
]
