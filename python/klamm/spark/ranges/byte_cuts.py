"""Ranges cut by bytes: so that a task has about as many of them as the option `maxBytesPerPartition` says. Pure.

A broker does not tell how many bytes lie between two offsets, and only who may describe the cluster is told how many a
partition has. What a few small fetches bring tells enough: bytes of keys, values and headers for each offset there,
decompressed, as a task has to hold and ship them.
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
"""Places of a range that are looked at: records get longer and shorter in the course of time."""


@dataclass(frozen=True, slots=True)
class Density:
    """From the offset `start` on, up to where the next one begins, an offset has about so many bytes."""

    start: int
    bytes_per_offset: float


def places(wanted: OffsetRange) -> list[int]:
    """The offsets to take samples at: the beginnings of equal parts."""
    return sorted({wanted.start + wanted.size * number // SAMPLES for number in range(SAMPLES)})


def cut_by_bytes(wanted: OffsetRange, densities: Sequence[Density], bytes_max: int) -> list[OffsetRange]:
    """Pieces of about equal bytes, about `bytes_max` at most; the whole where nothing is known of it.

    `densities` are in the order of their offsets; what is before the first is as what follows it.
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
