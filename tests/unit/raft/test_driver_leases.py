"""The driver of a leader with leased fetches, answered without its core: how a lease begins, is reported, and ends."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from tests.unit.raft import test_driver_streams as streams
from tests.unit.raft.test_driver_streams import Said, Store, kinds

from klamm.driving.clock import LoopClock
from klamm.raft import effects as fx
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import RaftDriver
from klamm.raft.election.role_states import Leader, Unattached
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    Response,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.ports import FetchAnswers
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.voter_set import BOOTSTRAP_OFFSET, Endpoint, ReplicaKey, Voter, VoterSet, VotersInLog

EPOCH = 1
OWN, SECOND, THIRD, OBSERVER = (ReplicaKey(node_id, bytes([node_id]) * 16) for node_id in (1, 2, 3, 9))
ENDPOINTS = (Endpoint("CONTROLLER", "here", 9099),)
FORMER = ReplicaKey(2, b"o" * 16)  # the previous disk of voter 2
# No timeout expires and no replica campaigns, however busy the machine is.
CONFIG = RaftConfig(election_timeout_ms=60_000, fetch_timeout_ms=60_000, request_timeout_ms=60_000, fetches_leased=True)


class Log(streams.Log):
    """Completes its flushes in the next turn of the loop, unless the test does so."""

    ends_flushes = True

    def start_flush(self, on_done: Callable[[int, str | None], None]) -> None:
        super().start_flush(on_done)
        if self.ends_flushes:
            asyncio.get_running_loop().call_soon(self.finish_flush)


class Answers:
    """Records its calls, and the state at its end."""

    def __init__(self, said: list[Said], look: Callable[[], object] = lambda: None) -> None:
        self.said, self.look = said, look
        self.news, self.left = list[LeasedFetch](), list[LeasedFetch]()
        self.begun: list[FetchLease] = []
        self.offers = 0
        self.at_end: list[object] = []
        self.is_raised, self.looked = False, 0
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)

    @property
    def has_news(self) -> bool:
        self.looked += 1
        return self.is_raised

    def begin(self, by: FetchLease) -> None:
        self.said.append(("begin",))
        self.begun.append(by)

    def add_replica(self, replica: ReplicaKey, *, counts: bool) -> None:
        self.said.append(("add", replica, counts))

    def offer(self) -> None:
        self.offers += 1

    def raise_high_watermark(self, offset: int) -> None:
        self.said.append(("raise", offset))

    def notify_voters(self) -> None:
        self.said.append(("notify voters",))

    def take(self) -> list[LeasedFetch]:
        self.said.append(("take",))
        if self.is_raised:
            self.is_raised = False
            os.eventfd_read(self.fd)
        news, self.news = self.news, []
        return news

    def end(self) -> list[LeasedFetch]:
        self.said.append(("end",))
        self.at_end.append(self.look())
        left, self.left = self.left, []
        return left

    def wake(self) -> None:
        self.is_raised = True
        os.eventfd_write(self.fd, 1)


class Node(streams.Node):
    """Records its events."""

    flushed_offset = -1
    """As last reported."""

    def on_leased_fetches(self, now_ms: int, epoch: int, fetches: object) -> list[fx.Effect]:
        assert isinstance(fetches, list)
        self.said.append(("leased", epoch, *fetches))
        return super().on_leased_fetches(now_ms, epoch, fetches)

    def on_tick(self, now_ms: int) -> list[fx.Effect]:
        self.said.append(("tick",))
        return super().on_tick(now_ms)

    def on_append(self, now_ms: int) -> list[fx.Effect]:
        self.said.append(("append",))
        return super().on_append(now_ms)

    def on_flushed(self, now_ms: int) -> list[fx.Effect]:
        self.said.append(("flushed",))
        self.flushed_offset = self.replica.log.flushed_offset
        return super().on_flushed(now_ms)

    def on_resign(self, now_ms: int, epoch: int) -> list[fx.Effect]:
        self.said.append(("resign",))
        return super().on_resign(now_ms, epoch)

    def on_shutdown(self, now_ms: int) -> list[fx.Effect]:
        self.said.append(("shutdown",))
        return super().on_shutdown(now_ms)


class Rig(streams.Rig):
    """The leader of EPOCH among voters with known directories; voter 2 has fetched everything."""

    log: Log
    node: Node

    def __init__(
        self, voters: tuple[ReplicaKey, ...] = (OWN, SECOND, THIRD), *, opens: bool = True, config: RaftConfig = CONFIG
    ) -> None:
        self.said: list[Said] = []
        self.log = Log()
        self.answers = Answers(self.said, self.look)
        self.opened: list[FetchAnswers] = []
        self.open_error: OSError | None = None
        self.replies: list[Response] = []
        self.asked_for_versions: list[Callable[[Response | None], None]] = []
        self.faults: list[Exception] = []
        self.on_commit_do: Callable[[], None] = lambda: None
        entries = VoterSet.of(Voter(key, (Endpoint("CONTROLLER", "there", 9000 + key.id),)) for key in voters)
        known = VotersInLog(entries, offset=BOOTSTRAP_OFFSET, kraft_version=1)
        self.node = Node(Identity(OWN, "c", (Endpoint("CONTROLLER", "there", 9001),)), known, config, self.log, 1)
        self.node.said = self.said
        open_answers = self.open if opens else None
        self.store = Store()
        self.driver = RaftDriver(self.node, self.log, self.store, self, transport=self, open_answers=open_answers)

    def open(self) -> FetchAnswers:
        if self.open_error is not None:
            raise self.open_error
        self.opened.append(self.answers)
        return self.answers

    def look(self) -> object:
        """State that must not have changed yet when the lease ends."""
        return self.log.end_offset, self.store.data, kinds(self.said).count("not leader")

    async def lead(self) -> Rig:
        self.driver.start()
        if isinstance(self.node.replica.state, Unattached):  # a single voter does not wait
            self.node.replica.state.deadline_ms = self.node.deadline_ms = 0
            self.change_nothing()
        await self.until(lambda: self.node.can_append)
        await self.flushed()
        assert self.driver.epoch == EPOCH
        return self

    async def start(self) -> Rig:
        await self.lead()
        self.ask(self.fetch(SECOND))
        assert self.answers.begun
        return self

    # The transport

    def send(self, sent: fx.SendRequest, on_done: Callable[[Response | None], None]) -> None:
        response: Response | None = None
        match sent.request:
            case VoteRequest(epoch=epoch):
                response = VoteResponse(Error.NONE, epoch, None, granted=True)
            case BeginQuorumEpochRequest(epoch=epoch):
                response = BeginQuorumEpochResponse(Error.NONE, epoch, OWN.id)
            case ApiVersionsRequest():
                self.asked_for_versions.append(on_done)
                return
        asyncio.get_running_loop().call_soon(on_done, response)

    # The listener

    def on_leader(self, epoch: int) -> None:
        self.said.append(("leader", epoch))

    def on_not_leader(self, epoch: int) -> None:
        self.said.append(("not leader", epoch))

    # Events

    @property
    def state(self) -> Leader:
        assert isinstance(self.node.replica.state, Leader)
        return self.node.replica.state

    def fetch(self, who: ReplicaKey, offset: int | None = None, epoch: int = EPOCH) -> FetchRequest:
        at = self.log.end_offset if offset is None else offset
        return FetchRequest("c", who, epoch, at, EPOCH if at else 0, self.driver.high_watermark, 60_000, 1 << 20)

    def taken(self, who: ReplicaKey, offset: int | None = None) -> LeasedFetch:
        end = self.log.end_offset
        return LeasedFetch(LoopClock().now_ms(), who, end if offset is None else offset, end)

    def said_in(self, what: Callable[[], object]) -> list[Said]:
        before = len(self.said)
        what()
        return self.said[before:]

    def propose(self) -> int:
        return self.driver.propose([b"x"], EPOCH)

    async def flushed(self) -> None:
        """Everything is flushed, and the core knows."""
        await self.until(lambda: self.node.flushed_offset == self.log.end_offset)

    def reach_check_quorum(self) -> None:
        self.state.check_quorum_deadline_ms = self.node.deadline_ms = 0
        self.change_nothing()

    def begin_closing(self) -> None:
        """It hands over in the loop's next turn."""
        self.closing = asyncio.ensure_future(self.driver.close(100))

    async def close(self) -> None:
        await self.driver.close(100)
        os.close(self.answers.fd)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = await Rig().start()
    yield made
    await made.close()
    assert made.faults == []


def vote() -> VoteRequest:
    return VoteRequest(None, None, THIRD, EPOCH + 1, OffsetAndEpoch(99, EPOCH), pre_vote=False)


# Beginning


async def test_no_lease_begins_before_a_fetch_and_a_commit_in_the_epoch() -> None:
    rig = await Rig().lead()
    assert rig.opened == []
    rig.ask(rig.fetch(THIRD, 0))
    assert rig.node.fetch_lease() is None
    assert rig.opened == []
    said = rig.said_in(lambda: rig.ask(rig.fetch(SECOND)))
    assert kinds(said)[-2:] == ["begin", "add"], "at the end of the step, its answers included"
    [by] = rig.answers.begun
    end = rig.log.end_offset
    assert by == rig.node.fetch_lease()
    assert (by.epoch, by.high_watermark, by.voters) == (EPOCH, end, ((2, end), (3, 0)))
    await rig.close()


async def test_replicas_are_known_as_the_core_counts_them(rig: Rig) -> None:
    for who in (THIRD, OBSERVER, FORMER):
        rig.ask(rig.fetch(who))
    known = [said[1:] for said in rig.said if said[0] == "add"]
    assert known == [(SECOND, True), (THIRD, True), (OBSERVER, False), (FORMER, False)]
    assert kinds(rig.said).count("begin") == len(rig.opened) == 1


@pytest.mark.parametrize("opens", [True, False])
async def test_no_lease_without_support_or_permission(opens: bool) -> None:
    rig = await Rig(opens=opens, config=replace(CONFIG, fetches_leased=not opens)).lead()
    rig.ask(rig.fetch(SECOND))
    assert rig.driver.high_watermark == rig.log.end_offset
    assert rig.driver.describe_quorum().high_watermark == rig.log.end_offset
    await rig.close()
    assert (rig.opened, rig.answers.begun, rig.faults) == ([], [], [])


async def test_a_sole_voter_grants_no_lease_until_a_replica_fetches() -> None:
    rig = await Rig((OWN,)).lead()
    await rig.driver.wait_committed(rig.propose())
    assert rig.opened == []
    rig.ask(rig.fetch(OBSERVER))
    assert [by.voters for by in rig.answers.begun] == [()]
    await rig.close()


async def test_a_fetch_within_a_step_begins_no_lease() -> None:
    """The rest of the step might end the lease, and its response waits for the end of the step."""
    rig = await Rig().lead()
    asked = [OBSERVER, THIRD]
    rig.on_commit_do = lambda: rig.ask(rig.fetch(asked.pop())) if asked else None
    said = rig.said_in(lambda: rig.ask(rig.fetch(SECOND)))
    assert kinds(said).count("request") == 2
    assert [one for one in said if one[0] == "add"] == [("add", SECOND, True)]
    rig.propose()
    await rig.flushed()
    rig.answers.news = [rig.taken(SECOND)]
    said = rig.step()
    assert not asked
    assert "request" in kinds(said)
    assert "add" not in kinds(said)
    await rig.close()


@pytest.mark.parametrize("is_of_descriptor", [True, False])
async def test_without_a_descriptor_the_core_answers(is_of_descriptor: bool, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    fd = rig.answers.fd
    if is_of_descriptor:
        rig.open_error = OSError(24, "Too many open files")
    else:
        rig.answers.fd = os.open(__file__, os.O_RDONLY)  # a file cannot be watched
    with caplog.at_level(logging.WARNING, "klamm.raft"):
        await rig.lead()
        for who in (SECOND, THIRD, OBSERVER):
            rig.ask(rig.fetch(who, 0))
        rig.ask(rig.fetch(SECOND))
        rig.ask(rig.fetch(OBSERVER, rig.log.end_offset - 1))
    assert [type(reply) for reply in rig.replies] == [FetchResponse] * 5
    [message] = [record.getMessage() for record in caplog.records if "one by one" in record.getMessage()]
    assert ("Too many open files" if is_of_descriptor else "not permitted") in message
    assert (rig.answers.begun, rig.faults) == ([], [])
    if not is_of_descriptor:
        os.close(rig.answers.fd)
    rig.open_error, rig.answers.fd = None, fd
    rig.ask(rig.fetch(SECOND))
    assert len(rig.answers.begun) == 1, "there is a lease again"
    await rig.close()
