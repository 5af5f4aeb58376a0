"""Three replicas over sockets: they elect, replicate, hand over; and unusual responses of a peer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from klamm.client.peer import PeerConfig
from klamm.protocol.api_key import ApiKey
from klamm.protocol.wire.codec import build, encode
from klamm.protocol.wire.kio_classes import request_class, response_class
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.driver.peers import PeerTransport
from klamm.raft.driver.serving import RaftRequests
from klamm.raft.driver.streams import Route
from klamm.raft.effects import SendRequest
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import Error, FetchRequest, Response, VoteRequest, VoteResponse
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

# No follower's fetch timeout expires.
CONFIG = RaftConfig(election_timeout_ms=100, fetch_timeout_ms=3_600_000, request_timeout_ms=5000, fetch_max_wait_ms=50)
CLIENT = PeerConfig("tests", request_timeout_ms=5000, reconnect_backoff_ms=5, reconnect_backoff_max_ms=5)
APIS = {1: (4, 18), 18: (0, 4), 52: (0, 2), 53: (0, 1), 54: (0, 1), 59: (0, 1)}


class QuickLog(MemoryLog):
    """Completes its flushes in the next turn of the loop."""

    def start_flush(self, on_done: Callable[[int, str | None], None]) -> None:
        super().start_flush(on_done)
        asyncio.get_running_loop().call_soon(self.finish_flush)


class Member:
    """A replica with its own listener."""

    def __init__(self, node_id: int, apis: dict[int, tuple[int, int]] = APIS) -> None:
        self.id, self.apis = node_id, apis
        self.log, self.led, self.faults = QuickLog(), asyncio.Event(), []
        self.writers: list[asyncio.StreamWriter] = []
        self.driver: RaftDriver

    async def listen(self) -> Voter:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return Voter(ReplicaKey(self.id), (Endpoint("CONTROLLER", *self.server.sockets[0].getsockname()),))

    def start(self, voters: VoterSet, folder: Path, config: RaftConfig) -> None:
        identity = Identity(ReplicaKey(self.id, bytes([self.id]) * 16), "c", voters.endpoints(self.id))
        node = RaftNode(identity, VotersInLog(voters), config, self.log, self.id)
        self.transport = PeerTransport("CONTROLLER", CLIENT, self.on_crashed)
        folder.mkdir()
        self.driver = RaftDriver(node, self.log, QuorumStateFile(folder), self, transport=self.transport)
        self.requests = RaftRequests(self.driver, self.log, "c")
        self.driver.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                self._take(frame, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        key, version, correlation_id, name_size = struct.unpack_from(">hhih", frame)
        if key == ApiKey.API_VERSIONS:
            rows = [{"api_key": k, "min_version": v[0], "max_version": v[1]} for k, v in self.apis.items()]
            answer(writer, correlation_id, encode(build(response_class(key, version), api_keys=rows)))
            return
        header = request_class(key, version).__header_schema__.__version__ - 1
        tags = b"\x00" * response_class(key, version).__header_schema__.__version__
        body = frame[10 + name_size + header :]
        self.requests.handle(
            key, version, body, "CONTROLLER", lambda make: answer(writer, correlation_id, tags + make())
        )

    async def die(self) -> None:
        """Like a killed process: nothing is sent, connections are closed, and the port is closed."""
        await self.driver.close(1, hand_over=False)
        self.server.close()
        self.transport.close()
        for writer in self.writers:
            writer.transport.abort()

    async def stop(self) -> None:
        self.server.close()
        await self.driver.close(timeout_ms=200)
        self.transport.close()
        for writer in self.writers:
            writer.close()

    def on_crashed(self, node_id: int) -> None:
        self.driver.on_peer_crashed(node_id)

    def on_commit(self, high_watermark: int) -> None:
        pass

    def on_leader(self, epoch: int) -> None:
        self.led.set()

    def on_not_leader(self, epoch: int) -> None:
        self.led.clear()

    async def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        raise AssertionError("none is due")

    def on_fault(self, error: Exception) -> None:
        self.faults.append(error)


class SilentMember(Member):
    """Answers ApiVersions alone."""

    def _take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        if int.from_bytes(frame[:2]) == ApiKey.API_VERSIONS:
            super()._take(frame, writer)


def answer(writer: asyncio.StreamWriter, correlation_id: int, body: bytes) -> None:
    if not writer.is_closing():
        writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)


async def leader_of(members: list[Member]) -> Member:
    waits = [asyncio.create_task(member.led.wait()) for member in members]
    done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    for task in rest:
        task.cancel()
    assert done, "no leader was elected"
    return next(member for member in members if member.led.is_set())


async def write(leader: Member, value: bytes) -> None:
    offset = leader.driver.propose([value], leader.driver.epoch)
    await asyncio.wait_for(leader.driver.wait_committed(offset), 30)


async def quorum(tmp_path: Path, apis: dict[int, tuple[int, int]] = APIS) -> list[Member]:
    members = [Member(node_id, apis) for node_id in (1, 2, 3)]
    voters = VoterSet.of([await member.listen() for member in members])
    for member in members:
        member.start(voters, tmp_path / str(member.id), CONFIG)
    return members


async def test_elect_replicate_lose_the_leader(tmp_path: Path) -> None:
    members = await quorum(tmp_path)
    leader = await leader_of(members)
    values = [b"%d" % number for number in range(100)]
    await asyncio.gather(*(write(leader, value) for value in values))
    await leader.stop()
    others = [member for member in members if member is not leader]
    successor = await leader_of(others)
    await write(successor, b"last")
    committed = [record.value for record in successor.log.records[: successor.driver.high_watermark]]
    assert [value for value in committed if value in values] == values
    for member in others:
        await member.stop()
        assert member.faults == []


async def test_a_killed_leader_is_replaced_long_before_the_fetch_timeout(tmp_path: Path) -> None:
    members = await quorum(tmp_path)
    leader = await leader_of(members)
    await write(leader, b"acknowledged")
    await leader.die()
    others = [member for member in members if member is not leader]
    successor = await leader_of(others)
    await write(successor, b"next")
    assert b"acknowledged" in [record.value for record in successor.log.records]
    for member in others:
        await member.stop()
        assert member.faults == []


async def test_peers_of_the_oldest_versions_elect_without_pre_vote(tmp_path: Path) -> None:
    members = await quorum(tmp_path, APIS | {1: (4, 17), 52: (0, 1), 53: (0, 0), 54: (0, 0)})
    await write(await leader_of(members), b"value")
    for member in members:
        await member.stop()
        assert member.faults == []


async def outcome_of(transport: PeerTransport, sent: SendRequest) -> Response | None:
    done: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
    transport.send(sent, done.set_result)
    return await asyncio.wait_for(done, 30)


async def test_peers_without_a_valid_response_count_as_silent(tmp_path: Path) -> None:
    class Rude(Member):
        said = b""

        def _take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
            if frame[:2] == b"\x00\x12":
                super()._take(frame, writer)
            elif self.said:
                answer(writer, struct.unpack_from(">i", frame, 4)[0], self.said)
            else:
                writer.close()

    rude: Any = Rude(1, APIS | {52: (0, 1)})
    voter = await rude.listen()
    transport = PeerTransport("CONTROLLER", CLIENT)
    key = ReplicaKey(2)
    fetch = FetchRequest("c", key, 1, 0, 0, -1, 0, 100)
    for rude.said in (b"", b"\x00", b"\x00\x00\x00\x00\x00\x00\x2a\x00\x00\x00\x00\x01\x00"):
        assert await outcome_of(transport, SendRequest(1, voter.endpoints, 1, fetch, 0)) is None
    pre_vote = VoteRequest("c", voter.key, key, 1, OffsetAndEpoch(0, 0), pre_vote=True)
    found = await outcome_of(transport, SendRequest(1, voter.endpoints, 2, pre_vote, 0))
    assert found == VoteResponse(Error.UNSUPPORTED_VERSION, 0, None, False)
    rude.server.close()
    for writer in rude.writers:
        writer.close()
    await rude.server.wait_closed()
    assert await outcome_of(transport, SendRequest(1, voter.endpoints, 3, fetch, 0)) is None
    transport.close()


async def test_a_dying_process_that_accepts_one_more_connection_is_detected() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            version, correlation_id = struct.unpack_from(">hi", frame, 2)
            answer(writer, correlation_id, encode(build(response_class(18, version), api_keys=[])))
            await answered.wait()
        elif connections == 2:
            server.close()
        writer.transport.abort()

    answered, gone = asyncio.Event(), asyncio.Queue[int]()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoints = (Endpoint("CONTROLLER", *server.sockets[0].getsockname()),)
    transport = PeerTransport("CONTROLLER", CLIENT, gone.put_nowait)
    fetch = FetchRequest("c", ReplicaKey(2), 1, 0, 0, -1, 0, 100)
    assert await outcome_of(transport, SendRequest(1, endpoints, 1, fetch, 0)) is None  # no version in common
    answered.set()
    assert await asyncio.wait_for(gone.get(), 30) == 1
    transport.close()


async def test_a_peer_that_never_answered_is_not_considered_crashed() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    endpoints = (Endpoint("CONTROLLER", *server.sockets[0].getsockname()),)
    server.close()
    gone: list[int] = []
    refused: list[int] = []
    transport = PeerTransport("CONTROLLER", CLIENT, gone.append, refused.append)
    fetch = FetchRequest("c", ReplicaKey(2), 1, 0, 0, -1, 0, 100)
    for correlation_id in range(3):
        assert await outcome_of(transport, SendRequest(1, endpoints, correlation_id, fetch, 0)) is None
    assert gone == []
    assert set(refused) == {1}
    transport.close()


@pytest.mark.parametrize(("fetch", "version"), [((4, 17), 17), ((4, 99), 18), ((0, 3), None)])
async def test_a_streamed_fetch_uses_the_address_and_version_of_the_connection(
    fetch: tuple[int, int], version: int | None
) -> None:
    member = SilentMember(2, APIS | {ApiKey.FETCH: fetch})
    [endpoint] = (await member.listen()).endpoints
    transport = PeerTransport("CONTROLLER", CLIENT)
    asked = FetchRequest("c", ReplicaKey(1, b"d" * 16), 1, 0, 0, 0, 500, 1000)
    effect = SendRequest(2, (endpoint,), 1, asked, after=0, may_stream=True)
    assert transport.route(effect) is None, "no connection yet"
    failures: list[Response | None] = []
    transport.send(effect, failures.append)
    await until(lambda: bool(failures) or transport.route(effect) is not None)
    route = transport.route(effect)
    if version is None:
        assert route is None
    else:
        assert route == Route(endpoint.host, endpoint.port, "CONTROLLER", version, CLIENT.client_id, 5000)
    moved = endpoint._replace(port=endpoint.port + 1)
    assert transport.route(SendRequest(2, (moved,), 1, asked, after=0, may_stream=True)) is None
    transport.close()
    member.server.close()
