"""A log holds at most one change of the voter set that is not committed. Source: Ongaro's dissertation, 4.1; KIP-853.

A record that only updates a voter's endpoints or supported versions changes no majority and does not count.
"""

from klamm.raft.log.control_records import KRAFT_VOTERS, decode_voters
from klamm.raft.voters.voter_set import VoterSet
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class OneChangeAtATime:
    """Checks the control records of a log when they have changed."""

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history
        self._seen: dict[int, tuple[object, ...]] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Every change but the last is in the committed history."""
        offsets = touched.log.control_offsets
        seen = (touched.log.latest_snapshot_id, len(offsets), touched.chains[offsets[-1]] if offsets else None)
        if self._seen.get(touched.id) == seen:
            return
        self._seen[touched.id] = seen
        changes = _changes_of(touched)
        if len(changes) < 2 or self._is_committed(touched, changes[-2]):
            return
        raise InvariantViolatedError(
            f"the log of {touched.id} changes the voters at {changes[-2]} and {changes[-1]}, and neither is committed"
        )

    def _is_committed(self, touched: SimulatedReplica, offset: int) -> bool:
        return offset < len(self.history.chains) and self.history.agrees_with(touched, offset + 1)


def _changes_of(replica: SimulatedReplica) -> list[int]:
    """The offsets in the log of the records that name other voters than the record before."""
    found: list[int] = []
    before = replica.voters
    for offset, kind, value in replica.log.control_records():
        if kind == KRAFT_VOTERS:
            voters = decode_voters(value)
            if offset >= replica.log.start_offset and not _are_same(before, voters):
                found.append(offset)
            before = voters
    return found


def _are_same(one: VoterSet, other: VoterSet) -> bool:
    """Static voters without directories are the same voters once their directories are known."""
    pairs = zip(one.voters, other.voters, strict=False)
    return len(one) == len(other) and all(mine.key.matches(theirs.key) for mine, theirs in pairs)
