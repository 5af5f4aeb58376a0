"""Offsets of partitions: their JSON, and which ranges a batch reads. Pure: what the cluster says comes in as values.

The JSON is that of Spark's own Kafka source, `{"topic": {"0": 23}}`, so that a checkpoint of it can be read on.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

EARLIEST: Final = -2
LATEST: Final = -1
_INT64_MAX: Final = 2**63 - 1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]
"""The next offset to read of each partition; or where to start or end, with EARLIEST and LATEST."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records [start, end) of a partition: what one task reads."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in it; a compacted or transactional log has fewer records."""
        return self.end - self.start


# ---- JSON ----


def parse_offsets(text: str) -> Offsets:
    """`{"topic": {"0": 23, "1": -1}}`; ValueError says what is wrong with it."""
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
    """`{"topic": [0, 1]}`; ValueError says what is wrong with it."""
    partitions: set[TopicPartition] = set()
    for topic, numbers in _parse_object(text).items():
        if not isinstance(numbers, list):
            raise ValueError(f"topic '{topic}' must have a list of partitions, not {json.dumps(numbers)}")
        partitions |= {TopicPartition(topic, _parse_partition(topic, number)) for number in numbers}
    return frozenset(partitions)


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as JSON has them, in the order of topic and partition: equal offsets are equal text."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def flat(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The opposite of `nested`."""
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


# ---- which offsets a micro-batch ends with ----


def limit_rows(rows_max: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """The offsets at most `rows_max` after `start`: each partition gets its share of what it has.

    A share below one is one, so that no small partition starves beside large ones; the sum may then pass `rows_max` by
    less than the number of partitions, as with Spark's own source. What has nothing to read, or has no start because it
    is gone again, keeps its latest offset.
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
    """How many offsets lie between."""
    return sum(max(0, end - start.get(partition, end)) for partition, end in latest.items())


# ---- which ranges the tasks of a batch read ----


def split(
    ranges: Iterable[OffsetRange], *, tasks_min: int | None = None, rows_max: int | None = None
) -> list[OffsetRange]:
    """The ranges that are not empty, none above `rows_max` offsets, in about `tasks_min` pieces where they are fewer.

    A partition gets pieces by its share of all offsets; those whose share is one piece stay whole and count as one.
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


# ---- what is missing ----


@dataclass(frozen=True, slots=True)
class Plan:
    """Ranges to read, and what of the offsets that were asked for is not there any more, in words."""

    ranges: list[OffsetRange]
    lost: list[str]


def recreated(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """In words, which topics were deleted and created again, by their ids. What has no id on either side is unknown."""
    return [
        f"topic {topic} was deleted and created again (its id was {before[topic]} and is {after[topic]})"
        for topic in sorted(before.keys() & after.keys())
        if before[topic] != after[topic]
    ]


def plan_stream(start: Offsets, end: Offsets, earliest_of_new: Offsets) -> Plan:
    """What a micro-batch reads: [start, end) of each partition of `end`.

    `earliest_of_new` has the earliest offsets of those partitions of `end` that `start` lacks. Lost is what is between
    a partition's 0 and the earliest offset where it is new, a partition that is gone, and an end before its start,
    which a topic has that was deleted and made again.
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
    """What a batch query reads: [start, end), without what the log has no more or not yet.

    All four have the same partitions.
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
    """The offsets with what EARLIEST and LATEST are, of the partitions that all three have."""
    return {
        partition: _resolve(offset, earliest[partition], latest[partition])
        for partition, offset in offsets.items()
        if partition in earliest and partition in latest
    }


def _resolve(offset: int, earliest: int, latest: int) -> int:
    return {EARLIEST: earliest, LATEST: latest}.get(offset, offset)


def describe(partitions: Collection[TopicPartition]) -> str:
    """The first few, for a message."""
    shown = ", ".join(str(one) for one in sorted(partitions)[:5])
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"
