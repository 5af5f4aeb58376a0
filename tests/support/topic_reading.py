"""Read a whole topic with librdkafka."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from klamm.protocol.errors import ErrorCode
from tests.support.waiting import wait_until


class WholeTopic(NamedTuple):
    """By partition, the offsets and values of its records, and the end when reading began."""

    records: dict[int, list[tuple[int, str]]]
    ends: dict[int, int]


def end_of(consumer: Consumer, place: TopicPartition, bound_s: float = 60) -> int:
    """The high watermark, or for read_committed the last stable offset.

    A leader that was just elected does not know it at once, and this call of librdkafka does not repeat.
    """
    ends: list[int] = []

    def is_known() -> bool:
        try:
            ends.append(consumer.get_watermark_offsets(place, bound_s)[1])
        except KafkaException as error:
            if error.args[0].code() != ErrorCode.OFFSET_NOT_AVAILABLE:
                raise
        return bool(ends)

    wait_until(is_known, bound_s=bound_s)
    return ends[0]


def read_topic(
    bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_uncommitted", bound_s: float = 120
) -> WholeTopic:
    """Every partition from its first record to its end."""
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
    whole = WholeTopic(defaultdict(list), {each.partition: end_of(consumer, each, bound_s) for each in places})
    consumer.assign(places)
    unfinished = {partition for partition, end in whole.ends.items() if end > 0}
    deadline = time.monotonic() + bound_s
    while unfinished:
        assert time.monotonic() < deadline, f"{sorted(unfinished)} of {topic} did not come to their ends"
        message = consumer.poll(1)
        if message is None:
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        error, end = message.error(), whole.ends[partition]
        if error is None and isinstance(value, bytes) and offset < end:
            whole.records[partition].append((offset, value.decode()))
        # The last one may be a marker, which is not returned: then the next record or the end of the log follows.
        is_at_end = error is not None and error.code() == KafkaError._PARTITION_EOF and offset >= end
        if is_at_end or (error is None and offset >= end - 1):
            unfinished.discard(partition)
    consumer.close()
    return whole
