"""Decides whose disk may be lost: only if static voters survive it, so that all invariants must still hold (KIP-853).

A voter that comes back under its old id with an empty disk has forgotten its votes and what it acknowledged. Kafka
cannot detect that (kraft.version 0), so it is safe only while nothing depends on either.
"""

from klamm.raft.voters.quorum import majority_size
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.simulated_replica import SimulatedReplica

# The minimum time that it stays away: no message to it is older, and no candidate still waits for its vote.
WIPED_FOR_US = 5_000_000


def may_be_wiped(replicas: dict[int, SimulatedReplica], replica: SimulatedReplica, history: CommittedHistory) -> bool:
    """Whether the others alone hold all committed records, and no election can request its vote a second time."""
    if not replica.is_voter:
        return True
    others = [other for other in replicas.values() if other.is_voter and other is not replica]
    return _holds_nothing_alone(others, replica, history) and all(_is_past(other, replica.epoch) for other in others)


def _holds_nothing_alone(others: list[SimulatedReplica], replica: SimulatedReplica, history: CommittedHistory) -> bool:
    """A leader may still count everything that the replica acknowledged: it must be committed without the replica."""
    count = len(history.chains)
    holders = [other for other in others if other.log.flushed_offset >= count and history.agrees_with(other, count)]
    is_all_committed = replica.log.end_offset <= count and history.agrees_with(replica, replica.log.end_offset)
    return is_all_committed and len(holders) >= majority_size(len(others) + 1)


def _is_past(other: SimulatedReplica, epoch: int) -> bool:
    """Its next campaign is in an epoch in which the replica cannot have voted, and it does not campaign now."""
    stored = other.stored
    if stored is None or stored.epoch < epoch:
        return False
    return stored.voted is None or stored.voted.id != other.id or stored.leader_id is not None
