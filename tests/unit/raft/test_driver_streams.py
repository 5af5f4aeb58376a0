"""The driver of a follower with streamed fetches: the order of hold, report, decision, response and stop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.waiting import until

from klamm.driving.clock import LoopClock
from klamm.raft import effects as fx
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import RaftDriver, flusher, streams
from klamm.raft.election.roles import Role
from klamm.raft.log.metadata_log import MetadataLogError, OffsetAndEpoch
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
from klamm.raft.ports import FetchFailedError, FetchStreams, StreamProgress
from klamm.raft.replication.requests import StreamedFetches
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

EPOCH, LEADER, OTHER, OBSERVER = 5, 2, 3, 9
# No timeout expires, however busy the machine is.
CONFIG = RaftConfig(election_timeout_ms=60_000, fetch_timeout_ms=60_000, request_timeout_ms=60_000, fetches_go_on=True)
STRANGER = 99
Said = tuple[Any, ...]


class Store:
    data: bytes | None = None

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data


class Log(MemoryLog):
    """Counts its flushes, which complete when the test says so."""

    flush_count = 0

    def start_flush(self, on_done: Callable[[int, str | None], None]) -> None:
        super().start_flush(on_done)
        self.flush_count += 1


class Streams:
    """Records its calls. Responses of the leader change the log when it is held."""

    def __init__(self, said: list[Said]) -> None:
        self.said, self.news = said, list[StreamProgress]()
        self.accepts = True
        self.arrive: Callable[[], None] = lambda: None
        self.begun: list[fx.SendRequest] = []
        self.fd: int | None = os.eventfd(0, os.EFD_NONBLOCK)

    def begin(self, effect: fx.SendRequest) -> bool:
        self.said.append(("begin",))
        if self.accepts:
            self.begun.append(effect)
        return self.accepts

    def hold(self) -> None:
        self.said.append(("hold",))
        arrive, self.arrive = self.arrive, lambda: None
        arrive()

    def release(self) -> None:
        self.said.append(("release",))

    def stop(self) -> None:
        self.said.append(("stop",))

    def take(self) -> StreamProgress | None:
        self.said.append(("take",))
        return self.news.pop(0) if self.news else None

    def close(self) -> None:
        self.said.append(("close",))
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def wake(self) -> None:
        assert self.fd is not None
        os.eventfd_write(self.fd, 1)


class Node(RaftNode):
    """Records its events."""

    said: list[Said]

    def on_request(self, now_ms: int, request_id: int, request: Request) -> list[fx.Effect]:
        self.said.append(("request", type(request)))
        return super().on_request(now_ms, request_id, request)

    def on_response(self, now_ms: int, correlation_id: int, response: Response) -> list[fx.Effect]:
        self.said.append(("response", response))
        return super().on_response(now_ms, correlation_id, response)

    def on_request_failed(self, now_ms: int, correlation_id: int) -> list[fx.Effect]:
        self.said.append(("failed", correlation_id))
        return super().on_request_failed(now_ms, correlation_id)

    def on_streamed_fetches(self, now_ms: int, correlation_id: int, fetched: StreamedFetches) -> list[fx.Effect]:
        self.said.append(("streamed", correlation_id))
        return super().on_streamed_fetches(now_ms, correlation_id, fetched)


class Rig:
    """A follower of LEADER, whose first fetch has been answered: the next one may be streamed."""

    def __init__(self, node_id: int = 1, open_streams: Callable[[], FetchStreams] | None = None) -> None:
        self.said: list[Said] = []
        self.log, self.streams = Log(), Streams(self.said)
        self.sent: list[tuple[fx.SendRequest, Callable[[Response | None], None]]] = []
        self.replies: list[Response] = []
        self.faults: list[Exception] = []
        self.on_commit_do: Callable[[], None] = lambda: None
        self.leaders = MemoryLog()
        voters = VotersInLog(VoterSet.of_ids([1, LEADER, OTHER]))
        config = replace(CONFIG, never_votes=node_id == OBSERVER)
        self.node = Node(Identity(ReplicaKey(node_id), "c"), voters, config, self.log, 1)
        self.node.said = self.said
        self.driver = RaftDriver(
            self.node, self.log, Store(), self, transport=self, open_streams=open_streams or (lambda: self.streams)
        )

    async def start(self) -> Rig:
        self.driver.start()
        self.ask(BeginQuorumEpochRequest(None, None, LEADER, EPOCH))
        await self.until(lambda: self.fetches_alone() != [])
        self.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
        await self.until(lambda: bool(self.streams.begun) or len(self.fetches_alone()) > 1)
        return self

    async def until(self, is_so: Callable[[], bool]) -> None:
        await until(is_so)

    async def settle(self) -> None:
        """Let pending work complete; a thread writes quorum-state."""
        await self.until(lambda: self.node.replica.durable_ticket == self.node.replica.ticket)
        for _ in range(5):
            await asyncio.sleep(0)

    # The transport

    def send(self, request: fx.SendRequest, on_done: Callable[[Response | None], None]) -> None:
        self.said.append(("send", request.to))
        self.sent.append((request, on_done))

    def fetches_alone(self) -> list[fx.SendRequest]:
        """The fetches that were sent as single requests to the leader; without a leader, any replica is asked."""
        found = []
        for sent, _ in self.sent:
            is_fetch = isinstance(sent.request, FetchRequest) and sent.request.epoch == EPOCH
            if is_fetch and sent.to == LEADER:
                found.append(sent)
        return found

    def answer(self, response: Response | None) -> None:
        self.sent[-1][1](response)

    # The listener

    def on_commit(self, high_watermark: int) -> None:
        self.said.append(("commit", high_watermark))
        self.on_commit_do()

    def on_leader(self, epoch: int) -> None:
        raise AssertionError("it only follows")

    def on_not_leader(self, epoch: int) -> None:
        raise AssertionError("it only follows")

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        raise AssertionError("none is due")

    async def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        raise AssertionError("there is none")

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        raise AssertionError("there is none")

    def on_fault(self, error: Exception) -> None:
        self.faults.append(error)

    # Events

    def ask(self, request: Request) -> None:
        def reply(response: Response, read: fx.Read | None) -> None:
            self.said.append(("answer", type(response)))
            self.replies.append(response)

        self.driver.handle_request(request, reply)

    def step(self) -> list[Said]:
        """Run an empty step; returns the calls in it."""
        return self.said_in(self.change_nothing)

    def change_nothing(self) -> None:
        """An event that has no effect on this replica."""
        self.driver.on_peer_refused(STRANGER)

    def said_in(self, what: Callable[[], None]) -> list[Said]:
        before = len(self.said)
        what()
        return self.said[before:]

    def append(self, count: int = 3, *, is_flushed: bool = True) -> None:
        """What the stream does with a response."""
        start = self.leaders.end_offset
        self.leaders.append([b"x"] * count, EPOCH, 0)
        self.log.append_fetched(self.leaders.read(start, 1 << 20), EPOCH)
        if is_flushed:
            self.log.flushed_offset = self.log.end_offset

    def fetched(self, high_watermark: int) -> StreamedFetches:
        """The report that it fetched up to the end of the log."""
        now_ms, [*_, effect] = LoopClock().now_ms(), self.streams.begun
        assert isinstance(effect.request, FetchRequest)
        first = effect.request
        request = FetchRequest(
            first.cluster_id,
            first.replica,
            first.epoch,
            self.leaders.end_offset,
            EPOCH,
            high_watermark,
            first.max_wait_ms,
            first.max_bytes,
        )
        return StreamedFetches(now_ms, now_ms, request, high_watermark)

    def will_have(self, count: int, high_watermark: int) -> None:
        """Records have arrived that have not been reported."""

        def arrive() -> None:
            self.append(count)
            self.streams.news.append(StreamProgress(self.fetched(high_watermark), None))

        self.streams.arrive = arrive

    async def close(self) -> None:
        await self.driver.close(100)
        if self.streams.fd is not None:
            os.close(self.streams.fd)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = await Rig().start()
    yield made
    await made.close()
    assert made.faults == []


def vote(offset: int, *, epoch: int = EPOCH + 1, pre_vote: bool = False) -> VoteRequest:
    return VoteRequest(None, None, ReplicaKey(OTHER), epoch, OffsetAndEpoch(offset, EPOCH), pre_vote)


def kinds(said: list[Said]) -> list[str]:
    return [kind for kind, *_ in said]


async def test_a_streamed_fetch_starts_at_the_end_of_its_step(rig: Rig) -> None:
    [effect] = rig.streams.begun
    assert effect.may_stream
    assert len(rig.fetches_alone()) == 1, "the first, by which the leader is known to answer"
    assert kinds(rig.said)[-3:] == ["response", "commit", "begin"]


async def test_a_fetch_cancelled_in_its_own_step_is_never_started() -> None:
    """The response commits, the waiter of the commit causes a vote request, and that is in the same step."""
    rig = Rig()
    rig.driver.start()
    rig.ask(BeginQuorumEpochRequest(None, None, LEADER, EPOCH))
    await rig.until(lambda: rig.fetches_alone() != [])
    asked = [vote(9)]
    rig.on_commit_do = lambda: rig.ask(asked.pop()) if asked else None
    rig.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
    await rig.settle()
    assert not asked
    assert rig.node.replica.epoch == EPOCH + 1
    assert rig.replies[-1] == VoteResponse(Error.NONE, EPOCH + 1, None, True)
    assert "begin" not in kinds(rig.said)
    assert len(rig.fetches_alone()) == 1
    await rig.close()


async def test_a_step_holds_takes_reports_decides_and_releases(rig: Rig) -> None:
    rig.will_have(3, 2)
    said = rig.said_in(lambda: rig.ask(BeginQuorumEpochRequest(None, None, LEADER, EPOCH)))
    assert kinds(said) == ["hold", "take", "streamed", "commit", "request", "answer", "release"]
    assert ("commit", 2) in said
    assert rig.driver.high_watermark == 2


async def test_a_step_without_news_holds_and_releases(rig: Rig) -> None:
    assert kinds(rig.step()) == ["hold", "take", "release"]


async def test_its_descriptor_makes_a_step(rig: Rig) -> None:
    rig.will_have(3, 3)
    before = len(rig.said)
    rig.streams.wake()
    await rig.until(lambda: len(rig.said) > before)
    assert kinds(rig.said[before:])[:5] == ["hold", "take", "streamed", "commit", "release"]


@pytest.mark.parametrize(("offset", "granted"), [(2, False), (3, True)])
async def test_a_vote_uses_the_current_log_after_the_end_of_the_stream(rig: Rig, offset: int, granted: bool) -> None:
    rig.will_have(3, 0)
    before = len(rig.said)
    rig.ask(vote(offset))
    await rig.until(lambda: isinstance(rig.replies[-1], VoteResponse))
    said = kinds(rig.said[before:])
    assert rig.replies[-1] == VoteResponse(Error.NONE, EPOCH + 1, None, granted)
    assert (
        said.index("hold") < said.index("streamed") < said.index("request") < said.index("stop") < said.index("answer")
    )
    assert "release" not in said, "what is held until the end appends and acknowledges nothing more"


async def test_a_rejected_pre_vote_does_not_end_the_stream(rig: Rig) -> None:
    said = rig.said_in(lambda: rig.ask(vote(9, epoch=EPOCH, pre_vote=True)))
    assert kinds(said) == ["hold", "take", "request", "answer", "release"]
    response = rig.replies[-1]
    assert isinstance(response, VoteResponse)
    assert not response.granted


async def test_a_leader_of_a_new_epoch_ends_the_stream_and_gets_another_one(rig: Rig) -> None:
    before = len(rig.said)
    rig.ask(BeginQuorumEpochRequest(None, None, OTHER, EPOCH + 1))
    await rig.until(lambda: rig.sent[-1][0].to == OTHER)
    rig.answer(FetchResponse(Error.NONE, EPOCH + 1, OTHER, high_watermark=0))
    await rig.until(lambda: len(rig.streams.begun) == 2)
    said = kinds(rig.said[before:])
    assert "release" not in said[: said.index("stop")]
    assert said.index("stop") < said.index("answer")
    assert said.index("stop") < said.index("begin")
    assert rig.streams.begun[-1].to == OTHER


async def test_reports_after_the_end_are_ignored(rig: Rig) -> None:
    rig.ask(vote(9))
    await rig.settle()
    assert kinds(rig.said).count("stop") == 1
    rig.streams.news.append(StreamProgress(rig.fetched(7), None))
    rig.streams.wake()
    assert kinds(rig.step()) == []
    await rig.settle()
    assert rig.said.count(("take",)) == rig.said.count(("hold",)) == 1
    assert not any(kind == "streamed" for kind in kinds(rig.said))


async def test_any_other_response_is_passed_to_the_core(rig: Rig) -> None:
    # From the same leader in the same epoch: the last two records are not the leader's.
    rig.append(3)
    response = FetchResponse(Error.NONE, EPOCH, LEADER, 0, diverging=OffsetAndEpoch(1, EPOCH))
    rig.streams.news.append(StreamProgress(rig.fetched(0), response))
    said = rig.step()
    assert kinds(said)[:4] == ["hold", "take", "streamed", "response"]
    assert said[3] == ("response", response)
    assert rig.log.end_offset == 1
    assert kinds(said)[4:] == ["begin"], "the next fetch is sent, and nothing else is released"
    request = rig.streams.begun[-1].request
    assert isinstance(request, FetchRequest)
    assert request.fetch_offset == 1


async def test_a_response_of_another_epoch_is_accepted(rig: Rig) -> None:
    response = FetchResponse(
        Error.FENCED_LEADER_EPOCH, EPOCH + 1, OTHER, leader_endpoints=(Endpoint("CONTROLLER", "there", 9093),)
    )
    rig.streams.news.append(StreamProgress(rig.fetched(0), response))
    rig.step()
    await rig.until(lambda: rig.sent[-1][0].to == OTHER)
    assert (rig.driver.epoch, rig.driver.leader_id) == (EPOCH + 1, OTHER)
    assert len(rig.streams.begun) == 1, "this leader has answered nothing yet"


async def test_the_end_is_processed_before_the_event_of_its_step(rig: Rig) -> None:
    rig.streams.news.append(StreamProgress(None, FetchFailedError("closed", is_of_disk=False)))
    said = rig.said_in(lambda: rig.ask(EndQuorumEpochRequest(None, LEADER, EPOCH, (ReplicaKey(OTHER),))))
    assert kinds(said)[:4] == ["hold", "take", "failed", "request"]


async def test_after_a_failure_fetches_are_single_requests(rig: Rig) -> None:
    [effect] = rig.streams.begun
    alone = len(rig.fetches_alone())
    rig.streams.news.append(StreamProgress(None, FetchFailedError("closed", is_of_disk=False)))
    said = rig.step()
    assert ("failed", effect.correlation_id) in said
    assert "release" not in kinds(said)

    def is_fetching() -> bool:
        if rig.sent[-1][0].to == OTHER:  # it might know another leader, but does not
            rig.answer(None)
        return rig.sent[-1][0].to == LEADER and len(rig.fetches_alone()) > alone

    await until(is_fetching)
    for _ in range(3):
        assert len(rig.fetches_alone()) == alone + 1
        assert not rig.fetches_alone()[-1].may_stream
        alone += 1
        rig.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
    assert len(rig.streams.begun) == 1


async def test_a_failed_flush_stops_the_replica() -> None:
    rig = await Rig().start()
    text = "00000000000000000000.log: Input/output error"
    rig.streams.news.append(StreamProgress(rig.fetched(0), FetchFailedError(text, is_of_disk=True)))
    said = rig.said_in(lambda: rig.ask(vote(9)))
    [error] = rig.faults
    assert isinstance(error, MetadataLogError)
    assert str(error) == text
    assert kinds(said) == ["hold", "take", "streamed", "close"], "such a log grants no vote"
    await rig.close()


async def test_without_a_connection_a_fetch_is_a_single_request() -> None:
    rig = Rig()
    rig.streams.accepts = False
    await rig.start()
    assert kinds(rig.said)[-2:] == ["begin", "send"]
    assert rig.fetches_alone()[-1].may_stream
    rig.append(1)
    rig.answer(FetchResponse(Error.NONE, EPOCH, LEADER, 1))
    assert "hold" not in kinds(rig.said)
    rig.streams.accepts = True
    await rig.close()


async def test_the_stream_is_closed_with_the_driver(rig: Rig) -> None:
    await rig.driver.close(100)
    assert kinds(rig.said)[-1] == "close"
    assert kinds(rig.said).count("close") == 1
    assert rig.step() == []


async def test_a_voter_starts_no_flush_while_the_stream_flushes(rig: Rig) -> None:
    rig.streams.arrive = lambda: rig.append(3, is_flushed=False)
    rig.step()
    assert (rig.log.flushed_offset, rig.log.end_offset, rig.log.flush_count) == (0, 3, 0)
    rig.ask(vote(3))
    assert rig.log.flush_count == 1
    rig.log.finish_flush()
    await rig.settle()
    assert rig.log.flushed_offset == 3


async def test_records_unflushed_at_the_end_are_flushed_before_the_next_fetch(rig: Rig) -> None:
    def arrive() -> None:
        rig.append(3, is_flushed=False)
        rig.streams.news.append(StreamProgress(rig.fetched(0), FetchResponse(Error.NONE, EPOCH, LEADER, 0)))

    rig.streams.arrive = arrive
    rig.step()
    assert rig.log.flush_count == 1
    assert len(rig.streams.begun) == 1, "a fetch acknowledges what lies below it"
    rig.log.finish_flush()
    await rig.until(lambda: len(rig.streams.begun) == 2)
    request = rig.streams.begun[-1].request
    assert isinstance(request, FetchRequest)
    assert request.fetch_offset == 3


async def test_an_observer_flushes_by_its_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "OBSERVER_FLUSH_MS", 10)
    rig = await Rig(OBSERVER).start()
    rig.streams.arrive = lambda: rig.append(3, is_flushed=False)
    rig.step()
    assert rig.log.flush_count == 0
    await rig.until(lambda: rig.log.flush_count == 1)
    assert "stop" not in kinds(rig.said)
    rig.log.finish_flush()
    assert rig.log.flushed_offset == 3
    await rig.close()


async def test_a_campaign_ends_the_stream_before_votes_are_requested(rig: Rig) -> None:
    """The missing leader causes the campaign; before, the stream reports that it has not heard of it either."""
    state = rig.node.replica.state
    assert rig.node.replica.role is Role.FOLLOWER
    state.deadline_ms = 0  # type: ignore[union-attr]
    rig.node.deadline_ms = 0
    said = rig.step()
    assert rig.node.replica.role is not Role.FOLLOWER
    assert kinds(said)[:2] == ["hold", "take"]
    assert "stop" in kinds(said)
    assert "release" not in kinds(said)


class Engine:
    """A stream for which there is no descriptor, or no thread."""

    is_fine = False
    fd = None

    def __init__(self, log: object) -> None:
        self.is_started = False

    def start(self, host: str, port: int, **plan: object) -> None:
        if not self.is_fine:
            raise OSError(11, "Resource temporarily unavailable")
        self.is_started = True

    def take(self) -> None:
        return None

    def nothing(self) -> None:
        pass

    hold = release = stop = close = nothing


class NoDescriptor(Engine):
    def __init__(self, log: object) -> None:
        raise OSError(24, "Too many open files")


@pytest.mark.parametrize(("engine", "why"), [(Engine, "temporarily unavailable"), (NoDescriptor, "Too many open")])
async def test_without_a_thread_or_a_descriptor_each_fetch_is_a_single_request(
    engine: type[Engine], why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streams, "FetchStream", engine)
    route = streams.Route("localhost", 9093, "CONTROLLER", 18, "klamm-1", 2000)
    rig = Rig(open_streams=lambda: streams.FetchStreams(None, lambda effect: route, flushes=True))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "klamm.raft"):
        await rig.start()
        for _ in range(3):
            alone = len(rig.fetches_alone())
            rig.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
            assert len(rig.fetches_alone()) == alone + 1
    assert rig.faults == []
    [message] = [record.getMessage() for record in caplog.records if "do not go on" in record.getMessage()]
    assert why in message
    if engine is Engine:  # threads are available again
        monkeypatch.setattr(Engine, "is_fine", True)
        alone = len(rig.fetches_alone())
        rig.answer(FetchResponse(Error.NONE, EPOCH, LEADER, high_watermark=0))
        assert len(rig.fetches_alone()) == alone, "the stream continues"
    await rig.close()
