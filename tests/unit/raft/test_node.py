"""The core alone: what peers can and cannot make it do."""

from dataclasses import replace

import pytest

from klamm.raft import effects as fx
from klamm.raft import events
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.effects import Effect
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.roles import Role
from klamm.raft.log.control_records import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, decode_voters
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.node import RaftNode
from klamm.raft.replica_state import InvariantError
from klamm.raft.voters.voter_set import BOOTSTRAP_OFFSET, Endpoint, ReplicaKey, Voter, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

HERE, ELSEWHERE = b"h" * 16, b"e" * 16


class Bench:
    """A core with a log and a clock; disk writes complete immediately, and messages go into lists."""

    def __init__(
        self, voters: VotersInLog | None = None, *, node_id: int = 1, endpoints=(), config: RaftConfig | None = None
    ):
        self.log = MemoryLog()
        self.now_ms = 1000
        identity = Identity(ReplicaKey(node_id, HERE), "cluster", endpoints)
        in_log = voters or VotersInLog(VoterSet.of_ids([1, 2, 3]))
        self.node = RaftNode(identity, in_log, config or RaftConfig(), self.log, seed=1)
        self.sent: list[fx.SendRequest] = []
        self.replies: dict[int, Response] = {}
        self.other: list[Effect] = []
        self.next_request_id = 0

    @property
    def replica(self):
        return self.node.replica

    def feed(self, event: events.Event) -> None:
        self.apply(events.happen(self.node, self.now_ms, event))
        while self.node.deadline_ms <= self.now_ms:
            self.apply(self.node.on_tick(self.now_ms))

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.SendRequest):
                self.sent.append(effect)
            elif isinstance(effect, fx.Reply):
                self.replies[effect.request_id] = effect.response
            else:
                self.other.append(effect)
            if isinstance(effect, fx.AppendControl):
                self.log.append_control(effect.records, effect.epoch, 0)
                self.log.flushed_offset = self.log.end_offset
            if isinstance(effect, fx.AppendFetched):
                self.log.append_fetched(effect.batches, effect.max_epoch)
            if isinstance(effect, fx.PersistElection):
                self.feed(events.Persisted(effect.ticket))

    def ask(self, request: Request) -> Response | None:
        self.next_request_id += 1
        self.feed(events.RequestReceived(self.next_request_id, request))
        return self.replies.get(self.next_request_id)

    def answer(self, to: int, response: Response) -> None:
        sent = next(sent for sent in reversed(self.sent) if sent.to == to)
        self.feed(events.ResponseReceived(sent.correlation_id, response))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.feed(events.Ticked())

    def follow(self, leader_id: int, epoch: int) -> None:
        assert self.ask(BeginQuorumEpochRequest(None, None, leader_id, epoch)).error is Error.NONE
        assert self.replica.role is Role.FOLLOWER

    def lead(self) -> None:
        self.pass_time(2000)
        for role in (Role.PROSPECTIVE, Role.CANDIDATE):
            assert self.replica.role is role
            self.answer(2, VoteResponse(Error.NONE, self.replica.epoch, None, granted=True))
        assert self.replica.role is Role.LEADER


def started(**options) -> Bench:
    bench = Bench(**options)
    bench.feed(events.Started(None))
    return bench


def vote(**changes) -> VoteRequest:
    usual = VoteRequest(None, None, ReplicaKey(2), 5, OffsetAndEpoch(9, 4), pre_vote=False)
    return replace(usual, **changes)


def fetch(**changes) -> FetchRequest:
    usual = FetchRequest(None, ReplicaKey(2), 1, 0, 0, high_watermark=99, max_wait_ms=0, max_bytes=1000)
    return replace(usual, **changes)


class TestRequestsThatAreRefused:
    @pytest.mark.parametrize(
        "request_",
        [
            vote(cluster_id="other"),
            BeginQuorumEpochRequest("other", None, 2, 9),
            EndQuorumEpochRequest("other", 2, 9, ()),
            fetch(cluster_id="other"),
        ],
        ids=lambda request: type(request).__name__,
    )
    def test_another_cluster_changes_nothing(self, request_):
        bench = started()
        assert bench.ask(request_).error is Error.INCONSISTENT_CLUSTER_ID
        assert bench.replica.epoch == 0
        assert bench.other == []

    @pytest.mark.parametrize(
        "request_",
        [
            vote(log_end=OffsetAndEpoch(-1, 0)),
            vote(log_end=OffsetAndEpoch(0, -1)),
            vote(log_end=OffsetAndEpoch(0, 5)),
            vote(candidate=ReplicaKey(-1)),
            vote(candidate=ReplicaKey(1)),
            BeginQuorumEpochRequest(None, None, -1, 9),
            BeginQuorumEpochRequest(None, None, 1, 9),
            EndQuorumEpochRequest(None, -1, 9, ()),
            fetch(max_wait_ms=-1),
            fetch(fetch_offset=-1),
            fetch(last_fetched_epoch=-1),
            fetch(last_fetched_epoch=2),
            fetch(replica=ReplicaKey(1)),
        ],
        ids=str,
    )
    def test_impossible_values_change_nothing(self, request_):
        bench = started()
        assert bench.ask(request_).error is Error.INVALID_REQUEST
        assert bench.replica.epoch == 0
        assert bench.other == []

    def test_a_second_leader_of_one_epoch_is_refused(self):
        bench = started()
        bench.follow(2, 5)
        assert bench.ask(BeginQuorumEpochRequest(None, None, 3, 5)).error is Error.INVALID_REQUEST
        assert bench.ask(EndQuorumEpochRequest(None, 3, 5, ())).error is Error.INVALID_REQUEST
        assert bench.replica.leader_id == 2

    def test_older_epochs_are_fenced(self):
        bench = started()
        bench.follow(2, 5)
        for request in (
            vote(epoch=4, log_end=OffsetAndEpoch(0, 0)),
            BeginQuorumEpochRequest(None, None, 3, 4),
            EndQuorumEpochRequest(None, 3, 4, ()),
            fetch(epoch=4),
        ):
            response = bench.ask(request)
            assert (response.error, response.epoch, response.leader_id) == (Error.FENCED_LEADER_EPOCH, 5, 2)

    def test_a_fetch_never_raises_the_epoch(self):
        bench = started()
        assert bench.ask(fetch(epoch=7)).error is Error.UNKNOWN_LEADER_EPOCH
        assert bench.replica.epoch == 0

    def test_a_follower_names_the_leader(self):
        bench = started()
        bench.follow(2, 5)
        response = bench.ask(fetch(epoch=5))
        assert (response.error, response.leader_id) == (Error.NOT_LEADER_OR_FOLLOWER, 2)

    @pytest.mark.parametrize(
        ("key", "error"),
        [
            (ReplicaKey(1), Error.NONE),
            (ReplicaKey(1, HERE), Error.NONE),
            (ReplicaKey(1, ELSEWHERE), Error.INVALID_VOTER_KEY),
            (ReplicaKey(2), Error.INVALID_VOTER_KEY),
        ],
        ids=str,
    )
    def test_a_request_for_another_replica_still_raises_the_epoch(self, key, error):
        bench = started()
        assert bench.ask(vote(voter=key)).error is error
        assert bench.replica.epoch == 5
        assert bench.ask(BeginQuorumEpochRequest(None, key, 2, 6)).error is error
        assert bench.replica.leader_id == 2


class TestResponses:
    def test_an_unexpected_response_is_ignored(self):
        bench = started()
        bench.pass_time(2000)
        asked = bench.sent[-1]
        bench.pass_time(2000)  # the timeouts of the request and of the pre-vote
        before = bench.replica.epoch
        granted = VoteResponse(Error.NONE, before, None, granted=True)
        bench.feed(events.ResponseReceived(asked.correlation_id + 1000, granted))
        assert bench.replica.epoch == before

    def test_a_repeated_response_counts_once(self):
        voters = VotersInLog(VoterSet.of_ids(range(1, 6)))
        bench = started(voters=voters)
        bench.pass_time(2000)
        asked = next(sent for sent in bench.sent if sent.to == 2 and isinstance(sent.request, VoteRequest))
        for _ in range(3):
            bench.feed(events.ResponseReceived(asked.correlation_id, VoteResponse(Error.NONE, 0, None, granted=True)))
        assert bench.replica.role is Role.PROSPECTIVE

    def test_a_voter_without_pre_vote_support_makes_a_candidate(self):
        bench = started()
        bench.pass_time(2000)
        bench.answer(2, VoteResponse(Error.UNSUPPORTED_VERSION, -1, None, granted=False))
        assert (bench.replica.role, bench.replica.epoch) == (Role.CANDIDATE, 1)

    def test_a_response_naming_this_replica_as_leader_of_a_later_epoch_is_ignored(self):
        bench = started()
        bench.pass_time(2000)
        bench.answer(2, VoteResponse(Error.NONE, 9, 1, granted=False))
        assert bench.replica.epoch == 0

    def test_an_unknown_error_causes_a_backoff(self):
        bench = started()
        bench.follow(2, 5)
        correlation_id = bench.sent[-1].correlation_id
        bench.sent.clear()
        bench.feed(events.ResponseReceived(1_000_000, FetchResponse(Error.NONE, 5, 2)))
        fetches = len(bench.sent)
        bench.feed(events.ResponseReceived(correlation_id, FetchResponse(Error.UNKNOWN_SERVER_ERROR, 5, 2)))
        assert [sent.to for sent in bench.sent[fetches:]] == [3], "another is asked meanwhile"
        bench.pass_time(2000)
        assert 2 in [sent.to for sent in bench.sent[fetches + 1 :]]

    def test_a_leader_that_lost_committed_records_causes_no_truncation(self):
        bench = started()
        bench.log.append([b"x"], 1, 0)
        bench.log.append([b"y"], 1, 0)
        bench.log.flushed_offset = 2
        bench.follow(2, 5)
        bench.answer(2, FetchResponse(Error.NONE, 5, 2, high_watermark=2))
        assert bench.replica.high_watermark == 2
        with pytest.raises(InvariantError, match="below the high watermark 2"):
            bench.answer(2, FetchResponse(Error.NONE, 5, 2, diverging=OffsetAndEpoch(0, 0)))

    def test_an_observer_delivers_commits_before_its_flush(self):
        leaders = MemoryLog()
        leaders.append([b"x"], 1, 0)
        for never_votes, expected in ((False, 0), (True, 1)):
            bench = started(config=RaftConfig(never_votes=never_votes))
            bench.follow(2, 1)
            asked = len(bench.sent)
            bench.answer(2, FetchResponse(Error.NONE, 1, 2, high_watermark=1, records=leaders.read(0, 1000)))
            assert (bench.log.flushed_offset, bench.log.end_offset) == (0, 1)
            assert max(bench.replica.high_watermark, 0) == expected
            assert len(bench.sent) - asked == expected, "a fetch acknowledges what a voter has flushed"


class TestLeader:
    def test_a_fetch_waits_for_an_append(self):
        bench = started()
        bench.lead()
        assert bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, max_wait_ms=500)) is None
        bench.log.append([b"x"], 1, 0)
        bench.feed(events.Appended())
        assert bench.replies[bench.next_request_id].error is Error.NONE

    def test_a_commit_is_sent_to_brokers_then_delivered_then_sent_to_voters(self):
        bench = started()
        bench.lead()
        bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, replica=ReplicaKey(3)))
        bench.log.append([b"x"], 1, 0)
        waits = {"last_fetched_epoch": 1, "max_wait_ms": 500}
        assert bench.ask(fetch(fetch_offset=2, **waits)) is None
        assert bench.ask(fetch(fetch_offset=2, replica=ReplicaKey(7), **waits)) is None
        voter, observer = bench.next_request_id - 1, bench.next_request_id
        bench.log.flushed_offset = 2
        first, second, third = events.happen(bench.node, bench.now_ms, events.Flushed())
        assert isinstance(first, fx.Reply)
        assert isinstance(third, fx.Reply)
        assert (first.request_id, second, third.request_id) == (observer, fx.HighWatermarkAdvanced(2), voter)

    def test_a_fetch_waits_at_most_its_max_wait(self):
        bench = started()
        bench.lead()
        assert bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, max_wait_ms=500)) is None
        bench.pass_time(499)
        assert bench.next_request_id not in bench.replies
        bench.pass_time(1)
        assert bench.replies[bench.next_request_id].high_watermark == 1

    def test_a_higher_high_watermark_is_sent_at_once(self):
        bench = started()
        bench.lead()
        assert bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, high_watermark=-1, max_wait_ms=500)) is not None

    def test_waiting_fetches_end_with_the_leadership(self):
        bench = started()
        bench.lead()
        assert bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, max_wait_ms=500)) is None
        bench.ask(vote(epoch=9, log_end=OffsetAndEpoch(0, 0)))
        refused = next(reply for reply in bench.replies.values() if isinstance(reply, FetchResponse))
        assert (refused.error, refused.epoch) == (Error.NOT_LEADER_OR_FOLLOWER, 9)

    def test_an_observer_does_not_count(self):
        bench = started()
        bench.lead()
        bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, replica=ReplicaKey(7)))
        assert bench.replica.high_watermark == -1
        bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, replica=ReplicaKey(3)))
        assert bench.replica.high_watermark == 1

    def test_a_voter_with_another_directory_does_not_count(self):
        keys = [ReplicaKey(1, HERE), ReplicaKey(2, HERE), ReplicaKey(3, HERE)]
        voters = VotersInLog(VoterSet.of(map(Voter, keys)), 5, 1)
        bench = started(voters=voters)
        bench.lead()
        bench.ask(fetch(fetch_offset=1, last_fetched_epoch=1, replica=ReplicaKey(2, ELSEWHERE)))
        assert bench.replica.high_watermark == -1

    def test_a_leader_that_shuts_down_stops_serving(self):
        bench = started()
        bench.lead()
        bench.feed(events.ShutdownRequested())
        assert bench.replica.role is Role.RESIGNED
        assert bench.ask(fetch()).error is Error.NOT_LEADER_OR_FOLLOWER


class TestVotersOfTheLog:
    VOTERS = VoterSet.of([Voter(ReplicaKey(1, HERE), (Endpoint("CONTROLLER", "here", 1),))])

    def test_the_formatted_voters_are_written_to_the_log(self):
        bench = started(voters=VotersInLog(self.VOTERS, BOOTSTRAP_OFFSET, 1))
        types = [record.type for record in bench.log.records]
        assert types == [LEADER_CHANGE, KRAFT_VERSION, KRAFT_VOTERS]
        assert decode_voters(bench.log.records[2].value) == self.VOTERS
        assert bench.replica.voters_in_log == VotersInLog(self.VOTERS, 2, 1)

    def test_voters_of_the_log_are_not_written_again(self):
        bench = started(voters=VotersInLog(self.VOTERS, 2, 1))
        assert [record.type for record in bench.log.records] == [LEADER_CHANGE]

    def test_a_leader_with_a_new_address_updates_its_entry(self):
        moved = (Endpoint("CONTROLLER", "there", 2),)
        bench = started(voters=VotersInLog(self.VOTERS, 2, 1), endpoints=moved)
        assert decode_voters(bench.log.records[2].value).endpoints(1) == moved

    def test_a_sole_voter_writes_itself_to_the_log_when_asked(self):
        here = (Endpoint("CONTROLLER", "here", 1),)
        bench = started(voters=VotersInLog(VoterSet.of_ids([1])), endpoints=here)
        for _ in range(2):
            bench.feed(events.KraftUpgradeRequested())
        assert [record.type for record in bench.log.records] == [LEADER_CHANGE, KRAFT_VERSION, KRAFT_VOTERS]
        assert decode_voters(bench.log.records[2].value) == self.VOTERS
        assert bench.replica.voters_in_log == VotersInLog(self.VOTERS, 2, 1)

    def test_several_static_voters_do_not_write_themselves_to_the_log(self):
        bench = started()
        bench.lead()
        bench.feed(events.KraftUpgradeRequested())
        assert [record.type for record in bench.log.records] == [LEADER_CHANGE]

    def test_the_file_format_follows_the_kraft_version(self):
        for kraft_version in (0, 1):
            bench = started(voters=VotersInLog(self.VOTERS, 2, kraft_version))
            written = [effect for effect in bench.other if isinstance(effect, fx.PersistElection)]
            assert {effect.kraft_version for effect in written} == {kraft_version}


def test_an_observer_may_stop_at_once():
    bench = started(node_id=9)
    bench.feed(events.ShutdownRequested())
    assert fx.ShutdownCompleted() in bench.other


def test_resigning_an_earlier_epoch_does_nothing():
    bench = started()
    bench.lead()
    bench.feed(events.ResignRequested(0))
    assert bench.replica.role is Role.LEADER


def test_every_return_to_an_epoch_keeps_its_vote():
    bench = Bench()
    bench.feed(events.Started(ElectionState(5, None, ReplicaKey(2))))
    bench.follow(3, 5)
    assert bench.replica.election == ElectionState(5, 3, ReplicaKey(2))
    bench.pass_time(2000)
    assert bench.replica.election == ElectionState(5, 3, ReplicaKey(2))
    assert bench.ask(vote(candidate=ReplicaKey(3))).granted is False
    assert bench.ask(vote(candidate=ReplicaKey(2))).granted is True


def test_an_observer_that_voted_keeps_searching_the_leader():
    """The candidate considers it a voter, by a voter set that this log does not contain (yet, or any more)."""
    bench = started(node_id=4)
    assert bench.ask(vote()).granted
    bench.pass_time(100_000)
    assert bench.replica.role is Role.UNATTACHED
    asked = len(bench.sent)
    bench.pass_time(100_000)
    assert len(bench.sent) > asked
    assert {type(sent.request) for sent in bench.sent} == {FetchRequest}


def test_a_leader_that_removed_itself_searches_the_next_one_after_a_restart():
    bench = Bench(node_id=4)
    bench.feed(events.Started(ElectionState(5, 4)))
    assert bench.replica.role is Role.RESIGNED
    bench.pass_time(2000)
    assert (bench.replica.role, bench.replica.epoch) == (Role.UNATTACHED, 6)
    assert bench.sent[-1].request.epoch == 6
    assert isinstance(bench.sent[-1].request, FetchRequest)
