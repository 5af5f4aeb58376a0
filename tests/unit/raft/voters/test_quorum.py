"""Quorum arithmetic compared with obvious but slow computations."""

from hypothesis import given
from hypothesis import strategies as st

from klamm.raft.voters.quorum import UNKNOWN_OFFSET, Tally, majority_size, replicated_offset

OFFSETS = st.lists(st.integers(min_value=-1, max_value=20), min_size=1, max_size=7)


@given(OFFSETS)
def test_replicated_offset_is_the_highest_that_a_majority_holds(end_offsets: list[int]) -> None:
    def holders(offset: int) -> int:
        return sum(end_offset >= offset for end_offset in end_offsets)

    expected = max(offset for offset in range(-1, 21) if holders(offset) >= majority_size(len(end_offsets)))
    assert replicated_offset(end_offsets) == expected


def test_without_voters_nothing_is_replicated() -> None:
    assert replicated_offset([]) == UNKNOWN_OFFSET


@given(st.integers(min_value=1, max_value=9))
def test_two_majorities_always_meet(voter_count: int) -> None:
    assert 2 * majority_size(voter_count) > voter_count
    assert 2 * (majority_size(voter_count) - 1) <= voter_count


@given(st.integers(min_value=1, max_value=7), st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=20))
def test_tally_counts_the_last_answer_of_each_voter(voter_count: int, answers: list[tuple[int, bool]]) -> None:
    tally, last = Tally(frozenset(range(voter_count))), {}
    for voter_id, granted in answers:
        tally.record(voter_id, granted)
        last[voter_id] = granted
    votes = [last.get(voter_id) for voter_id in range(voter_count)]
    assert tally.is_won is (votes.count(True) >= majority_size(voter_count))
    assert tally.is_lost is (votes.count(True) + votes.count(None) < majority_size(voter_count))
    assert len(tally.unanswered) == votes.count(None)
