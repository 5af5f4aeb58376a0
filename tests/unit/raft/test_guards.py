"""Conditions that keep the quorum safe and that no scenario reaches: if one is removed, a test here fails."""

import pytest
from tests.unit.raft.test_node import ELSEWHERE, HERE, Bench, fetch, vote
from tests.unit.raft.voters.test_reconfiguration import endpoint, update

from klamm.raft import effects as fx
from klamm.raft import events
from klamm.raft.election.roles import Role
from klamm.raft.log.control_records import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    decode_voters,
    encode_kraft_version,
    encode_voters,
)
from klamm.raft.log.metadata_log import ControlRecord
from klamm.raft.messages import (
    AddVoterRequest,
    ApiVersionsResponse,
    Error,
    FetchResponse,
    RemoveVoterRequest,
    VoteResponse,
)
from klamm.raft.replication import leading
from klamm.raft.voters.reconfiguration import CAUGHT_UP_MS_MAX
from klamm.raft.voters.voter_history import VoterHistory
from klamm.raft.voters.voter_set import ReplicaKey, Voter, VoterSet, VotersInLog

SECOND, THIRD, FOURTH, FIFTH = (ReplicaKey(node_id, ELSEWHERE) for node_id in (2, 3, 4, 5))
ABLE = ApiVersionsResponse(Error.NONE, (0, 1))


class SlowDisk(Bench):
    """An election state that becomes durable when the test says so."""

    def __init__(self):
        super().__init__()
        self.tickets = []

    def apply(self, effects):
        self.tickets += [effect.ticket for effect in effects if isinstance(effect, fx.PersistElection)]
        super().apply([effect for effect in effects if not isinstance(effect, fx.PersistElection)])


def types(bench):
    return [record.type for record in bench.log.records]


def caught_up(bench, who):
    """A fetch at the leader's log end offset."""
    return bench.ask(fetch(fetch_offset=bench.log.end_offset, last_fetched_epoch=1, replica=who))


def dynamic(now_ms=1000):
    """A leader at kraft.version 1 with voters 1, 2 and 3 and all records committed; 3 has never fetched."""
    bench = Bench(endpoints=endpoint(1))
    bench.now_ms = now_ms
    bench.feed(events.Started(None))
    bench.lead()
    caught_up(bench, SECOND)
    for node_id in (2, 3):
        assert bench.ask(update(node_id)).error is Error.NONE
    bench.feed(events.KraftUpgradeRequested())
    caught_up(bench, SECOND)
    assert bench.replica.high_watermark == bench.log.end_offset
    return bench


def add(bench, who):
    """Request the change; returns the response, if there is one yet."""
    return bench.ask(AddVoterRequest(None, who, endpoint(who.id)))


def asked_of(bench, node_id):
    """The correlation id of the last request to that replica."""
    return next(sent.correlation_id for sent in reversed(bench.sent) if sent.to == node_id)


def test_an_epoch_begins_once_when_its_election_is_durable():
    bench = SlowDisk()
    bench.feed(events.Started(None))
    bench.pass_time(2000)
    for _ in range(2):
        bench.answer(2, VoteResponse(Error.NONE, bench.replica.epoch, None, granted=True))
    assert bench.replica.role is Role.LEADER
    *earlier, last = bench.tickets
    for ticket in earlier:
        bench.feed(events.Persisted(ticket))
    assert types(bench) == []
    for _ in range(2):
        bench.feed(events.Persisted(last))
    assert types(bench) == [LEADER_CHANGE]


def test_a_vote_for_node_0_counts_and_so_does_its_fetch():
    bench = Bench(VotersInLog(VoterSet.of_ids([0, 1, 2])))
    bench.feed(events.Started(None))
    assert bench.ask(vote(candidate=ReplicaKey(0))).granted
    bench.pass_time(5000)
    for role in (Role.PROSPECTIVE, Role.CANDIDATE):
        assert bench.replica.role is role
        bench.answer(2, VoteResponse(Error.NONE, bench.replica.epoch, None, granted=True))
    epoch = bench.replica.epoch
    bench.ask(fetch(epoch=epoch, fetch_offset=1, last_fetched_epoch=epoch, replica=ReplicaKey(0)))
    assert bench.replica.high_watermark == 1


def test_node_0_becomes_a_voter_and_ceases_to_be_one():
    bench = dynamic()
    zero = ReplicaKey(0, HERE)
    caught_up(bench, zero)
    assert add(bench, zero) is None
    bench.answer(0, ABLE)
    assert bench.replica.voters.ids == (0, 1, 2, 3)
    for who in (SECOND, zero):
        caught_up(bench, who)
    assert bench.ask(update(0, voter=zero)).error is Error.NONE
    for who in (SECOND, zero):
        caught_up(bench, who)
    assert bench.ask(RemoveVoterRequest(None, zero)) is None
    assert bench.replica.voters.ids == (1, 2, 3)


def test_observers_without_an_id_are_not_tracked_and_others_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(leading, "OBSERVERS_MAX", 3)
    bench = dynamic()
    caught_up(bench, ReplicaKey(-1))
    assert bench.replica.state.observers == {}
    known = [ReplicaKey(node_id, ELSEWHERE) for node_id in (10, 11, 12)]
    for who in known:
        bench.now_ms += 1
        caught_up(bench, who)
    caught_up(bench, known[1])
    assert list(bench.replica.state.observers) == known, "a known observer replaces none"
    bench.now_ms += 1
    caught_up(bench, FOURTH)
    assert list(bench.replica.state.observers) == [known[1], known[2], FOURTH]


def test_a_replica_silent_for_an_hour_has_not_caught_up():
    bench = dynamic()
    caught_up(bench, FOURTH)
    last_ms = bench.now_ms
    while bench.now_ms < last_ms + CAUGHT_UP_MS_MAX:
        bench.pass_time(1000)
        caught_up(bench, SECOND)
    assert bench.now_ms == last_ms + CAUGHT_UP_MS_MAX
    assert add(bench, FOURTH) is None
    bench.answer(4, ABLE)
    response = bench.replies[bench.next_request_id]
    assert response.error is Error.REQUEST_TIMED_OUT
    assert "has not caught up" in response.message
    assert bench.replica.voters.ids == (1, 2, 3)


def test_a_voter_that_never_fetched_is_not_reachable_at_time_0():
    bench = dynamic(now_ms=0)
    response = bench.ask(RemoveVoterRequest(None, SECOND))
    assert response.error is Error.REQUEST_TIMED_OUT
    assert "which is no majority" in response.message


def test_updates_of_static_voters_wait_for_a_commit_in_the_epoch():
    bench = Bench(endpoints=endpoint(1))
    bench.feed(events.Started(None))
    bench.lead()
    assert bench.ask(update(2)).error is Error.REQUEST_TIMED_OUT
    assert bench.replica.state.reported_voters.get(2).key.directory_id is None


@pytest.fixture
def asking():
    """A leader that gave up a request to 4 and sent one to 5; also the correlation id of the request to 4."""
    bench = dynamic()
    for who in (FOURTH, FIFTH):
        caught_up(bench, who)
    assert add(bench, FOURTH) is None
    late = asked_of(bench, 4)
    first = bench.next_request_id
    for _ in range(bench.replica.config.request_timeout_ms // 1000 + 1):
        bench.pass_time(1000)
        for who in (SECOND, FOURTH, FIFTH):
            caught_up(bench, who)
    assert bench.replies[first].error is Error.REQUEST_TIMED_OUT
    assert add(bench, FIFTH) is None
    return bench, late


def test_a_late_response_of_another_replica_adds_no_voter(asking):
    bench, late = asking
    bench.feed(events.ResponseReceived(late, ABLE))
    assert bench.replica.voters.ids == (1, 2, 3)
    bench.answer(5, ABLE)
    assert bench.replica.voters.ids == (1, 2, 3, 5)


def test_the_late_failure_of_another_ends_nothing(asking):
    bench, late = asking
    bench.feed(events.RequestFailed(late))
    assert bench.next_request_id not in bench.replies
    bench.answer(5, ABLE)
    assert bench.replica.voters.ids == (1, 2, 3, 5)


def test_a_late_answer_does_not_end_a_removal(asking):
    bench, late = asking
    bench.answer(5, ABLE)
    for who in (SECOND, FIFTH):
        caught_up(bench, who)
    assert bench.ask(RemoveVoterRequest(None, THIRD)) is None
    request_id = bench.next_request_id
    bench.feed(events.RequestFailed(late))
    assert request_id not in bench.replies
    for who in (SECOND, FIFTH):
        caught_up(bench, who)
    assert bench.replies[request_id].error is Error.NONE


def test_a_diverging_response_has_no_records():
    bench = dynamic()
    request = fetch(fetch_offset=1, last_fetched_epoch=0, replica=SECOND)
    [reply] = [
        effect
        for effect in bench.node.on_request(bench.now_ms, 99, request)
        if isinstance(effect, fx.Reply) and effect.request_id == 99
    ]
    assert isinstance(reply.response, FetchResponse)
    assert reply.response.diverging is not None
    assert reply.read is None


def test_a_removed_voter_campaigns_until_its_removal_is_known_to_be_committed():
    bench = Bench()
    all_three = VoterSet.of(Voter(ReplicaKey(node_id, HERE)) for node_id in (1, 2, 3))
    version = KRAFT_VERSION, encode_kraft_version(1)
    bench.log.append_control([version, (KRAFT_VOTERS, encode_voters(all_three))], 1, 0)
    bench.log.append_control([(KRAFT_VOTERS, encode_voters(all_three.without(1)))], 1, 0)
    bench.feed(events.Started(None))
    replica = bench.replica
    assert replica.voters.ids == (2, 3)
    assert replica.may_campaign
    replica.advance_high_watermark(2)
    assert replica.may_campaign, "the record at 2 is above it"
    replica.advance_high_watermark(3)
    assert not replica.may_campaign


class LogOf:
    """The part of a log that the voters' history reads."""

    def __init__(self, start_offset, end_offset, records):
        self.start_offset, self.end_offset, self._records = start_offset, end_offset, records

    def control_records(self, start=-1):
        return [record for record in self._records if record.offset >= start]


def test_a_snapshot_that_replaces_a_longer_log_removes_its_voter_sets():
    def voters(offset, *ids):
        keyed = VoterSet.of(Voter(ReplicaKey(node_id, HERE)) for node_id in ids)
        return ControlRecord(offset, KRAFT_VOTERS, encode_voters(keyed))

    history = VoterHistory(VotersInLog(VoterSet.of_ids([9])))
    history.follow(LogOf(0, 6, [voters(0, 1), voters(2, 1, 8)]))
    assert history.newest.voters.ids == (1, 8)
    snapshot = voters(4, 1, 2)
    history.follow(LogOf(5, 5, [snapshot]))
    assert history.newest.voters == decode_voters(snapshot.value)
