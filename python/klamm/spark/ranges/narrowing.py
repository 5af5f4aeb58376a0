"""Reduces ranges by filters on topic, partition, offset and timestamp. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.ranges.offsets import OffsetRange

Test = Callable[[object], bool]


@dataclass(slots=True)
class Narrowing:
    """A conjunction of filters, as far as planning can use them.

    1. `topic` and `partition` decide completely: a partition that fails one has no matching rows.
    2. Rows outside of [offset_start, offset_end) fail; rows inside may match.
    3. Rows before the first one with a timestamp of `timestamp_start_ms` or later fail. There is no such end, because
       the timestamps of a log are not ordered.
    """

    topic: list[Test] = field(default_factory=list)
    partition: list[Test] = field(default_factory=list)
    offset_start: int = 0
    offset_end: int = 2**63 - 1
    timestamp_start_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether rows of this partition can match."""
        return all(test(partition.topic) for test in self.topic) and all(
            test(partition.partition) for test in self.partition
        )

    def start_at(self, offset: int) -> None:
        """No row before `offset` matches."""
        self.offset_start = max(self.offset_start, offset)

    def end_at(self, offset: int) -> None:
        """No row from `offset` on matches."""
        self.offset_end = min(self.offset_end, offset)

    def start_at_timestamp(self, timestamp_ms: int) -> None:
        """No row with an earlier timestamp matches."""
        self.timestamp_start_ms = max(timestamp_ms, self.timestamp_start_ms or timestamp_ms)

    def apply(self, ranges: list[OffsetRange], by_timestamp: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """The remaining ranges; `by_timestamp` has the offsets of `timestamp_start_ms`, if they were requested."""
        left: list[OffsetRange] = []
        for one in ranges:
            start = max(one.start, self.offset_start, by_timestamp.get(one.partition, 0))
            end = min(one.end, self.offset_end)
            if self.keeps(one.partition) and start < end:
                left.append(OffsetRange(one.partition, start, end))
        return left
