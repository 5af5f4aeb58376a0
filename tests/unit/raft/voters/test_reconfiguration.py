"""The leader's checks of voter changes, and static voters that upgrade to kraft.version 1 (KIP-853)."""

from dataclasses import replace

import pytest
from tests.unit.raft.test_node import ELSEWHERE, HERE, Bench, fetch

from klamm.raft import events
from klamm.raft.log.control_records import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, decode_voters
from klamm.raft.messages import AddVoterRequest, Error, RemoveVoterRequest, UpdateVoterRequest
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey


def endpoint(node_id):
    return (Endpoint("CONTROLLER", f"node-{node_id}", 9093),)


def update(node_id, **changes):
    asked = UpdateVoterRequest("cluster", 1, ReplicaKey(node_id, ELSEWHERE), endpoint(node_id), 0, 1)
    return replace(asked, **changes)


@pytest.fixture
def bench():
    bench = Bench(endpoints=endpoint(1))
    bench.feed(events.Started(None))
    bench.lead()
    bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, replica=ReplicaKey(2, ELSEWHERE)))
    return bench


def types(bench):
    return [record.type for record in bench.log.records]


def test_static_voters_send_their_entries_and_upgrade_to_kraft_version_1(bench):
    assert "of controllers 2, 3" in bench.node.kraft_upgrade_refusal()
    bench.feed(events.KraftUpgradeRequested())
    assert types(bench) == [LEADER_CHANGE]
    for node_id in (2, 3):
        assert bench.ask(update(node_id)).error is Error.NONE
    assert bench.node.kraft_upgrade_refusal() is None
    bench.feed(events.KraftUpgradeRequested())
    assert types(bench) == [LEADER_CHANGE, KRAFT_VERSION, KRAFT_VOTERS]
    voters = decode_voters(bench.log.records[2].value)
    assert [voter.key.directory_id for voter in voters.voters] == [HERE, ELSEWHERE, ELSEWHERE]
    assert bench.replica.voters == voters
    assert bench.replica.state.observers == {}, "a voter that fetched with its node id only is not an observer"


def test_an_old_static_voter_prevents_the_upgrade(bench):
    assert bench.ask(update(2)).error is Error.NONE
    assert bench.ask(update(3, kraft_version_max=0)).error is Error.NONE
    assert "3 do not support it" in bench.node.kraft_upgrade_refusal()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (update(2, cluster_id="other"), Error.INCONSISTENT_CLUSTER_ID),
        (update(2, epoch=0), Error.FENCED_LEADER_EPOCH),
        (update(2, epoch=2**31 - 1), Error.UNKNOWN_LEADER_EPOCH),
        (update(2, voter=ReplicaKey(2)), Error.INVALID_REQUEST),
        (update(2, voter=ReplicaKey(-1, HERE)), Error.INVALID_REQUEST),
        (update(2, endpoints=()), Error.INVALID_REQUEST),
        (update(2, endpoints=(Endpoint("OTHER", "x", 1),)), Error.INVALID_REQUEST),
        (update(2, kraft_version_min=1, kraft_version_max=0), Error.INVALID_REQUEST),
        (update(2, kraft_version_min=-1), Error.INVALID_REQUEST),
        (update(9), Error.VOTER_NOT_FOUND),
        (AddVoterRequest("other", ReplicaKey(9, HERE), endpoint(9)), Error.INCONSISTENT_CLUSTER_ID),
        (AddVoterRequest(None, ReplicaKey(9), endpoint(9)), Error.INVALID_REQUEST),
        (AddVoterRequest(None, ReplicaKey(9, HERE), ()), Error.INVALID_REQUEST),
        (AddVoterRequest(None, ReplicaKey(9, HERE), endpoint(9)), Error.UNSUPPORTED_VERSION),
        (RemoveVoterRequest("other", ReplicaKey(2)), Error.INCONSISTENT_CLUSTER_ID),
        (RemoveVoterRequest(None, ReplicaKey(-1)), Error.INVALID_REQUEST),
        (RemoveVoterRequest(None, ReplicaKey(2)), Error.UNSUPPORTED_VERSION),
    ],
)
def test_rejected_changes_have_no_effect(bench, request_, error):
    before = (bench.replica.election, bench.replica.voters_in_log, bench.replica.state.reported_voters, types(bench))
    assert bench.ask(request_).error is error
    after = (bench.replica.election, bench.replica.voters_in_log, bench.replica.state.reported_voters, types(bench))
    assert after == before
