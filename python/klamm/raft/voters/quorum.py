"""Quorum arithmetic: majorities, the high watermark and the tally of an election. Pure, for any number of voters."""

from collections.abc import Collection, Iterable

UNKNOWN_OFFSET = -1


def majority_size(voter_count: int) -> int:
    """How many of `voter_count` voters decide."""
    return voter_count // 2 + 1


def replicated_offset(end_offsets: Collection[int]) -> int:
    """The end offset that a majority of the voters has reached, `UNKNOWN_OFFSET` while none is known (KIP-595).

    `end_offsets` has one entry per voter: its durable end offset, or `UNKNOWN_OFFSET`.
    """
    if not end_offsets:
        return UNKNOWN_OFFSET
    return sorted(end_offsets, reverse=True)[len(end_offsets) // 2]


class Tally:
    """The votes of one election among the voters it began with.

    Invariants: 1. granted and rejected share no id; 2. both hold only voters. `record` keeps them.
    """

    __slots__ = ("granted", "rejected", "voters")

    def __init__(self, voters: frozenset[int], granted: Iterable[int] = ()) -> None:
        self.voters = voters
        self.granted: set[int] = set(granted)
        self.rejected: set[int] = set()

    def record(self, voter_id: int, granted: bool) -> None:
        """Count a voter's answer; a later one replaces an earlier one. Ids that are no voters do not count."""
        if voter_id not in self.voters:
            return
        yes, no = (self.granted, self.rejected) if granted else (self.rejected, self.granted)
        yes.add(voter_id)
        no.discard(voter_id)

    @property
    def unanswered(self) -> frozenset[int]:
        """The voters that have not answered yet."""
        return self.voters - self.granted - self.rejected

    @property
    def is_won(self) -> bool:
        """Whether a majority granted."""
        return len(self.granted) >= majority_size(len(self.voters))

    @property
    def is_lost(self) -> bool:
        """Whether no majority can grant any more."""
        return len(self.voters) - len(self.rejected) < majority_size(len(self.voters))
