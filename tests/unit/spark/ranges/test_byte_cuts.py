"""Ranges are divided by bytes, estimated from a few samples."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.ranges.byte_cuts import SAMPLES, Density, cut_by_bytes, places
from klamm.spark.ranges.offsets import OffsetRange

HERE = TopicPartition("a", 0)


def whole(start: int, end: int) -> OffsetRange:
    return OffsetRange(HERE, start, end)


def edges(pieces: list[OffsetRange]) -> list[int]:
    assert all(one.end == other.start for one, other in itertools.pairwise(pieces))
    return [pieces[0].start, *(piece.end for piece in pieces)]


def test_equal_records_make_equal_pieces() -> None:
    pieces = cut_by_bytes(whole(100, 1100), [Density(100, 10.0)], 2500)
    assert edges(pieces) == [100, 350, 600, 850, 1100]


def test_pieces_are_of_equal_bytes_and_not_of_equal_records() -> None:
    pieces = cut_by_bytes(whole(0, 1100), [Density(0, 1.0), Density(1000, 20.0)], 1000)
    assert edges(pieces) == [0, 1000, 1050, 1100]


@pytest.mark.parametrize("densities", [[], [Density(0, 0.0)], [Density(0, 5.0)]])
def test_small_or_unknown_ranges_are_not_divided(densities: list[Density]) -> None:
    assert cut_by_bytes(whole(0, 100), densities, 500) == [whole(0, 100)]


def test_one_record_is_not_divided() -> None:
    assert cut_by_bytes(whole(7, 8), [Density(7, 1e9)], 1000) == [whole(7, 8)]
    assert edges(cut_by_bytes(whole(7, 10), [Density(7, 1e9)], 1000)) == [7, 8, 9, 10]


def test_parts_without_records_belong_to_their_neighbours() -> None:
    densities = [Density(0, 0.0), Density(100, 10.0), Density(200, 0.0)]
    assert edges(cut_by_bytes(whole(0, 300), densities, 500)) == [0, 150, 300]


def test_samples_are_within_the_range() -> None:
    assert places(whole(10, 50)) == [10, 20, 30, 40]
    assert places(whole(3, 5)) == [3, 4]


ranges = st.builds(lambda start, size: whole(start, start + size), st.integers(0, 10**12), st.integers(1, 10**9))


@given(ranges, st.lists(st.floats(0, 1e7), min_size=SAMPLES, max_size=SAMPLES), st.integers(1, 10**9))
def test_nothing_is_lost_and_pieces_are_near_the_target(
    wanted: OffsetRange, found: list[float], bytes_max: int
) -> None:
    densities = [Density(offset, many) for offset, many in zip(places(wanted), found, strict=False)]
    total = sum(density.bytes_per_offset for density in densities) * wanted.size
    if total / bytes_max > 5000:  # too many to enumerate
        bytes_max = int(total / 5000) + 1
    pieces = cut_by_bytes(wanted, densities, bytes_max)
    assert edges(pieces)[0] == wanted.start
    assert edges(pieces)[-1] == wanted.end
    assert all(piece.size > 0 for piece in pieces)
    starts = [density.start for density in densities] + [wanted.end]
    for piece in pieces:
        overlaps = [max(0, min(piece.end, end) - max(piece.start, start)) for start, end in itertools.pairwise(starts)]
        found_bytes = sum(size * density.bytes_per_offset for size, density in zip(overlaps, densities, strict=True))
        # A boundary is a whole offset, so a piece may have one record more at either end.
        assert found_bytes <= bytes_max * 1.001 + 2 * max(density.bytes_per_offset for density in densities)
