"""Fetches answered without the core: after the report, the leader has the state of one that handled each fetch."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import event as seen
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.raft.test_node import ELSEWHERE, HERE

from klamm.raft import effects as fx
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.description import describe
from klamm.raft.election.role_states import Leader
from klamm.raft.election.roles import Role
from klamm.raft.log.metadata_log import OffsetAndEpoch, SnapshotInfo
from klamm.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Error,
    FetchRequest,
    FetchResponse,
    RemoveVoterRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.node import RaftNode
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.voter_set import BOOTSTRAP_OFFSET, Endpoint, ReplicaKey, Voter, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

ANSWERED = RaftConfig(fetches_leased=True)
EPOCH, EPOCH_START = 3, 4  # of the leaders that are compared
OTHER_DISK = b"o" * 16
OUTSIDER = ReplicaKey(9, ELSEWHERE)


def endpoints(node_id: int) -> tuple[Endpoint, ...]:
    return (Endpoint("CONTROLLER", f"node-{node_id}", 9093),)


def static_voters(count: int) -> VotersInLog:
    """Known only by node id."""
    return VotersInLog(VoterSet.of_ids(range(1, count + 1)))


def keyed_voters(count: int) -> VotersInLog:
    """Also known by directory; the first leader writes them to the log."""
    keys = [ReplicaKey(1, HERE), *(ReplicaKey(node_id, ELSEWHERE) for node_id in range(2, count + 1))]
    voters = VoterSet.of(Voter(key, endpoints(key.id)) for key in keys)
    return VotersInLog(voters, offset=BOOTSTRAP_OFFSET, kraft_version=1)


def shown(node: RaftNode) -> dict[str, object]:
    """All state that affects its decisions, except parked fetches."""
    replica, state = node.replica, node.replica.state
    slots = {name: getattr(state, name) for name in state.__slots__ if name not in ("parked", "voters", "observers")}
    if isinstance(state, Leader):
        slots |= {"voters": progress_of(state.voters), "observers": progress_of(state.observers)}
        change = slots.pop("change")
        slots["change"] = change and (change.request, change.deadline_ms, change.offset)
    return {
        "role": replica.role,
        "election": (replica.election, replica.ticket, replica.durable_ticket),
        "state": slots,
        "high watermark": replica.high_watermark,
        "voters": replica.voters_in_log,
        "crashes": (set(node._crashes._refusing), node._crashes._crashed),
        "in flight": dict(replica.requests._in_flight),
        "backing off": dict(replica.requests._backing_off_until_ms),
        "shutting down": replica.is_shutting_down,
    }


def progress_of(replicas) -> list[tuple]:
    """Field by field, and in order: the order decides which of two equally silent observers is dropped."""
    return [
        (key, *(getattr(progress, name) for name in type(progress).__slots__)) for key, progress in replicas.items()
    ]


class Side:
    """A leader of EPOCH with an existing log; its election is durable immediately."""

    def __init__(self, voters: VotersInLog, config: RaftConfig) -> None:
        self.log, self.now_ms = MemoryLog(), 1000
        self.log.append([b"old"] * EPOCH_START, EPOCH - 1, 0)
        self.log.flushed_offset = self.log.end_offset
        self.node = RaftNode(Identity(ReplicaKey(1, HERE), "cluster", endpoints(1)), voters, config, self.log, 1)
        self.committed: list[int] = []
        self.fetch_replies: dict[int, FetchResponse] = {}
        self.other: list[fx.Effect | Response] = []
        self.asked = 0
        self.feed(lambda now_ms: self.node.on_start(now_ms, None))
        self.now_ms = self.node.deadline_ms
        self.feed(self.node.on_tick)
        self.win()
        assert (self.role, self.epoch, self.state.epoch_start_offset) == (Role.LEADER, EPOCH, EPOCH_START)

    @property
    def role(self) -> Role:
        return self.node.replica.role

    @property
    def epoch(self) -> int:
        return self.node.replica.epoch

    @property
    def state(self) -> Leader:
        assert isinstance(self.node.replica.state, Leader)
        return self.node.replica.state

    def win(self) -> None:
        """Every voter grants the pre-vote, then the vote."""
        for role in (Role.PROSPECTIVE, Role.CANDIDATE):
            assert self.role is role
            for one in list(self.node.replica.requests._in_flight.values()):
                self.respond(one.correlation_id, VoteResponse(Error.NONE, self.epoch, None, granted=True))

    def feed(self, handler: Callable[[int], list[fx.Effect]]) -> None:
        self.apply(handler(self.now_ms))
        self.tick()

    def tick(self) -> None:
        while self.node.deadline_ms <= self.now_ms:
            self.apply(self.node.on_tick(self.now_ms))

    def apply(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            match effect:
                case fx.HighWatermarkAdvanced(offset):
                    self.committed.append(offset)
                case fx.Reply(request_id, FetchResponse() as response):
                    self.fetch_replies[request_id] = response
                case fx.Reply():
                    self.other.append(effect.response)
                case _:
                    self.other.append(effect)
            if isinstance(effect, fx.AppendControl):
                self.log.append_control(effect.records, effect.epoch, 0)
            if isinstance(effect, fx.PersistElection):
                self.feed(lambda now_ms, ticket=effect.ticket: self.node.on_persisted(now_ms, ticket))

    def ask(self, request: Request) -> int:
        self.asked += 1
        self.feed(lambda now_ms: self.node.on_request(now_ms, self.asked, request))
        return self.asked

    def respond(self, correlation_id: int, response: Response) -> None:
        self.feed(lambda now_ms: self.node.on_response(now_ms, correlation_id, response))

    def answer_versions(self) -> None:
        """A new voter, if any, responds with its API versions."""
        able = ApiVersionsResponse(Error.NONE, (0, 1))
        for one in list(self.node.replica.requests._in_flight.values()):
            if isinstance(one.request, ApiVersionsRequest):
                self.respond(one.correlation_id, able)


class Engine:
    """Answers fetches between two events of the core: it records the fetches, and computes the high watermark."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.known: set[ReplicaKey] = set()  # the replicas from which the core has received a fetch
        self.fetch_lease: FetchLease | None = None
        self.end_offsets: dict[int, int] = {}
        self.high_watermark = -1
        self.news: list[LeasedFetch] = []
        self.events: list[Callable[[int], list[fx.Effect]]] = []  # of the log, before the core is notified
        self.adopt()

    def take(self, request: FetchRequest) -> bool:
        """Record a plain fetch; False when the core has to handle it."""
        log, terms = self.side.log, self.fetch_lease
        if terms is None or request.replica not in self.known:
            return False
        is_of_epoch = request.epoch == request.last_fetched_epoch == terms.epoch
        is_in_epoch = terms.epoch_start_offset < request.fetch_offset <= log.end_offset
        is_in_log = request.fetch_offset > log.start_offset or request.fetch_offset == log.end_offset
        if not is_of_epoch or not is_in_epoch or not is_in_log:
            return False
        self.news.append(LeasedFetch(self.side.now_ms, request.replica, request.fetch_offset, log.end_offset))
        if self.side.node.counts(request.replica):
            self.end_offsets[request.replica.id] = request.fetch_offset
            self.find_high_watermark()
        return True

    def find_high_watermark(self) -> None:
        """The largest end offset that more than half of the voters have reached, if above the start of the epoch."""
        if self.fetch_lease is None:
            return
        ends = list(self.end_offsets.values())
        if self.fetch_lease.counts_itself:
            ends.append(self.side.log.flushed_offset)
        held = max(end for end in ends if 2 * sum(other >= end for other in ends) > len(ends))
        if held > self.fetch_lease.epoch_start_offset:
            self.high_watermark = max(self.high_watermark, held)

    def tell(self) -> None:
        """The report, which comes before any other event."""
        news, self.news = self.news, []
        before = self.side.node.deadline_ms
        if news:
            leased = self.side.node.on_leased_fetches(self.side.now_ms, EPOCH, news)
            assert self.side.node.deadline_ms == before, "a tick for each report would cost what leases save"
            self.side.apply(leased)
        events_of_log, self.events = self.events, []
        for handler in events_of_log:
            self.side.feed(handler)
        if isinstance(self.side.node.replica.state, Leader) and self.fetch_lease is not None:
            assert self.side.state.high_watermark == self.high_watermark
        self.adopt()

    def adopt(self) -> None:
        """Adopt what the core allows after each step."""
        self.fetch_lease = self.side.node.fetch_lease()
        if self.fetch_lease is not None:
            self.end_offsets = dict(self.fetch_lease.voters)
            self.high_watermark = self.fetch_lease.high_watermark


class Pair:
    """A core that handles each fetch and one with a lease, with equal logs."""

    def __init__(self, voters: VotersInLog) -> None:
        self.asked, self.leased = Side(voters, RaftConfig()), Side(voters, ANSWERED)
        self.sides = (self.asked, self.leased)
        self.engine = Engine(self.leased)
        self.taken = 0
        assert self.engine.fetch_lease is None, "nothing of the epoch is committed yet"

    def fetch(self, request: FetchRequest) -> None:
        number = self.asked.ask(request)
        if not self.engine.take(request):
            self.engine.tell()
            self.leased.ask(request)
            self.engine.known.add(request.replica)
            self.engine.adopt()
            self.compare()
            return
        self.taken += 1
        response = self.asked.fetch_replies.get(number)  # none: it is parked
        if response is not None:
            assert response.error is Error.NONE
            assert response.diverging is response.snapshot_id is None

    def tell(self) -> None:
        self.engine.tell()
        self.compare()

    def happen(self, event: Callable[[Side], None]) -> None:
        """Another event for both; leased fetches are reported first."""
        self.engine.tell()
        for side in self.sides:
            event(side)
        self.engine.adopt()
        self.compare()

    def pass_time(self, ms: int) -> None:
        for side in self.sides:
            side.now_ms += ms
        self.asked.tick()
        if self.leased.node.deadline_ms <= self.leased.now_ms:
            self.engine.tell()
            self.leased.tick()
            self.engine.adopt()

    def append(self, count: int) -> None:
        """Proposals: they are in the log before the core is notified."""
        for side in self.sides:
            side.log.append([b"new"] * count, EPOCH, 0)
        self.asked.feed(self.asked.node.on_append)
        self.engine.events.append(self.leased.node.on_append)

    def flush(self) -> None:
        for side in self.sides:
            side.log.flushed_offset = side.log.end_offset
        self.engine.find_high_watermark()
        self.asked.feed(self.asked.node.on_flushed)
        self.engine.events.append(self.leased.node.on_flushed)

    def clean(self) -> None:
        """Let the log begin at a committed and flushed snapshot: beyond that it would also be a flush."""
        offset = min(self.asked.node.replica.high_watermark, self.asked.log.flushed_offset)
        if offset <= self.asked.log.start_offset:
            return
        for side in self.sides:
            snapshot_id = OffsetAndEpoch(offset, side.log.epoch_at(offset - 1))
            side.log.add_snapshot(SnapshotInfo(snapshot_id, 1, 0))
            side.log.delete_before(snapshot_id)

    def compare(self) -> None:
        """Both have the same state and effects, except for responses that were parked."""
        asked, leased = self.asked, self.leased
        assert shown(leased.node) == shown(asked.node)
        assert leased.other == asked.other
        assert leased.committed[-1:] == asked.committed[-1:]
        assert self.described(leased) == self.described(asked)
        if asked.role is Role.LEADER and not asked.node.replica.is_shutting_down:
            assert leased.node.deadline_ms <= min(
                leased.state.check_quorum_deadline_ms, leased.state.begin_epoch_due_ms
            )

    @staticmethod
    def described(side: Side) -> object:
        return describe(side.node.replica, side.now_ms, 1_700_000_000_000)


def resign(side: Side) -> None:
    side.feed(lambda now_ms: side.node.on_resign(now_ms, EPOCH))


def shut_down(side: Side) -> None:
    side.feed(side.node.on_shutdown)


def reach_check_quorum(late_ms: int) -> Callable[[Side], None]:
    def event(side: Side) -> None:
        side.now_ms = max(side.now_ms, side.state.check_quorum_deadline_ms + late_ms)
        side.tick()

    return event


def lose_to_another(side: Side) -> None:
    log_end = OffsetAndEpoch(side.log.end_offset, EPOCH)
    side.ask(VoteRequest(None, None, ReplicaKey(2, ELSEWHERE), EPOCH + 1, log_end, pre_vote=False))


def add_voter(side: Side) -> None:
    side.ask(AddVoterRequest(None, OUTSIDER, endpoints(9)))
    side.answer_versions()


def remove_voter(side: Side) -> None:
    side.ask(RemoveVoterRequest(None, ReplicaKey(2)))


def refuse(node_id: int) -> Callable[[Side], None]:
    return lambda side: side.feed(lambda now_ms: side.node.on_peer_refused(now_ms, node_id))


def look(side: Side) -> None:
    """No event: the known state is compared."""


EVENTS = [
    reach_check_quorum(-1),
    reach_check_quorum(0),
    lose_to_another,
    resign,
    shut_down,
    add_voter,
    remove_voter,
    look,
]
# A fetch is drawn as: replica, distance from the end (below zero: beyond it), last epoch, known high watermark.
FETCHES = st.tuples(
    st.integers(0, 8),
    st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 6, 9, -1]),
    st.sampled_from([EPOCH] * 8 + [EPOCH - 1]),
    st.sampled_from([99, -1]),
)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.just(("flush",)),
    st.tuples(st.just("time"), st.integers(1, 900)),
    st.just(("tell",)),
    st.tuples(st.just("refuse"), st.sampled_from([2, 3, 9])),
    st.just(("clean",)),
)
TURNS = st.lists(st.tuples(STEPS, st.lists(FETCHES, min_size=1, max_size=4)), min_size=4, max_size=12)


class Play:
    """Executes what was drawn."""

    def __init__(self, voters: VotersInLog, *, goes_back: bool) -> None:
        self.pair = Pair(voters)
        self.is_keyed = voters.kraft_version > 0
        self.goes_back = goes_back
        self.reached: dict[int, int] = {}
        others = [
            voter.key if self.is_keyed else voter.key._replace(directory_id=ELSEWHERE) for voter in voters.voters.voters
        ]
        self.replicas = [
            *others[1:],
            ReplicaKey(2, OTHER_DISK),  # with known directories, an observer with a voter's id
            ReplicaKey(2),
            OUTSIDER,
            ReplicaKey(-1),
            ReplicaKey(8),
        ]

    def begin(self) -> None:
        """Commit the first record of the epoch: all replicas but one fetch what is flushed."""
        self.flush()
        for who in range(len(self.replicas) - 1):
            self.fetch(who, 0, EPOCH, 99)
        assert self.pair.engine.fetch_lease is not None

    def step(self, kind: str, *values: int) -> None:
        pair = self.pair
        match kind, values:
            case "append", (count,):
                pair.append(count)
            case "flush", ():
                self.flush()
            case "time", (ms,):
                pair.pass_time(ms)
            case "tell", ():
                pair.tell()
            case "refuse", (node_id,):
                pair.happen(refuse(node_id))
            case "clean", ():
                # Voters in the log move with the record that contains them; the core notices at a tick, whenever that
                # is.
                if not self.is_keyed:
                    pair.clean()
            case _:
                raise AssertionError((kind, values))

    def flush(self) -> None:
        if self.goes_back:
            self.pair.tell()
        self.pair.flush()
        if self.goes_back:
            self.pair.tell()

    def fetch(self, who: int, behind: int, epoch: int, known: int) -> None:
        replica = self.replicas[who % len(self.replicas)]
        end_offset = self.pair.asked.log.end_offset
        offset = max(end_offset - behind, 0)
        if not self.goes_back:
            offset = max(offset, self.reached.get(replica.id, 0))
        if offset <= end_offset:
            self.reached[replica.id] = offset
        self.pair.fetch(FetchRequest("cluster", replica, EPOCH, offset, epoch, known, 500, 1 << 20))


VOTERS = [static_voters(3), static_voters(5), keyed_voters(3), keyed_voters(5)]


# A flush is visible in the log before the core is notified of it. With a lease, an earlier fetch can then commit the
# flushed records; without one it cannot if the fetcher went back meanwhile. So either happens here, but not both.
@pytest.mark.parametrize("goes_back", [True, False], ids=["fetches go back", "flushes are reported late"])
@pytest.mark.parametrize("voters", VOTERS, ids=["three", "five", "three keyed", "five keyed"])
@given(turns=TURNS, event=st.sampled_from(EVENTS))
def test_after_the_report_state_and_decisions_are_the_same(voters, goes_back, turns, event) -> None:
    play = Play(voters, goes_back=goes_back)
    pair = play.pair
    play.begin()
    for step, fetches in turns:
        play.step(*step)
        for one in fetches:
            play.fetch(*one)
    pair.tell()
    if goes_back:
        assert pair.leased.committed == pair.asked.committed
    for replica in play.replicas:
        assert pair.leased.node.counts(replica) == pair.asked.node.counts(replica)
    seen(f"{pair.taken // 5 * 5} or more taken")
    if pair.asked.role is Role.LEADER:
        pair.happen(event)
        seen(f"{event.__qualname__} leaves a {pair.asked.role.value}")
