"""Which crashes a replica reacts to, and when. scenarios/raft/crash_detection.txt shows whole quorums."""

from __future__ import annotations

import pytest

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.effects import Effect, SendRequest
from klamm.raft.election.crash_detection import RETRY_MAX_MS, RETRY_MIN_MS
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.role_states import Follower
from klamm.raft.election.roles import Role
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import BeginQuorumEpochRequest, Error, FetchResponse, VoteRequest, VoteResponse
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

START_MS = 10_000


def follower(node_id: int = 1, leader_id: int = 3, *, crash_detection: bool = True) -> RaftNode:
    """A replica that has fetched from its leader."""
    config = RaftConfig(crash_detection=crash_detection)
    voters = VotersInLog(VoterSet.of_ids([1, 2, 3]))
    node = RaftNode(Identity(ReplicaKey(node_id), "c"), voters, config, MemoryLog(), seed=1)
    node.on_start(START_MS, ElectionState(1, leader_id))
    [fetch] = [effect for effect in node.on_tick(START_MS) if isinstance(effect, SendRequest)]
    node.on_response(START_MS, fetch.correlation_id, FetchResponse(Error.NONE, 1, leader_id, high_watermark=0))
    node.on_tick(START_MS)
    assert node.replica.role is Role.FOLLOWER
    return node


def tick(node: RaftNode, now_ms: int) -> list[Effect]:
    """Run all timers that are due by then."""
    effects = node.on_tick(now_ms)
    while node.deadline_ms <= now_ms:
        effects += node.on_tick(now_ms)
    return effects


def pre_votes(effects: list[Effect]) -> list[int]:
    return [one.to for one in effects if isinstance(one, SendRequest) and isinstance(one.request, VoteRequest)]


def would_grant(node: RaftNode) -> bool:
    candidate = ReplicaKey(2 if node.replica.id == 1 else 1)
    request = VoteRequest("c", None, candidate, 1, OffsetAndEpoch(0, 0), pre_vote=True)
    effects = node.on_request(START_MS + 1, 1, request)
    [response] = [one.response for one in effects if hasattr(one, "response")]
    return bool(response.granted)


def test_the_first_remaining_voter_campaigns_at_once() -> None:
    node = follower(1)
    node.on_peer_crashed(START_MS, 3)
    assert pre_votes(tick(node, START_MS)) == [2, 3]
    assert node.replica.role is Role.PROSPECTIVE


def test_the_other_voters_campaign_later() -> None:
    node = follower(2)
    node.on_peer_crashed(START_MS, 3)
    assert pre_votes(tick(node, START_MS)) == []
    state = node.replica.state
    assert isinstance(state, Follower)
    assert START_MS + RETRY_MIN_MS <= state.deadline_ms <= START_MS + RETRY_MAX_MS
    assert pre_votes(tick(node, state.deadline_ms)) == [1, 3]


def test_only_voters_that_detected_the_crash_grant_a_pre_vote() -> None:
    seen, unseen = follower(2), follower(2)
    seen.on_peer_crashed(START_MS, 3)
    tick(seen, START_MS)
    assert would_grant(seen)
    assert not would_grant(unseen)


@pytest.mark.parametrize("node_id", [2, 9])
def test_the_crash_of_a_follower_changes_nothing(node_id: int) -> None:
    node = follower(1)
    node.on_peer_crashed(START_MS, node_id)
    assert pre_votes(tick(node, START_MS)) == []
    assert not would_grant(node)


def test_crash_detection_can_be_disabled() -> None:
    node = follower(1, crash_detection=False)
    node.on_peer_crashed(START_MS, 3)
    assert pre_votes(tick(node, START_MS)) == []
    assert not would_grant(node)


def test_an_observer_only_searches_another_leader() -> None:
    node = follower(7)
    node.on_peer_crashed(START_MS, 3)
    assert pre_votes(tick(node, START_MS)) == []
    assert node.replica.role is Role.FOLLOWER


def test_a_message_of_the_leader_ends_the_suspicion() -> None:
    node = follower(2)
    node.on_peer_crashed(START_MS, 3)
    node.on_request(START_MS + 1, 1, BeginQuorumEpochRequest("c", None, 3, 1))
    assert not would_grant(node)


def test_failed_pre_votes_are_retried_without_raising_the_epoch() -> None:
    node = follower(1)
    node.on_peer_crashed(START_MS, 3)
    now_ms, campaigns = START_MS, 0
    while now_ms < START_MS + 1900:
        for effect in tick(node, now_ms):
            if not isinstance(effect, SendRequest):
                continue
            if isinstance(effect.request, VoteRequest) and effect.to == 2:
                campaigns += 1
                node.on_response(now_ms, effect.correlation_id, VoteResponse(Error.NONE, 1, 3, granted=False))
            else:
                node.on_request_failed(now_ms, effect.correlation_id)
        now_ms += 1
    assert 1900 // (RETRY_MAX_MS + 1) - 1 <= campaigns <= 1900 // RETRY_MIN_MS
    assert node.replica.epoch == 1
