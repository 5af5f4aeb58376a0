"""The engine's responses to fetches of the quorum's log: content, time, and which requests are left to Python."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.frames import read_frame, send_frame

from klamm._engine.node import Boot, RequestEvent
from klamm._engine.quorum import FetchAnswers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.wire.headers import request_header
from klamm.raft.driver.leased_fetches import NativeFetchAnswers
from klamm.raft.effects import ReadRange
from klamm.raft.log.native_log import NativeMetadataLog
from klamm.raft.messages import Error, FetchRequest, FetchResponse
from klamm.raft.replication.reading import with_bytes
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, VoterSet, VotersInLog
from klamm.raft.wire.requests import encode_request
from klamm.raft.wire.responses import encode_response

EPOCH, START = 3, 2  # of the current epoch
OWN, SECOND, THIRD = (ReplicaKey(voter, bytes([voter]) * 16) for voter in (1, 2, 3))
BROKER, STRANGER = ReplicaKey(7, bytes([7]) * 16), ReplicaKey(8)
HERE = Endpoint("CONTROLLER", "localhost", 9093)
QUIET_S, LONG_MS = 0.15, 60_000


class Peer:
    """Another replica, with its own connection."""

    def __init__(self, key: ReplicaKey, address: tuple[str, int]) -> None:
        self.key, self.correlation_id = key, key.id * 100
        self.socket = socket.create_connection(address, 10)

    def ask(self, offset: int, *, version: int = 18, **changes: Any) -> bytes:
        """Send a fetch; returns the request body. If its version has no high watermark, it counts as known."""
        asked: dict[str, Any] = {
            "cluster_id": "c",
            "replica": self.key,
            "epoch": EPOCH,
            "fetch_offset": offset,
            "last_fetched_epoch": EPOCH,
            "high_watermark": START + 1,
            "max_wait_ms": LONG_MS,
            "max_bytes": 1 << 20,
        }
        body = encode_request(FetchRequest(**asked | changes), version)
        self.correlation_id += 1
        send_frame(self.socket, request_header(ApiKey.FETCH, version, self.correlation_id, b"klamm-7") + body)
        return body

    def answer(self) -> bytes:
        """The body of the response."""
        frame = read_frame(self.socket)
        assert frame[:5] == struct.pack(">ib", self.correlation_id, 0)
        return frame[5:]

    def is_silent(self) -> bool:
        return not select.select([self.socket], [], [], QUIET_S)[0]


class Leader:
    """The engine and the log of a controller, with a committed record of its epoch; others know voters 2 and 3."""

    def __init__(self, folder: Path) -> None:
        listener = ("CONTROLLER", "127.0.0.1", 0, True)
        self.engine, self.log, _, _, [self.address] = Boot(
            node_id=OWN.id,
            cluster_id="c",
            log_dirs=[],
            settings={},
            metadata_dir=folder,
            segment_bytes=8 << 20,
            segment_ms=604_800_000,
            listeners=[listener],
            features=[],
            static_voters=[1, 2, 3],
        ).finish(lambda code, message: KafkaError(ErrorCode(code), message))
        assert self.engine.open("CONTROLLER")
        self.answers = FetchAnswers(self.log, self.engine)
        self.log.append([b"old"] * START, EPOCH - 1, 1)
        self.append(1)
        self.flush()
        self.peers: list[Peer] = []

    def begin(self, *, endpoints: tuple[Endpoint, ...] = (HERE,), take_timeout_ms: int = LONG_MS) -> None:
        self.answers.begin(
            cluster_id="c",
            leader_id=OWN.id,
            epoch=EPOCH,
            start_offset=START,
            high_watermark=START + 1,
            voters=[(SECOND.id, START + 1), (THIRD.id, -1)],
            counts_itself=True,
            endpoints=endpoints,
            take_timeout_ms=take_timeout_ms,
        )
        numbers = [self.answers.add_replica(*key, key is not BROKER) for key in (SECOND, THIRD, BROKER)]
        assert numbers == [0, 1, 2]

    def peer(self, key: ReplicaKey) -> Peer:
        self.peers.append(Peer(key, self.address))
        return self.peers[-1]

    def append(self, count: int) -> None:
        self.log.append([b"new"] * count, EPOCH, 1)
        self.answers.offer()

    def flush(self) -> None:
        self.log.start_flush()
        assert select.select([self.log.flush_fd], [], [], 10)[0]
        assert self.log.take_flushed() == [(self.log.end_offset, None)]

    def is_raised(self) -> bool:
        readable = bool(select.select([self.answers.fd], [], [], 0)[0])
        assert readable is self.answers.has_news
        return readable

    def taken(self) -> list[tuple[int, int, int]]:
        return [row[:3] for row in self.answers.take()]

    def requests(self, within_s: float = 10) -> list[RequestEvent]:
        """The requests for Python, if there are any within that time."""
        select.select([self.engine.event_fd], [], [], within_s)
        return [event for event in self.engine.drain(10) if isinstance(event, RequestEvent)]

    def expected(
        self, offset: int, high_watermark: int, *, version: int = 18, max_bytes: int = 1 << 20, knows: bool = True
    ) -> bytes:
        """The bytes that Python writes for this response of the core."""
        endpoints = (HERE,) if knows else ()
        start = self.log.start_offset
        response = FetchResponse(Error.NONE, EPOCH, OWN.id, high_watermark, start, leader_endpoints=endpoints)
        read = ReadRange(offset, max_bytes) if offset < self.log.end_offset else None
        whole = with_bytes(NativeMetadataLog(self.log, lambda: 1), response, read)
        return encode_response(whole, version, "CONTROLLER")

    def close(self) -> None:
        for peer in self.peers:
            peer.socket.close()
        self.engine.shutdown(-1)
        self.log.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    made = Leader(tmp_path / "metadata")
    yield made
    made.close()


@pytest.mark.parametrize("version", [17, 18])
@pytest.mark.parametrize("endpoints", [(HERE,), (), (HERE._replace(listener="ELSEWHERE"),)])
@pytest.mark.parametrize(
    ("offset", "changes"),
    [
        (START + 1, {}),
        (START + 6, {}),
        (START + 1, {"max_bytes": 1}),
        (START + 1, {"max_bytes": 150}),
        (START + 2, {"max_bytes": 0}),
        (START + 9, {"max_wait_ms": 0}),
    ],
    ids=["records", "the last", "one batch", "few bytes", "within a batch", "none"],
)
def test_an_answer_is_what_python_would_have_written(
    leader: Leader, version: int, endpoints: tuple[Endpoint, ...], offset: int, changes: dict[str, int]
) -> None:
    for count in (5, 1, 2):
        leader.append(count)
    leader.begin(endpoints=endpoints)
    peer = leader.peer(THIRD)
    peer.ask(offset, version=version, **changes)
    max_bytes = changes.get("max_bytes", 1 << 20)
    expected = leader.expected(offset, START + 1, version=version, max_bytes=max_bytes, knows=HERE in endpoints)
    assert peer.answer() == expected
    assert leader.engine.drain(10) == []


@pytest.mark.parametrize("knows_less", [True, False])
@pytest.mark.parametrize("who", [SECOND, BROKER])
def test_a_higher_high_watermark_alone_causes_a_response(leader: Leader, who: ReplicaKey, knows_less: bool) -> None:
    leader.begin()
    peer = leader.peer(who)
    peer.ask(START + 1, high_watermark=START if knows_less else START + 1)
    assert peer.is_silent() is not knows_less
    if knows_less:
        assert peer.answer() == leader.expected(START + 1, START + 1)


def test_a_fetch_without_a_high_watermark_waits_until_its_timeout(leader: Leader) -> None:
    leader.begin()
    peer, begun = leader.peer(BROKER), time.monotonic()
    peer.ask(START + 1, version=17, max_wait_ms=200)
    assert peer.answer() == leader.expected(START + 1, START + 1, version=17)
    assert 0.2 <= time.monotonic() - begun < 10


def test_a_voter_gets_appended_records_and_an_observer_committed_ones(leader: Leader) -> None:
    leader.begin()
    second, third, broker = map(leader.peer, (SECOND, THIRD, BROKER))
    for peer in (second, third, broker):
        peer.ask(START + 1)
    assert all(peer.is_silent() for peer in (second, third, broker))
    leader.append(3)
    end = leader.log.end_offset
    for peer in (second, third):
        assert peer.answer() == leader.expected(START + 1, START + 1)
    second.ask(end)
    assert broker.is_silent(), "the leader has not flushed it"
    assert not leader.is_raised()
    leader.flush()
    assert broker.answer() == leader.expected(START + 1, end)
    assert leader.is_raised()
    # Voters only learn the high watermark, so the core and waiters of the commit are notified first.
    assert second.is_silent()
    third.ask(end, high_watermark=START + 1)
    assert third.is_silent()
    leader.answers.notify_voters()
    for peer in (second, third):
        assert peer.answer() == leader.expected(end, end)
    assert leader.requests(0) == []


def test_a_voters_fetch_commits_flushed_records(leader: Leader) -> None:
    leader.begin()
    broker, third = leader.peer(BROKER), leader.peer(THIRD)
    leader.append(1)
    leader.flush()
    end = leader.log.end_offset
    broker.ask(START + 1)
    assert broker.is_silent()
    assert not leader.is_raised()
    third.ask(end, max_wait_ms=0)
    assert broker.answer() == leader.expected(START + 1, end)
    assert third.answer() == leader.expected(end, end)
    assert leader.is_raised()
    assert leader.taken() == [(2, START + 1, end), (1, end, end)]
    assert not leader.is_raised()


def test_the_high_watermark_of_the_core_is_sent(leader: Leader) -> None:
    leader.begin()
    broker, second = leader.peer(BROKER), leader.peer(SECOND)
    leader.append(2)
    end = leader.log.end_offset
    broker.ask(START + 1)
    second.ask(end)
    assert broker.is_silent()
    leader.answers.raise_high_watermark(end)
    assert broker.answer() == leader.expected(START + 1, end)
    assert second.is_silent()
    leader.answers.notify_voters()
    assert second.answer() == leader.expected(end, end)
    assert not leader.is_raised(), "the core is not notified"


def test_at_the_end_waiting_fetches_become_requests(leader: Leader) -> None:
    leader.begin()
    bodies = {}
    for who, version in ((SECOND, 18), (BROKER, 17)):
        peer = leader.peer(who)
        bodies[version] = peer, peer.ask(START + 1, version=version)
        assert peer.is_silent()
    end = leader.log.end_offset
    assert [row[:3] for row in leader.answers.end()] == [(0, end, end), (2, end, end)]
    requests = leader.requests()
    while len(requests) < 2:
        requests += leader.requests()
    assert leader.requests(0) == []
    for request in requests:
        peer, sent = bodies[request.api_version]
        assert (request.api_key, request.client_id, request.body) == (ApiKey.FETCH, "klamm-7", sent)
        assert (request.listener, request.on_controller) == ("CONTROLLER", True)
        assert (request.principal, request.address) == (None, "127.0.0.1")
        assert 0 <= request.age_ms < request.timeout_ms == 60_000
        leader.engine.answer([(request.handle, b"by Python %d" % request.api_version)])
        assert peer.answer() == b"by Python %d" % request.api_version
    assert leader.answers.end() == leader.answers.take() == []
    leader.begin()
    peer, _ = bodies[18]
    peer.ask(START, last_fetched_epoch=EPOCH - 1)
    assert len(leader.requests()) == 1, "from before the epoch"


def test_fetches_of_unknown_replicas_or_other_epochs_become_requests(leader: Leader) -> None:
    second, stranger, former = map(leader.peer, (SECOND, STRANGER, SECOND._replace(directory_id=b"o" * 16)))
    assert leader.answers.add_replica(*SECOND, True) is None
    second.ask(START + 1)
    [request] = leader.requests()
    leader.begin()
    assert leader.answers.add_replica(*former.key, False) is None, (
        "a former directory of a voter is handled by the core"
    )
    leader.engine.answer([(request.handle, b"by Python")])
    assert second.answer() == b"by Python"
    for peer, changes in (
        (stranger, {}),
        (former, {}),
        (second, {"epoch": EPOCH + 1, "last_fetched_epoch": EPOCH + 1}),
    ):
        peer.ask(START + 1, **changes)
        assert len(leader.requests()) == 1
    assert leader.answers.take() == []


def test_fetches_are_recorded_with_log_end_offset_and_age(leader: Leader) -> None:
    leader.begin()
    broker, begun = leader.peer(BROKER), time.monotonic()
    for offset in (START + 1, START + 1, START + 3):
        broker.ask(offset, max_wait_ms=0)
        broker.answer()
        leader.append(2)
        time.sleep(0.05)  # their ages differ by at least this
    rows = leader.answers.take()
    age_ms = (time.monotonic() - begun) * 1000
    at = START + 1
    assert [row[:3] for row in rows] == [(2, at, at), (2, at, at + 2), (2, at + 2, at + 4)]
    first, second, third = (row[3] for row in rows)
    assert age_ms >= first >= second + 50 >= third + 100 >= 150
    assert leader.answers.take() == []


def test_without_reading_reports_no_more_fetches_are_answered(leader: Leader) -> None:
    leader.begin(take_timeout_ms=200)
    broker = leader.peer(BROKER)
    broker.ask(START + 1, max_wait_ms=0)
    broker.answer()
    time.sleep(0.25)  # longer than `take_timeout_ms`, and no event shows that it has passed
    broker.ask(START + 1, max_wait_ms=0)
    [request] = leader.requests()
    leader.engine.answer([(request.handle, b"by Python")])
    assert broker.answer() == b"by Python"
    assert len(leader.answers.take()) == 1
    broker.ask(START + 1, max_wait_ms=0)
    assert broker.answer() == leader.expected(START + 1, START + 1)


async def test_reports_use_the_replica_keys_of_the_core(leader: Leader) -> None:
    answers = NativeFetchAnswers(leader.answers, OWN, "c", LONG_MS)
    voters = VotersInLog(VoterSet.of_ids([1, 2, 3]))
    by = FetchLease(EPOCH, START, START + 1, ((2, START + 1), (3, -1)), True, voters, (HERE,))
    leader.append(1)
    for known in ((BROKER, BROKER, THIRD), (THIRD, THIRD, BROKER)):  # what was known before the end is discarded
        answers.begin(by)
        for who in (OWN, *known):
            answers.add_replica(who, counts=who == THIRD)
        broker, third, second, own = map(leader.peer, (BROKER, THIRD, SECOND, OWN))
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        for peer in (third, broker):
            peer.ask(START + 1, max_wait_ms=0)
            assert peer.answer() == leader.expected(START + 1, START + 1)
        for peer in (second, own):  # the core rejects a fetch from a replica with the leader's own id
            peer.ask(START + 1, max_wait_ms=0)
            assert len(leader.requests()) == 1
        taken = answers.take()
        assert [fetch[1:] for fetch in taken] == [(who, START + 1, START + 2) for who in (THIRD, BROKER)]
        assert all(0 <= fetch.at_ms - now_ms < 10_000 for fetch in taken)
        broker.ask(START + 1, max_wait_ms=0)
        broker.answer()
        [left] = answers.end()
        assert left == LeasedFetch(left.at_ms, BROKER, START + 1, START + 2)
        assert (answers.fd, answers.has_news) == (leader.answers.fd, False)
