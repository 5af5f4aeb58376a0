"""Splits ranges by bytes, so that a task reads about as many as the option `maxBytesPerPartition` says. Pure.

A broker does not report the bytes between two offsets, and reports the size of a partition only to clients that may
describe the cluster. A few small fetches are sufficient for an estimate: the decompressed bytes of keys, values and
headers per offset, which a task has to hold and transfer.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm.spark.ranges.offsets import OffsetRange

SAMPLES: Final = 4
"""Samples per range: the size of records may change over time."""


@dataclass(frozen=True, slots=True)
class Density:
    """The estimated bytes per offset, from offset `start` to the start of the next sample."""

    start: int
    bytes_per_offset: float


def places(wanted: OffsetRange) -> list[int]:
    """The offsets of the samples: the beginnings of equal parts."""
    return sorted({wanted.start + wanted.size * number // SAMPLES for number in range(SAMPLES)})


def cut_by_bytes(wanted: OffsetRange, densities: Sequence[Density], bytes_max: int) -> list[OffsetRange]:
    """Pieces with about equal bytes, at most about `bytes_max`; the whole range without samples.

    `densities` are ordered by offset; the first one also applies to the offsets before it.
    """
    if not densities or wanted.size <= 0:
        return [wanted]
    starts = [wanted.start, *(density.start for density in densities[1:]), wanted.end]
    parts = [
        (end - start) * max(density.bytes_per_offset, 0.0)
        for (start, end), density in zip(itertools.pairwise(starts), densities, strict=True)
    ]
    bytes_before = [0.0, *itertools.accumulate(parts)]
    total = bytes_before[-1]
    pieces = min(math.ceil(total / bytes_max), wanted.size)
    edges = {wanted.start, wanted.end}
    for number in range(1, pieces):
        at = total * number / pieces
        part = bisect_right(bytes_before, at, hi=len(parts)) - 1
        edges.add(starts[part] + math.floor((at - bytes_before[part]) / densities[part].bytes_per_offset))
    return [OffsetRange(wanted.partition, start, end) for start, end in itertools.pairwise(sorted(edges))]
