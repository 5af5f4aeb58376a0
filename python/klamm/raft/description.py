"""The leader's description of its quorum: the content of a DescribeQuorum response (KIP-595)."""

from __future__ import annotations

from klamm.protocol.value import Value
from klamm.raft.election.role_states import Leader, ReplicaProgress
from klamm.raft.replica_state import Replica
from klamm.raft.replication.leading import OBSERVER_SESSION_TIMEOUT_MS
from klamm.raft.voters.voter_set import ReplicaKey, Voter


class ReplicaDescription(Value):
    """A replica as the leader sees it; offsets and times are -1 while unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


class QuorumDescription(Value):
    """The quorum; `nodes` are the voters with their endpoints."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    nodes: tuple[Voter, ...]


def describe(replica: Replica, now_ms: int, wall_ms: int) -> QuorumDescription | None:
    """Describe the quorum at `now_ms` of the core's clock, which is `wall_ms` since 1970; None without a leader."""
    state = replica.state
    if not isinstance(state, Leader):
        return None

    def wall(core_ms: int) -> int:
        return -1 if core_ms < 0 else wall_ms - (now_ms - core_ms)

    def of(progress: ReplicaProgress) -> ReplicaDescription:
        times = wall(progress.last_fetch_ms), wall(progress.last_caught_up_ms)
        return ReplicaDescription(progress.key, progress.end_offset, *times)

    # As the voter set has it: static voters have no directory id, the leader itself no more than the others.
    own = next((voter.key for voter in replica.voters.voters if voter.key.id == replica.id), replica.key)
    voters = {replica.id: ReplicaDescription(own, replica.log.end_offset, wall_ms, wall_ms)}
    voters |= {progress.key.id: of(progress) for progress in state.voters.values()}
    observers = [
        of(progress)
        for progress in state.observers.values()
        if now_ms - progress.last_fetch_ms < OBSERVER_SESSION_TIMEOUT_MS
    ]
    return QuorumDescription(
        leader_id=replica.id,
        leader_epoch=replica.epoch,
        high_watermark=state.high_watermark,
        voters=tuple(voters[voter_id] for voter_id in replica.voters.ids),
        observers=tuple(sorted(observers, key=lambda observer: observer.key.id)),
        nodes=replica.voters.voters,
    )
