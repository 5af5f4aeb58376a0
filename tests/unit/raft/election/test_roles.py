"""The role table, for every pair of roles."""

import itertools

import pytest

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.election.role_states import Candidate, Follower, Leader, Prospective, Resigned, RoleState, Unattached
from klamm.raft.election.roles import (
    DURABLE_ROLES,
    NEXT_ROLES,
    OBSERVER_ROLES,
    REASONS,
    START_ROLES,
    Role,
    markdown_table,
)
from klamm.raft.replica_state import InvariantError, Replica
from klamm.raft.voters.quorum import Tally
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

# The table of transitions (Kafka's `QuorumState`) once more, so that an error in one copy is detected.
ALLOWED = {
    "Unattached": "Unattached Prospective Follower",
    "Prospective": "Unattached Prospective Candidate Follower",
    "Candidate": "Unattached Prospective Leader Follower",
    "Leader": "Unattached Follower Resigned",
    "Follower": "Unattached Prospective Follower",
    "Resigned": "Unattached Prospective Follower",
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Role, Role)), ids=lambda role: role.value)
def test_every_pair(before: Role, after: Role) -> None:
    allowed = after.value in ALLOWED[before.value].split()
    assert (after in NEXT_ROLES[before]) is allowed
    assert ((before, after) in REASONS) is allowed
    assert (f"| {before.value} | {after.value} |" in markdown_table()) is allowed


def test_no_replica_starts_as_leader() -> None:
    assert Role.LEADER not in START_ROLES
    assert Role.PROSPECTIVE not in START_ROLES


def test_an_observer_follows_the_table() -> None:
    for role in OBSERVER_ROLES:
        assert NEXT_ROLES[role] & OBSERVER_ROLES == OBSERVER_ROLES


def test_only_prospective_and_resigned_need_no_durable_state() -> None:
    assert set(Role) - DURABLE_ROLES == {Role.PROSPECTIVE, Role.RESIGNED}


def state_of(role: Role) -> RoleState:
    tally = Tally(frozenset({1, 2, 3}), {1, 2})
    match role:
        case Role.UNATTACHED:
            return Unattached(0)
        case Role.PROSPECTIVE:
            return Prospective(0, tally)
        case Role.CANDIDATE:
            return Candidate(0, tally)
        case Role.LEADER:
            return Leader(
                1, 0, frozenset({1}), {}, VoterSet.of_ids([1]), check_quorum_deadline_ms=0, begin_epoch_due_ms=0
            )
        case Role.FOLLOWER:
            return Follower(0)
        case Role.RESIGNED:
            return Resigned(0, set(), ())


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Role, Role)), ids=lambda role: role.value)
def test_a_replica_makes_no_other_transition(before: Role, after: Role) -> None:
    identity = Identity(ReplicaKey(1), "cluster")
    replica = Replica(identity, VotersInLog(VoterSet.of_ids([1, 2, 3])), RaftConfig(), MemoryLog(), seed=1)
    replica.state = state_of(before)
    if after.value in ALLOWED[before.value].split():
        replica.enter(state_of(after), replica.election)
        assert replica.role is after
    else:
        with pytest.raises(InvariantError, match=f"{before.value} cannot become {after.value}"):
            replica.enter(state_of(after), replica.election)
        assert replica.role is before
