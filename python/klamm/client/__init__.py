"""A client of klamm's and Apache Kafka's brokers, implemented in Rust, for Spark, tools and tests.

    with KafkaClient("localhost:9092") as client:
        end = client.offsets("orders", {0: -1})[0]
        offset = client.offsets("orders", {0: -2})[0]
        while offset < end:
            fetched = client.fetch("orders", 0, offset, end, columns=["key", "value", "offset"])
            batch = pyarrow.record_batch(fetched)
            offset = fetched.next_offset

        client.produce("copies", None, batch["key"], batch["value"])
        client.flush()

Records are received as decompressed and decoded Arrow columns, only the requested ones, and are sent as Arrow columns.
"""

from __future__ import annotations

from klamm._engine.client import (
    BrokerError,
    ClientError,
    ClientTimeoutError,
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
from klamm._engine.config import ConfigError

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
