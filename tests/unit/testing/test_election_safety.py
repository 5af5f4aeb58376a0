"""When an election counts in the simulator."""

from types import SimpleNamespace

import pytest

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.election.roles import Role
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.election_safety import ElectionSafety
from klamm.testing.simulator.memory_log import MemoryLog


def only_voter(node_id: int) -> RaftNode:
    """It has elected itself, and its quorum-state is not on its disk yet."""
    voters = VotersInLog(VoterSet.of_ids([node_id]))
    node = RaftNode(Identity(ReplicaKey(node_id), "cluster"), voters, RaftConfig(), MemoryLog(), seed=1)
    node.on_start(0, None)
    while node.replica.role is not Role.LEADER:
        node.on_tick(node.deadline_ms)
    return node


def touched(node: RaftNode) -> SimpleNamespace:
    return SimpleNamespace(core=node, id=node.replica.id, epoch=node.replica.epoch)


def test_an_only_voter_leads_once_its_vote_is_durable():
    safety, first, second = ElectionSafety(), only_voter(1), only_voter(2)
    assert first.replica.epoch == second.replica.epoch
    safety.check({}, touched(first))
    assert safety.leaders == {}, "a crash would revoke its vote, and all that depends on it"
    for node in (second, first):
        node.on_persisted(0, node.replica.ticket)
    safety.check({}, touched(second))
    with pytest.raises(InvariantViolatedError, match="was led by 2, and now by 1"):
        safety.check({}, touched(first))
