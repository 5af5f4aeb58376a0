"""What filters on topic, partition, offset and timestamp leave of the ranges that are read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from klamm.spark.ranges.offsets import OffsetRange, TopicPartition

Test = Callable[[object], bool]


@dataclass(slots=True)
class Narrowing:
    """A conjunction of filters, as far as planning can use them.

    1. `topic` and `partition` decide wholly: a partition that fails one has no row that passes.
    2. Rows outside of [offset_start, offset_end) fail; those inside may.
    3. Rows before the first of `timestamp_start_ms` or later fail; nothing follows for the end, because the
       timestamps of a log are in no order.
    """

    topic: list[Test] = field(default_factory=list)
    partition: list[Test] = field(default_factory=list)
    offset_start: int = 0
    offset_end: int = 2**63 - 1
    timestamp_start_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether rows of this partition can pass."""
        return all(test(partition.topic) for test in self.topic) and all(
            test(partition.partition) for test in self.partition
        )

    def start_at(self, offset: int) -> None:
        """No row before `offset` passes."""
        self.offset_start = max(self.offset_start, offset)

    def end_at(self, offset: int) -> None:
        """No row from `offset` on passes."""
        self.offset_end = min(self.offset_end, offset)

    def start_at_timestamp(self, timestamp_ms: int) -> None:
        """No row with an earlier timestamp passes."""
        self.timestamp_start_ms = max(timestamp_ms, self.timestamp_start_ms or timestamp_ms)

    def apply(self, ranges: list[OffsetRange], by_timestamp: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """What is left to read; `by_timestamp` has where `timestamp_start_ms` is, where that was asked for."""
        left: list[OffsetRange] = []
        for one in ranges:
            start = max(one.start, self.offset_start, by_timestamp.get(one.partition, 0))
            end = min(one.end, self.offset_end)
            if self.keeps(one.partition) and start < end:
                left.append(OffsetRange(one.partition, start, end))
        return left
