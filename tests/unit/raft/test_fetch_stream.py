"""The engine's fetch stream with a leader played by the test, which uses Python's codec."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.frames import read_frame, send_frame
from tests.support.waiting import wait_until

from klamm._engine.quorum import FetchStream, MetadataLog
from klamm.protocol.wire.codec import build, encode
from klamm.protocol.wire.headers import request_header
from klamm.protocol.wire.kio_classes import response_class
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import Error, FetchRequest, FetchResponse
from klamm.raft.voters.voter_set import ReplicaKey
from klamm.raft.wire.requests import decode_request, encode_request
from klamm.raft.wire.responses import encode_response

EPOCH, LEADER = 3, 1
DIRECTORY = bytes([7]) * 16
QUIET_S = 0.15


def open_log(directory: Path) -> MetadataLog:
    return MetadataLog(directory, segment_bytes=8 << 20, segment_ms=604_800_000, now_ms=0)


class Leader:
    """Accepts one connection, reads requests, and responds when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.log = open_log(folder)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(5)
        self.port: int = self.listener.getsockname()[1]
        self.version = 18
        self.correlation_id = 0
        self.frame = b""
        self._peer: socket.socket | None = None

    @property
    def peer(self) -> socket.socket:
        if self._peer is None:
            self._peer, _ = self.listener.accept()
            self._peer.settimeout(5)
            self._say_versions(self._peer)
        return self._peer

    def _say_versions(self, peer: socket.socket) -> None:
        """Every connection of a client begins with ApiVersions."""
        key, version, correlation_id, _ = struct.unpack_from(">hhih", read_frame(peer))
        assert (key, version) == (18, 3)
        rows = [{"api_key": 1, "min_version": 17, "max_version": 18}]
        send_frame(peer, struct.pack(">i", correlation_id) + encode(build(response_class(18, version), api_keys=rows)))

    def request(self) -> FetchRequest:
        self.frame = read_frame(self.peer)
        key, self.version, self.correlation_id, name_size = struct.unpack_from(">hhih", self.frame)
        received = decode_request(key, self.version, self.frame[10 + name_size + 1 :])
        assert isinstance(received.message, FetchRequest)
        return received.message

    def body(self, high_watermark: int, records: bytes = b"", **changes: Any) -> bytes:
        fields: dict[str, Any] = {"error": Error.NONE, "epoch": EPOCH, "leader_id": LEADER}
        response = FetchResponse(high_watermark=high_watermark, records=records, **fields | changes)
        return encode_response(response, self.version, "CONTROLLER")

    def answer(self, body: bytes) -> None:
        send_frame(self.peer, struct.pack(">ib", self.correlation_id, 0) + body)

    def records(self, *values: bytes, epoch: int = EPOCH) -> bytes:
        start = self.log.end_offset
        self.log.append(list(values), epoch, 1)
        return self.log.read(start, 1 << 20)

    def is_silent(self) -> bool:
        """Whether nothing more is sent; a closed connection is also silent."""
        readable, _, _ = select.select([self.peer], [], [], QUIET_S)
        return not readable or self.peer.recv(1) == b""

    def forget(self) -> None:
        """The next run uses another connection."""
        self.peer.close()
        self._peer = None

    def hang_up(self) -> None:
        self.peer.close()

    def close(self) -> None:
        self.listener.close()
        if self._peer is not None:
            self._peer.close()
        self.log.close()


class Follower:
    """A log and its stream."""

    def __init__(self, folder: Path, port: int) -> None:
        self.log, self.port = open_log(folder), port
        self.stream = FetchStream(self.log)

    def start(self, **changes: Any) -> None:
        plan: dict[str, Any] = {
            "version": 18,
            "client_id": "klamm-3",
            "cluster_id": "some-cluster",
            "replica_id": 3,
            "directory_id": DIRECTORY,
            "epoch": EPOCH,
            "leader_id": LEADER,
            "high_watermark": 0,
            "max_wait_ms": 500,
            "max_bytes": 1 << 20,
            "timeout_ms": 5000,
            "flushes": True,
        }
        self.stream.start("127.0.0.1", self.port, **plan | changes)

    def has_progress(self, within_s: float = 5.0) -> bool:
        return bool(select.select([self.stream.fd], [], [], within_s)[0])

    def end(self) -> Any:
        """Wait for the run to end; returns how it ended."""
        assert self.has_progress()
        news = self.stream.take()
        assert news is not None
        return news[-1]

    def close(self) -> None:
        self.stream.close()
        self.log.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    made = Leader(tmp_path / "leader")
    yield made
    made.close()


@pytest.fixture
def follower(tmp_path: Path, leader: Leader) -> Iterator[Follower]:
    made = Follower(tmp_path / "follower", leader.port)
    yield made
    made.close()


@pytest.mark.parametrize("version", [17, 18])
@pytest.mark.parametrize("cluster_id", ["some-cluster", None])
@pytest.mark.parametrize("directory_id", [DIRECTORY, None])
def test_a_request_has_the_bytes_of_pythons_codec(
    leader: Leader, follower: Follower, version: int, cluster_id: str | None, directory_id: bytes | None
) -> None:
    follower.log.append([b"a", b"b"], 2, 1)
    follower.start(version=version, cluster_id=cluster_id, directory_id=directory_id, high_watermark=1)
    leader.request()
    expected = FetchRequest(cluster_id, ReplicaKey(3, directory_id), EPOCH, 2, 2, 1, 500, 1 << 20)
    body = encode_request(expected, version)
    assert leader.frame == request_header(1, version, leader.correlation_id, b"klamm-3") + body


def test_records_arrive_and_are_acknowledged_once_they_are_flushed(leader: Leader, follower: Follower) -> None:
    follower.start()
    for n in range(1, 20):
        request = leader.request()
        assert (request.fetch_offset, follower.log.flushed_offset) == (n - 1, n - 1)
        assert request.last_fetched_epoch == (0 if n == 1 else EPOCH)
        # The leader has committed what was fetched before; the follower learns this one response later.
        leader.answer(leader.body(n - 1, leader.records(b"%d" % n)))
        if n > 1:
            assert follower.has_progress()
    request = leader.request()
    assert (request.fetch_offset, request.high_watermark) == (19, 18)
    wait_until(lambda: follower.has_progress(0))
    news = follower.stream.take()
    assert news is not None
    assert (news[:3], news[5:]) == ((19, EPOCH, 18), (18, None))
    assert 0 <= news[3] < 5000
    assert 0 <= news[4] < 5000
    assert follower.stream.take() is None
    assert not follower.has_progress(0)
    leader.answer(leader.body(19))
    assert follower.has_progress()
    assert leader.request().high_watermark == 19
    assert follower.log.read(0, 1 << 20) == leader.log.read(0, 1 << 20)


def test_an_observer_acknowledges_before_its_flush(leader: Leader, follower: Follower) -> None:
    follower.start(flushes=False)
    leader.request()
    leader.answer(leader.body(1, leader.records(b"a")))
    request = leader.request()
    assert (request.fetch_offset, request.high_watermark) == (1, 1)
    assert follower.log.flushed_offset == 0


def test_existing_records_are_flushed_before_the_first_request(leader: Leader, follower: Follower) -> None:
    follower.log.append([b"a"], 2, 1)
    follower.start()
    assert leader.request().fetch_offset == 1
    assert follower.log.flushed_offset == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"error": Error.FENCED_LEADER_EPOCH},
        {"error": Error.NOT_LEADER_OR_FOLLOWER},
        {"diverging": OffsetAndEpoch(0, 2)},
        {"snapshot_id": OffsetAndEpoch(5, 2)},
        {"epoch": EPOCH + 1},
        {"leader_id": 2},
        {"error": Error.INCONSISTENT_CLUSTER_ID},
    ],
)
@pytest.mark.parametrize("version", [17, 18])
def test_a_response_that_needs_a_decision_ends_the_run(
    leader: Leader, follower: Follower, version: int, changes: dict[str, Any]
) -> None:
    follower.start(version=version)
    leader.request()
    body = leader.body(1, leader.records(b"a"), **changes)
    leader.answer(body)
    assert follower.end() == ("answer", version, body)
    assert follower.log.end_offset == 0
    assert follower.stream.take() is None
    assert leader.is_silent()


def test_control_records_damage_and_newer_epochs_are_left_to_python(leader: Leader, follower: Follower) -> None:
    leader.log.append_control([(5, b"\x00\x00\x00\x01\x00")], EPOCH, 1)
    control = leader.log.read(0, 1 << 20)
    newer = follower_like(leader, EPOCH + 1)
    damaged = bytearray(follower_like(leader, EPOCH))
    damaged[-1] ^= 1
    for records in (control, newer, bytes(damaged), b"nothing of a batch"):
        follower.start()
        leader.request()
        body = leader.body(1, records)
        leader.answer(body)
        assert follower.end() == ("answer", 18, body)
        assert follower.log.end_offset == 0
        leader.forget()


def follower_like(leader: Leader, epoch: int) -> bytes:
    """A batch of that epoch at offset 0."""
    batch = bytearray(leader.records(b"value", epoch=epoch))
    batch[:8] = bytes(8)
    return bytes(batch)


def test_a_held_run_waits_between_the_answer_and_the_append(leader: Leader, follower: Follower) -> None:
    follower.start()
    leader.request()
    follower.stream.hold()
    leader.answer(leader.body(0, leader.records(b"a")))
    assert leader.is_silent()
    assert follower.log.end_offset == 0
    news = follower.stream.take()
    assert news is not None, "the leader was heard"
    assert (news[0], news[5:]) == (0, (-1, None))
    follower.stream.release()
    assert leader.request().fetch_offset == 1


def test_a_run_that_is_held_before_its_request_sends_nothing(leader: Leader, follower: Follower) -> None:
    for _ in range(20):
        follower.start()
        follower.stream.hold()
        sent = select.select([leader.peer], [], [], 0.01)[0]
        follower.stream.release()
        leader.request()
        assert not sent or leader.correlation_id == 1
        follower.stream.stop()
        leader.forget()


@pytest.mark.parametrize("is_held", [False, True])
def test_a_stopped_run_appends_sends_and_reports_nothing(leader: Leader, follower: Follower, is_held: bool) -> None:
    follower.start()
    leader.request()
    if is_held:
        follower.stream.hold()
        leader.answer(leader.body(0, leader.records(b"a")))
        time.sleep(0.05)  # what must not be appended would be by then
    follower.stream.stop()
    if not is_held:
        leader.answer(leader.body(0, leader.records(b"a")))
    assert leader.is_silent()
    assert follower.log.end_offset == 0
    assert follower.stream.take() is None
    assert not follower.has_progress(QUIET_S)
    follower.stream.stop()
    follower.stream.hold()
    follower.stream.release()


def test_a_log_changed_while_held_gets_no_records_of_earlier_requests(leader: Leader, follower: Follower) -> None:
    follower.start()
    leader.request()
    follower.stream.hold()
    body = leader.body(0, leader.records(b"a"))
    leader.answer(body)
    follower.log.append([b"b"], 2, 1)
    follower.stream.release()
    assert follower.end() == ("answer", 18, body)
    assert follower.log.end_offset == 1


def test_an_invalid_response_fails_the_run(leader: Leader, follower: Follower) -> None:
    spoiled: list[Callable[[], None]] = [
        leader.hang_up,
        lambda: send_frame(leader.peer, struct.pack(">ib", leader.correlation_id + 1, 0) + leader.body(0)),
        lambda: leader.peer.sendall(struct.pack(">i", (1 << 30) + 1)),
        lambda: leader.peer.sendall(struct.pack(">i", -5)),
        lambda: send_frame(leader.peer, b"abc"),
    ]
    words = ["closed", "instead of 2", "1073741825 bytes", "-5 bytes", "3 bytes"]
    for spoil, word in zip(spoiled, words, strict=True):
        follower.start()
        leader.request()
        spoil()
        kind, text = follower.end()
        assert kind == "failed"
        assert word in text
        leader.forget()
    follower.start(timeout_ms=50)
    leader.request()
    kind, text = follower.end()
    assert (kind, "did not answer Fetch within 50 ms" in text) == ("failed", True)
    leader.listener.close()
    follower.start()
    kind, text = follower.end()
    assert (kind, "refused" in text) == ("failed", True)
    assert follower.log.end_offset == 0


def test_empty_responses_cause_a_backoff(leader: Leader, follower: Follower) -> None:
    follower.start()
    deadline, count = time.monotonic() + 0.3, 0
    while time.monotonic() < deadline:
        leader.request()
        leader.answer(leader.body(-1))
        count += 1
    assert count < 100


def test_the_stream_closes_at_once(leader: Leader, follower: Follower) -> None:
    follower.start()
    leader.request()
    begun = time.monotonic()
    follower.stream.close()
    assert time.monotonic() - begun < 0.5
    assert leader.is_silent()


def test_an_invalid_plan_is_rejected(follower: Follower) -> None:
    for changes in ({"version": 16}, {"version": 19}, {"client_id": "x" * 40_000}, {"timeout_ms": 0}):
        with pytest.raises(ValueError, match=r"version|longer|time-out"):
            follower.start(**changes)
