"""Which ranges are read, given the offsets of the cluster."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.spark.ranges.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    TopicPartition,
    count_rows,
    flat,
    limit_rows,
    nested,
    parse_offsets,
    plan_batch,
    plan_stream,
    recreated,
    split,
)

A0, A1, A10, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 10), TopicPartition("b", 0)

partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 12))
sizes = st.dictionaries(partitions, st.integers(0, 10_000), min_size=1, max_size=12)


def whole(start: int, end: int, partition: TopicPartition = A0) -> OffsetRange:
    return OffsetRange(partition, start, end)


# JSON


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1)))
def test_offsets_round_trip_through_json(offsets: Offsets) -> None:
    text = json.dumps(nested(offsets))
    assert parse_offsets(text) == offsets == flat(json.loads(text))


def test_equal_offsets_are_equal_text_in_the_order_of_numbers() -> None:
    text = '{"a": {"0": 3, "1": 2, "10": 1}, "b": {"0": 4}}'
    assert json.dumps(nested({B0: 4, A10: 1, A1: 2, A0: 3})) == text


# Limits


@given(sizes, st.integers(1, 20_000))
def test_a_limited_batch_moves_every_partition_and_passes_the_limit_by_less_than_their_number(
    latest: Offsets, rows_max: int
) -> None:
    start = dict.fromkeys(latest, 0)
    end = limit_rows(rows_max, start, latest)
    assert end.keys() == latest.keys()
    assert all((0 < end[one] <= latest[one]) if latest[one] else end[one] == 0 for one in latest)
    assert count_rows(start, end) < rows_max + len(latest)


def test_shares_are_proportional_to_sizes() -> None:
    assert limit_rows(10, {A0: 5, A1: 0, B0: 7}, {A0: 95, A1: 10, B0: 7}) == {A0: 14, A1: 1, B0: 7}


def test_a_batch_below_the_limit_reads_to_the_end() -> None:
    assert limit_rows(1000, {A0: 0, A1: 0}, {A0: 400, A1: 30}) == {A0: 400, A1: 30}


def test_a_partition_whose_end_decreased_keeps_its_end() -> None:
    """Planning then reports the loss, also for a partition that was deleted and created again."""
    assert limit_rows(1, {A0: 9, A1: 0}, {A0: 2, A1: 5, B0: 8}) == {A0: 2, A1: 1, B0: 8}


# Splits


@given(sizes, st.one_of(st.none(), st.integers(1, 64)), st.one_of(st.none(), st.integers(1, 5000)))
def test_pieces_are_the_ranges(ends: Offsets, tasks_min: int | None, rows_max: int | None) -> None:
    ranges = [OffsetRange(partition, 0, end) for partition, end in ends.items()]
    pieces = split(ranges, tasks_min=tasks_min, rows_max=rows_max)
    assert all(piece.size > 0 for piece in pieces)
    assert rows_max is None or all(piece.size <= rows_max for piece in pieces)
    for one in ranges:
        mine = sorted(piece.start for piece in pieces if piece.partition == one.partition)
        ended = sorted(piece.end for piece in pieces if piece.partition == one.partition)
        assert ([*mine, one.end] == [one.start, *ended]) if one.size else not mine


def test_by_default_a_partition_is_a_piece() -> None:
    assert split([whole(0, 9), whole(4, 4, A1), whole(7, 8, B0)]) == [whole(0, 9), whole(7, 8, B0)]


def test_only_large_ranges_are_divided() -> None:
    pieces = split([whole(0, 90), whole(0, 10, A1)], tasks_min=4)
    assert pieces == [whole(0, 30), whole(30, 60), whole(60, 90), whole(0, 10, A1)]


def test_no_piece_has_more_than_its_maximum() -> None:
    assert split([whole(10, 20)], rows_max=4) == [whole(10, 13), whole(13, 16), whole(16, 20)]


# Plans


def test_a_stream_continues_and_reads_new_partitions_from_their_beginning() -> None:
    plan = plan_stream({A0: 5}, {A0: 9, A1: 4}, {A1: 0})
    assert plan.ranges == [whole(5, 9), whole(0, 4, A1)]
    assert plan.lost == []


@pytest.mark.parametrize(
    ("start", "end", "earliest_of_new", "read", "lost"),
    [
        ({A0: 5, A1: 3}, {A0: 9}, {}, [whole(5, 9)], "partition a-1 is gone"),
        ({A0: 5}, {A0: 2}, {}, [], "the end of partition a-0 went back from offset 5 to 2"),
        (
            {A0: 5},
            {A0: 6, A1: 4},
            {A1: 2},
            [whole(5, 6), whole(2, 4, A1)],
            "the new partition a-1 starts with offset 2",
        ),
        ({A0: 5}, {A0: 6, A1: 4}, {}, [whole(5, 6)], "partition a-1 was added and is gone again"),
    ],
)
def test_a_stream_reports_lost_records(
    start: Offsets, end: Offsets, earliest_of_new: Offsets, read: list[OffsetRange], lost: str
) -> None:
    plan = plan_stream(start, end, earliest_of_new)
    assert plan.ranges == read
    assert len(plan.lost) == 1
    assert lost in plan.lost[0]


@pytest.mark.parametrize(
    ("start", "end", "read", "lost"),
    [
        (EARLIEST, LATEST, [whole(2, 10)], 0),
        (2, 10, [whole(2, 10)], 0),
        (4, 6, [whole(4, 6)], 0),
        (6, 6, [], 0),
        (10, LATEST, [], 0),
        (0, 6, [whole(2, 6)], 1),
        (4, 11, [whole(4, 10)], 1),
        (12, LATEST, [], 1),
    ],
)
def test_a_batch_reads_the_available_part_of_the_requested_offsets(
    start: int, end: int, read: list[OffsetRange], lost: int
) -> None:
    plan = plan_batch({A0: start}, {A0: end}, {A0: 2}, {A0: 10})
    assert plan.ranges == read
    assert len(plan.lost) == lost


def test_topics_that_were_created_again_are_named_by_their_ids() -> None:
    assert recreated({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == [
        "topic b was deleted and created again (its id was 2 and is 4)"
    ]
