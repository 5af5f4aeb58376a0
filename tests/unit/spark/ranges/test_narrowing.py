"""How filters narrow ranges."""

from __future__ import annotations

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.ranges.narrowing import Narrowing
from klamm.spark.ranges.offsets import OffsetRange

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RANGES = [OffsetRange(A0, 0, 10), OffsetRange(A1, 5, 20), OffsetRange(B0, 3, 4)]


def test_without_filters_all_is_read() -> None:
    assert Narrowing().apply(RANGES, {}) == RANGES


def test_topics_and_partitions_are_selected() -> None:
    narrowing = Narrowing(topic=[lambda topic: topic == "a"], partition=[lambda number: number == 1])
    assert narrowing.apply(RANGES, {}) == [OffsetRange(A1, 5, 20)]


def test_the_narrowest_bounds_hold() -> None:
    narrowing = Narrowing()
    for start, end in ((2, 9), (6, 18), (0, 30)):
        narrowing.start_at(start)
        narrowing.end_at(end)
    assert narrowing.apply(RANGES, {}) == [OffsetRange(A0, 6, 9), OffsetRange(A1, 6, 9)]


def test_a_timestamp_s_offset_is_a_start_of_its_partition() -> None:
    narrowing = Narrowing()
    narrowing.start_at_timestamp(5)
    narrowing.start_at_timestamp(4)
    assert narrowing.timestamp_start_ms == 5
    assert narrowing.apply(RANGES, {A1: 12, B0: 4}) == [OffsetRange(A0, 0, 10), OffsetRange(A1, 12, 20)]
