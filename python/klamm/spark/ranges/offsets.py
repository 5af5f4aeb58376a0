"""Offsets of partitions: their JSON, and the ranges that a batch reads. Pure: offsets of the cluster are arguments.

The JSON is that of Spark's own Kafka source, `{"topic": {"0": 23}}`, so that a query can continue its checkpoint.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.protocol.topic_partition import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
_INT64_MAX: Final = 2**63 - 1


Offsets = dict[TopicPartition, int]
"""The next offset to read per partition; or a start or end, which may be EARLIEST or LATEST."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records [start, end) of a partition, which one task reads."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; a compacted or transactional log has fewer records."""
        return self.end - self.start


# ---- JSON ----


def parse_offsets(text: str) -> Offsets:
    """Parse `{"topic": {"0": 23, "1": -1}}`; the ValueError states the problem."""
    found = _parse_object(text)
    offsets: Offsets = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"topic '{topic}' must have an object of partitions, not {json.dumps(partitions)}")
        for partition, offset in partitions.items():
            if not isinstance(offset, int) or isinstance(offset, bool) or not -(2**63) <= offset <= _INT64_MAX:
                raise ValueError(f"{topic}-{partition} must have a whole number, not {json.dumps(offset)}")
            offsets[TopicPartition(topic, _parse_partition(topic, partition))] = offset
    return offsets


def parse_partitions(text: str) -> frozenset[TopicPartition]:
    """Parse `{"topic": [0, 1]}`; the ValueError states the problem."""
    partitions: set[TopicPartition] = set()
    for topic, numbers in _parse_object(text).items():
        if not isinstance(numbers, list):
            raise ValueError(f"topic '{topic}' must have a list of partitions, not {json.dumps(numbers)}")
        partitions |= {TopicPartition(topic, _parse_partition(topic, number)) for number in numbers}
    return frozenset(partitions)


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as JSON values, ordered by topic and partition, so that equal offsets give equal text."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def flat(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `nested`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _parse_object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object of topics")
    return found


def _parse_partition(topic: str, partition: object) -> int:
    try:
        number = int(partition) if isinstance(partition, str | int) and not isinstance(partition, bool) else -1
    except ValueError:
        number = -1
    if not 0 <= number < 2**31:
        raise ValueError(f"{json.dumps(partition)} is no partition of topic '{topic}'")
    return number


# ---- the end of a micro-batch ----


def limit_rows(rows_max: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """The offsets at most `rows_max` after `start`: each partition gets a share proportional to its lag.

    A share below one is one, so that small partitions do not starve beside large ones; the sum may then exceed
    `rows_max` by less than the number of partitions, as with Spark's own source. Partitions with nothing to read, or
    without a start because they no longer exist, keep their latest offset.
    """
    sizes = {partition: end - start.get(partition, end) for partition, end in latest.items()}
    sizes = {partition: size for partition, size in sizes.items() if size > 0}
    total = sum(sizes.values())
    end = dict(latest)
    for partition, size in sizes.items():
        share = max(1, rows_max * size // total)
        end[partition] = start[partition] + min(size, share)
    return end


def count_rows(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """The number of offsets between start and latest."""
    return sum(max(0, end - start.get(partition, end)) for partition, end in latest.items())


# ---- the ranges of the tasks ----


def split(
    ranges: Iterable[OffsetRange], *, tasks_min: int | None = None, rows_max: int | None = None
) -> list[OffsetRange]:
    """The non-empty ranges, none above `rows_max` offsets, split into about `tasks_min` pieces if they are fewer.

    A partition is split in proportion to its share of all offsets; partitions with a share of one piece are not split.
    """
    found = [one for one in ranges if one.size > 0]
    if rows_max is not None:
        found = [piece for one in found for piece in _cut(one, math.ceil(one.size / rows_max))]
    if tasks_min is None or len(found) >= tasks_min:
        return found
    total = sum(one.size for one in found)
    whole = [one for one in found if _share(one.size, total, tasks_min) == 1]
    total_cut = total - sum(one.size for one in whole)
    pieces_cut = max(1, tasks_min - len(whole))
    kept = frozenset(whole)
    return [
        piece for one in found for piece in _cut(one, 1 if one in kept else _share(one.size, total_cut, pieces_cut))
    ]


def _share(size: int, total: int, pieces: int) -> int:
    return max(1, math.floor(size / total * pieces + 0.5))


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Pieces of equal size, up to one offset; none is empty."""
    pieces = min(pieces, whole.size)
    edges = [whole.start + whole.size * number // pieces for number in range(pieces + 1)]
    return [OffsetRange(whole.partition, start, end) for start, end in itertools.pairwise(edges)]


# ---- missing offsets ----


@dataclass(frozen=True, slots=True)
class Plan:
    """Ranges to read, and messages about requested offsets that no longer exist."""

    ranges: list[OffsetRange]
    lost: list[str]


def recreated(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Messages about topics that were deleted and created again, by their ids. Topics without ids are skipped."""
    return [
        f"topic {topic} was deleted and created again (its id was {before[topic]} and is {after[topic]})"
        for topic in sorted(before.keys() & after.keys())
        if before[topic] != after[topic]
    ]


def plan_stream(start: Offsets, end: Offsets, earliest_of_new: Offsets) -> Plan:
    """The plan of a micro-batch: [start, end) of each partition of `end`.

    `earliest_of_new` has the earliest offsets of the partitions of `end` that are not in `start`. Records are lost
    between 0 and the earliest offset of a new partition, in a partition that no longer exists, and if an end is before
    its start, which happens when a topic is deleted and created again.
    """
    ranges: list[OffsetRange] = []
    lost: list[str] = []
    for partition in sorted(end):
        first = start.get(partition, earliest_of_new.get(partition))
        if first is None:
            lost.append(f"partition {partition} was added and is gone again")
        elif end[partition] < first:
            lost.append(f"the end of partition {partition} went back from offset {first} to {end[partition]}")
        else:
            ranges.append(OffsetRange(partition, first, end[partition]))
            if partition not in start and first > 0:
                lost.append(f"the new partition {partition} starts with offset {first} and not with 0")
    lost.extend(f"partition {partition} is gone" for partition in sorted(start.keys() - end.keys()))
    return Plan(ranges, lost)


def plan_batch(start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets) -> Plan:
    """The plan of a batch query: [start, end), without offsets that the log no longer has or does not have yet.

    All four arguments have the same partitions.
    """
    ranges: list[OffsetRange] = []
    lost: list[str] = []
    for partition in sorted(end):
        low, high = earliest[partition], latest[partition]
        first = _resolve(start[partition], low, high)
        last = _resolve(end[partition], low, high)
        if first < low:
            lost.append(f"partition {partition} starts with offset {low}, offset {first} was asked for")
        if max(first, last) > high:
            lost.append(f"partition {partition} ends with offset {high}, offset {max(first, last)} was asked for")
        first, last = max(first, low), min(last, high)
        if first < last:
            ranges.append(OffsetRange(partition, first, last))
    return Plan(ranges, lost)


def resolve(offsets: Mapping[TopicPartition, int], earliest: Offsets, latest: Offsets) -> Offsets:
    """Replace EARLIEST and LATEST by offsets, for the partitions that all three have."""
    return {
        partition: _resolve(offset, earliest[partition], latest[partition])
        for partition, offset in offsets.items()
        if partition in earliest and partition in latest
    }


def _resolve(offset: int, earliest: int, latest: int) -> int:
    return {EARLIEST: earliest, LATEST: latest}.get(offset, offset)


def describe(partitions: Collection[TopicPartition]) -> str:
    """The first few partitions, for a message."""
    shown = ", ".join(str(one) for one in sorted(partitions)[:5])
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"
