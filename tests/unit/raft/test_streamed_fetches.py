"""Streamed fetches: after the report, the core has the state of one that sent each fetch."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.raft import effects as fx
from klamm.raft import events
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.election.role_states import Follower
from klamm.raft.election.roles import Role
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
)
from klamm.raft.node import RaftNode
from klamm.raft.replication.requests import StreamedFetches
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

EPOCH, LEADER, HERE = 5, 2, b"h" * 16
ANSWERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=8
)


class Side:
    """A follower with a log that is flushed immediately."""

    def __init__(self, leaders: MemoryLog, *, goes_on: bool, never_votes: bool = False, endpoints=()) -> None:
        self.leaders, self.log, self.now_ms = leaders, MemoryLog(), 1000
        config = RaftConfig(fetches_go_on=goes_on, never_votes=never_votes)
        node_id = 9 if never_votes else 1
        voters = VotersInLog(VoterSet.of_ids([1, 2, 3]))
        self.node = RaftNode(Identity(ReplicaKey(node_id, HERE), "cluster", endpoints), voters, config, self.log, 1)
        self.sent: list[fx.SendRequest] = []
        self.replies: list[Response] = []
        self.feed(lambda now_ms: self.node.on_start(now_ms, None))
        self.ask(BeginQuorumEpochRequest(None, None, LEADER, EPOCH))
        self.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))

    def feed(self, handler: Callable[[int], list[fx.Effect]]) -> None:
        self.apply(handler(self.now_ms))
        while self.node.deadline_ms <= self.now_ms:
            self.apply(self.node.on_tick(self.now_ms))

    def apply(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            match effect:
                case fx.SendRequest():
                    self.sent.append(effect)
                case fx.Reply():
                    self.replies.append(effect.response)
                case fx.AppendFetched(batches, max_epoch):
                    self.log.append_fetched(batches, max_epoch)
                    self.log.flushed_offset = self.log.end_offset
                case fx.PersistElection(ticket=ticket):
                    self.feed(lambda now_ms, ticket=ticket: self.node.on_persisted(now_ms, ticket))
                case _:
                    pass

    def ask(self, request: Request) -> None:
        self.feed(lambda now_ms: self.node.on_request(now_ms, len(self.replies), request))

    def answer(self, response: Response) -> None:
        correlation_id = self.sent[-1].correlation_id
        self.feed(lambda now_ms: events.happen(self.node, now_ms, events.ResponseReceived(correlation_id, response)))

    @property
    def records(self) -> bytes:
        here, there = self.log.end_offset, self.leaders.end_offset
        return self.leaders.read(here, 1 << 20) if here < there else b""

    def shown(self) -> dict[str, object]:
        replica = self.node.replica
        state = replica.state
        # Without endpoints there is no voter update, whose last check may be at another time.
        slots = {name: getattr(state, name) for name in state.__slots__ if name not in ("tally", "voter_due_ms")}
        waiting = [(one.to, one.sent_ms, one.request) for one in replica.requests._in_flight.values()]
        return {
            "role": replica.role,
            "election": replica.election,
            "state": slots,
            "high watermark": replica.high_watermark,
            "log": (self.log.end_offset, self.log.flushed_offset, self.log.last_epoch),
            "in flight": waiting,
            "replies": self.replies,
        }


class Stream:
    """The engine's work between two events of the core."""

    def __init__(self, side: Side) -> None:
        self.side, self.effect = side, side.sent[-1]
        assert self.effect.may_stream
        assert isinstance(self.effect.request, FetchRequest)
        self.request, self.high_watermark = self.effect.request, -1
        self.news: StreamedFetches | None = None

    def answer(self, response: FetchResponse) -> None:
        side, log = self.side, self.side.log
        if response.records:
            log.append_fetched(response.records, EPOCH)
            log.flushed_offset = log.end_offset
        self.high_watermark = max(self.high_watermark, response.high_watermark)
        known = max(min(self.high_watermark, log.end_offset), self.request.high_watermark)
        first = self.request
        self.request = FetchRequest(
            first.cluster_id, first.replica, EPOCH, log.end_offset, log.last_epoch, known, first.max_wait_ms, 1 << 20
        )
        self.news = StreamedFetches(side.now_ms, side.now_ms, self.request, self.high_watermark)

    def tell(self) -> None:
        if self.news is not None:
            news, self.news = self.news, None
            self.side.feed(lambda now_ms: self.side.node.on_streamed_fetches(now_ms, self.effect.correlation_id, news))


def sides(answers, *, never_votes: bool) -> tuple[Side, Side, Stream]:
    """A core that sent each fetch, and one that streamed them."""
    leaders = MemoryLog()
    asked = Side(leaders, goes_on=False, never_votes=never_votes)
    streamed = Side(leaders, goes_on=True, never_votes=never_votes)
    stream, committed = Stream(streamed), 0
    for count, behind, wait_ms, _ in answers:
        asked.now_ms += wait_ms
        streamed.now_ms += wait_ms
        if count:
            leaders.append([b"%d" % n for n in range(count)], EPOCH, 0)
        committed = max(committed, leaders.end_offset - behind)
        response = FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=committed, records=asked.records)
        asked.answer(response)
        stream.answer(response)
    asked.now_ms = streamed.now_ms = streamed.now_ms + answers[-1][3]
    return asked, streamed, stream


EVENTS = [
    None,
    VoteRequest(None, None, ReplicaKey(3), EPOCH + 1, OffsetAndEpoch(4, EPOCH), pre_vote=False),
    VoteRequest(None, None, ReplicaKey(3), EPOCH + 1, OffsetAndEpoch(4, EPOCH), pre_vote=True),
    BeginQuorumEpochRequest(None, None, 3, EPOCH + 1),
    EndQuorumEpochRequest(None, LEADER, EPOCH, (ReplicaKey(3), ReplicaKey(1))),
]


@pytest.mark.parametrize("never_votes", [False, True])
@given(answers=ANSWERS, event=st.sampled_from(EVENTS))
def test_after_the_report_state_and_decisions_are_the_same(never_votes, answers, event) -> None:
    asked, streamed, stream = sides(answers, never_votes=never_votes)
    stream.tell()
    for side in (asked, streamed):
        if event is None:
            side.feed(lambda now_ms, side=side: side.node.on_tick(now_ms))
        else:
            side.ask(event)
    assert streamed.shown() == asked.shown()
    is_over = streamed.node.replica.epoch > EPOCH
    assert streamed.node.replica.requests.is_waited_for(stream.effect.correlation_id) != is_over


def test_a_reported_leader_does_not_time_out() -> None:
    _, streamed, stream = sides([(0, 0, 300, 0)] * 8, never_votes=False)
    stream.tell()
    streamed.feed(streamed.node.on_tick)
    assert isinstance(streamed.node.replica.state, Follower)
    assert streamed.node.replica.state.deadline_ms == streamed.now_ms + 2000


def test_a_report_from_before_a_crash_does_not_end_the_suspicion() -> None:
    side = Side(MemoryLog(), goes_on=True)
    stream = Stream(side)
    stream.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
    side.node.on_peer_crashed(side.now_ms, LEADER)
    stream.tell()
    assert side.node.replica.role is Role.PROSPECTIVE, "the first of the others campaigns at once"


def test_other_requests_to_the_leader_end_the_stream() -> None:
    leaders = MemoryLog()
    side = Side(leaders, goes_on=True, endpoints=(Endpoint("CONTROLLER", "here", 9093),))
    stream = Stream(side)
    for _ in range(10):
        side.now_ms += 300
        stream.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
        stream.tell()
        side.feed(side.node.on_tick)
    assert any(isinstance(one.request, UpdateVoterRequest) for one in side.sent)
    assert not side.node.replica.requests.is_waited_for(stream.effect.correlation_id)


def test_after_a_failure_fetches_are_single_requests_for_a_while() -> None:
    side = Side(MemoryLog(), goes_on=True)
    stream = Stream(side)
    side.feed(lambda now_ms: side.node.on_request_failed(now_ms, stream.effect.correlation_id))
    before = len(side.sent)
    for _ in range(3):
        side.now_ms += 500
        side.feed(side.node.on_tick)
        side.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
    alone = [sent for sent in side.sent[before:] if sent.to == LEADER]
    assert len(alone) >= 2
    assert not any(sent.may_stream for sent in alone)
    side.now_ms += 600
    side.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
    assert side.sent[-1].may_stream


def test_without_streaming_each_fetch_is_a_single_request() -> None:
    assert not any(one.may_stream for one in Side(MemoryLog(), goes_on=False).sent)
