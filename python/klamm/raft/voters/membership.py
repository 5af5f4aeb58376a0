"""How a change of the voter set affects the leader: whose fetches count from then on (KIP-853)."""

from klamm.raft.election.role_states import NEVER_MS, Leader, ReplicaProgress
from klamm.raft.replica_state import CHECK_QUORUM_FACTOR, Replica


def take_voters(replica: Replica, state: Leader, now_ms: int) -> None:
    """Track the other voters of the set in force; a replica that moves to or from the observers keeps its progress.

    A voter whose key differs starts without progress until its next fetch. When only a previously unknown directory id
    was added, it stays a voter, and no replica becomes an observer.
    """
    others = [voter.key for voter in replica.voters.voters if voter.key.id != replica.id]
    known = {progress.key: progress for progress in state.voters.values()} | state.observers
    removed = [progress for progress in state.voters.values() if progress.key not in others]
    same = {progress.key.id for progress in state.voters.values() if progress.key in others}
    state.voters = {key.id: known.get(key) or ReplicaProgress(key) for key in others}
    for key in others:
        state.observers.pop(key, None)
    for progress in removed:
        if progress.last_fetch_ms >= 0 and not any(progress.key.matches(key) for key in others):
            state.observers[progress.key] = progress
    state.fetched_voters &= same
    _set_deadlines(replica, state, now_ms)


def _set_deadlines(replica: Replica, state: Leader, now_ms: int) -> None:
    if not state.voters:
        state.check_quorum_deadline_ms = state.begin_epoch_due_ms = NEVER_MS
        return
    if state.check_quorum_deadline_ms == NEVER_MS:
        state.check_quorum_deadline_ms = now_ms + int(replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
    state.begin_epoch_due_ms = now_ms  # new voters receive BeginQuorumEpoch at once
