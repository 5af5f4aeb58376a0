"""The duration of a campaign: one to two election timeouts, and longer if campaigns do not end with a leader."""

import pytest

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.role_states import Unattached
from klamm.raft.replica_state import Replica
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

NOW_MS = 1000


def voter(config: RaftConfig) -> Replica:
    replica = Replica(Identity(ReplicaKey(1), "c"), VotersInLog(VoterSet.of_ids([1, 2, 3])), config, MemoryLog(), 7)
    replica.start(None, Unattached(NOW_MS), ElectionState())
    return replica


def campaign(replica: Replica) -> int:
    """The duration in ms of a campaign without responses."""
    replica.become_prospective(NOW_MS)
    waits_ms = replica.state.deadline_ms - NOW_MS
    replica.become_candidate(NOW_MS)
    return waits_ms


def test_it_doubles_until_a_leader_is_known():
    replica = voter(RaftConfig(election_timeout_ms=50, election_backoff_max_ms=500))
    for timeout_ms in (50, 100, 200, 400, 500, 500):
        assert timeout_ms <= campaign(replica) < 2 * timeout_ms
    replica.become_follower(NOW_MS, replica.epoch, 2, ())
    assert 50 <= campaign(replica) < 100


@pytest.mark.parametrize("config", [RaftConfig(), RaftConfig(election_timeout_ms=3000)], ids=["default", "longer"])
def test_it_does_not_grow_with_kafkas_defaults(config):
    replica = voter(config)
    for _ in range(40):
        assert config.election_timeout_ms <= campaign(replica) < 2 * config.election_timeout_ms
