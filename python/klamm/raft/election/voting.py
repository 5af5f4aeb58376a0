"""Whether a vote or a pre-vote is granted (KIP-996; `canGrantVote` of Kafka's `EpochState` classes)."""

from typing import assert_never

from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.role_states import Candidate, Follower, Leader, Prospective, Resigned, RoleState, Unattached
from klamm.raft.voters.voter_set import ReplicaKey


def can_grant_vote(
    state: RoleState,
    election: ElectionState,
    candidate: ReplicaKey,
    *,
    log_is_up_to_date: bool,
    pre_vote: bool,
    leader_is_gone: bool = False,
) -> bool:
    """Answer a vote of this replica's own epoch; older and newer epochs are handled before this point."""
    if pre_vote and not log_is_up_to_date:
        return False
    match state:
        case Unattached() | Prospective():
            return pre_vote or _is_free_or_given(election, candidate, log_is_up_to_date)
        case Candidate() | Resigned():
            return pre_vote  # its own vote of this epoch went to itself
        case Follower():
            return pre_vote and (leader_is_gone or not state.has_fetched)
        case Leader():
            return False
        case _:
            assert_never(state)


def _is_free_or_given(election: ElectionState, candidate: ReplicaKey, log_is_up_to_date: bool) -> bool:
    if election.voted is not None:
        # The same answer as before, unless the candidate came back with less (Kafka does not look).
        return election.voted.matches(candidate) and log_is_up_to_date
    return election.leader_id is None and log_is_up_to_date
