"""Reads a whole topic with librdkafka."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.waiting import wait_until

CALL_S: Final = 5.0


class WholeTopic(NamedTuple):
    """By partition, the offsets and values of its records, and the end offset when reading began."""

    records: dict[int, list[tuple[int, str]]]
    ends: dict[int, int]


def ends_of(bootstrap: str, topic: str, partitions: int, isolation: str, bound_s: float) -> dict[int, int]:
    """The high watermarks, or the last stable offsets for read_committed.

    librdkafka keeps asking the leaders that it knows even after they have died, so each attempt uses a new client.
    """
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    places: dict[TopicPartition, OffsetSpec] = {
        TopicPartition(topic, at): OffsetSpec.latest() for at in range(partitions)
    }
    ends: dict[int, int] = {}
    errors: list[KafkaException] = []

    def are_known() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        try:
            asked = admin.list_offsets(places, isolation_level=level, request_timeout=CALL_S)
            ends.update({place.partition: future.result(2 * CALL_S).offset for place, future in asked.items()})
        except KafkaException as error:  # the leader has just been elected, or has just died
            errors.append(error)
            return False
        return min(ends.values()) >= 0  # negative if librdkafka got no answer

    wait_until(are_known, lambda: errors[-1:], bound_s=bound_s)
    return ends


def read_topic(
    bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_uncommitted", bound_s: float = 120
) -> WholeTopic:
    """Read every partition from its first record to its end."""
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
    places = [TopicPartition(topic, at, 0) for at in range(partitions)]
    whole = WholeTopic(defaultdict(list), ends_of(bootstrap, topic, partitions, isolation, bound_s))
    consumer.assign(places)
    unfinished = {partition for partition, end in whole.ends.items() if end > 0}
    deadline = time.monotonic() + bound_s
    while unfinished:
        assert time.monotonic() < deadline, f"{sorted(unfinished)} of {topic} did not come to their ends"
        message = consumer.poll(1)
        error = None if message is None else message.error()
        if message is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
            continue  # e.g. a dead broker; the error names no partition
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        end = whole.ends[partition]
        if error is None and isinstance(value, bytes) and offset < end:
            whole.records[partition].append((offset, value.decode()))
        # The last offset may be a marker, which is not returned: then the next record or the end of the log follows.
        if offset >= (end - 1 if error is None else end):
            unfinished.discard(partition)
    consumer.close()
    return whole
