"""Merging the batches of a share partition (Kafka's `PersisterStateBatchCombiner`)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.share.batches import combine
from klamm.protocol.messages.share_state import StateBatch

OFFSETS = st.integers(0, 30)
BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        OFFSETS,
        st.integers(0, 12),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 3),
    ),
    max_size=8,
)


def batch(first: int, last: int, count: int, state: int = 0) -> StateBatch:
    return StateBatch(first, last, state, count)


def offset_by_offset(batches: list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """The highest count and state of each offset."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(max(first, start_offset), last + 1):
            found[offset] = max(found.get(offset, (0, 0)), (count, state))
    return found


@given(BATCHES, BATCHES, st.integers(-1, 40))
def test_each_offset_has_the_highest_count_and_state(
    so_far: list[StateBatch], added: list[StateBatch], start_offset: int
) -> None:
    merged = combine(so_far, added, start_offset)
    assert offset_by_offset(list(merged), -1) == offset_by_offset(so_far + added, start_offset)
    assert all(before.last_offset < after.first_offset for before, after in pairwise(merged))
    assert all(one.first_offset <= one.last_offset for one in merged)


@given(BATCHES, st.integers(-1, 40))
def test_merging_again_changes_no_offset(batches: list[StateBatch], start_offset: int) -> None:
    merged = combine((), batches, start_offset)
    again = combine(merged, (), start_offset)
    assert offset_by_offset(list(again), -1) == offset_by_offset(list(merged), -1)
    joined = [
        (before, after)
        for before, after in pairwise(again)
        if before.last_offset + 1 == after.first_offset and before[2:] == after[2:]
    ]
    assert not joined, "nothing overlapped any more, so all neighbours were joined"


@given(BATCHES, BATCHES, st.permutations(range(8)))
def test_the_order_of_batches_does_not_matter(
    so_far: list[StateBatch], added: list[StateBatch], order: list[int]
) -> None:
    batches = so_far + added
    shuffled = [batches[at] for at in order if at < len(batches)] + batches[8:]
    assert combine((), shuffled, -1) == combine(so_far, added, -1)


def test_overlap_with_a_higher_count() -> None:
    assert combine([batch(0, 9, 1)], [batch(5, 14, 2)], -1) == (batch(0, 4, 1), batch(5, 14, 2))


def test_overlap_with_a_lower_count() -> None:
    assert combine([batch(0, 9, 2)], [batch(5, 14, 1)], -1) == (batch(0, 9, 2), batch(10, 14, 1))


def test_one_in_the_middle_of_another() -> None:
    assert combine([batch(0, 9, 1)], [batch(3, 5, 1, 2)], -1) == (
        batch(0, 2, 1),
        batch(3, 5, 1, 2),
        batch(6, 9, 1),
    )
    assert combine([batch(0, 9, 1, 2)], [batch(3, 5, 1)], -1) == (batch(0, 9, 1, 2),)


def test_neighbours_are_joined() -> None:
    assert combine([batch(0, 4, 1)], [batch(5, 9, 1)], -1) == (batch(0, 9, 1),)
    assert combine([batch(0, 4, 1)], [batch(5, 9, 1, 2)], -1) == (batch(0, 4, 1), batch(5, 9, 1, 2))


def test_offsets_before_the_start_are_dropped() -> None:
    assert combine([batch(0, 4, 1), batch(5, 9, 2)], [batch(20, 20, 1)], 7) == (batch(7, 9, 2), batch(20, 20, 1))
    assert combine([batch(0, 4, 1)], [], 5) == ()


def test_a_finished_neighbour_is_not_joined() -> None:
    """As in Kafka: the first batch was finished before an overlap made its neighbour equal to it."""
    batches = [batch(0, 4, 1, 2), batch(5, 9, 1), batch(5, 12, 1, 2)]
    assert combine((), batches, -1) == (batch(0, 4, 1, 2), batch(5, 12, 1, 2))
