"""Read a whole topic with librdkafka."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition


class WholeTopic(NamedTuple):
    """By partition, the offsets and values of its records, and where reading ended."""

    records: dict[int, list[tuple[int, str]]]
    ends: dict[int, int]


def read_topic(
    bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_uncommitted", bound_s: float = 120
) -> WholeTopic:
    """Every partition from its first record to its end, which for read_committed is the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "log",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
    whole = WholeTopic(defaultdict(list), {})
    deadline = time.monotonic() + bound_s
    while len(whole.ends) < partitions:
        assert time.monotonic() < deadline, f"only {sorted(whole.ends)} of {topic} came to their end"
        message = consumer.poll(1)
        if message is None:
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        error = message.error()
        if error is None and isinstance(value, bytes):
            whole.records[partition].append((offset, value.decode()))
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            whole.ends[partition] = offset
    consumer.close()
    return whole
