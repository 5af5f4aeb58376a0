"""A peer over real sockets: versions, many concurrent requests, and every way to get no response."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.support.injection import INJECTED, InjectedError, injected, injected_into

from klamm.client import ClientError, ClientTimeoutError, ConnectError, ConnectionLostError, ConnectRefusedError
from klamm.client.network import Address, Channel, ChannelHandler, EngineNetwork
from klamm.client.peer import Outcome, Peer, PeerConfig, Peers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import DescribeQuorumRequest, DescribeQuorumResponse
from klamm.protocol.wire.codec import build, encode, read, write
from klamm.protocol.wire.kio_classes import response_class

CONFIG = PeerConfig("tests", request_timeout_ms=20_000, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1)
NO_TOPICS = DescribeQuorumRequest(())

Respond = Callable[[int, int, int, bytes, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Serves ApiVersions itself, and other requests with `respond`."""

    def __init__(self, respond: Respond, versions: dict[int, tuple[int, int]]) -> None:
        self.respond, self.versions = respond, versions
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, correlation_id, name_size = struct.unpack_from(">hhih", frame)
                body = frame[10 + name_size :]
                if key == ApiKey.API_VERSIONS:
                    rows = [{"api_key": k, "min_version": v[0], "max_version": v[1]} for k, v in self.versions.items()]
                    answer(writer, correlation_id, encode(build(response_class(key, version), api_keys=rows)))
                else:
                    await self.respond(key, version, correlation_id, body[1:], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def answer(writer: asyncio.StreamWriter, correlation_id: int, body: bytes) -> None:
    writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)


@asynccontextmanager
async def serving(
    respond: Respond, versions: dict[int, tuple[int, int]] | None = None, config: PeerConfig = CONFIG
) -> AsyncIterator[tuple[Server, Peers, tuple[str, int]]]:
    server = Server(respond, versions if versions is not None else {18: (0, 4), 55: (0, 2)})
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    client = Peers(config)
    try:
        yield server, client, listening.sockets[0].getsockname()
    finally:
        client.close()
        listening.close()
        for writer in server.writers:
            writer.close()


async def describe(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
    assert read(DescribeQuorumRequest, version, body) == NO_TOPICS
    found = DescribeQuorumResponse(ErrorCode.NONE, f"v{version}" if version >= 2 else "")
    answer(writer, correlation_id, b"\x00" + write(found, version))


async def test_the_newest_common_version_is_used_on_one_connection() -> None:
    async with serving(describe) as (server, client, address):
        asked = [client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2)) for _ in range(50)]
        assert {found.error_message for found in await asyncio.gather(*asked)} == {"v2"}
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 1))).error_message == ""
        assert server.connections == 1


async def test_an_exact_version_is_sent_as_it_is() -> None:
    async with serving(describe) as (_, client, address):
        body = await client.request(address, 55, 2, b"\x01\x00")
        assert b"v2" in body


async def test_responses_may_arrive_in_any_order_and_in_pieces() -> None:
    held: list[tuple[int, asyncio.StreamWriter]] = []

    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        held.append((correlation_id, writer))
        if len(held) == 3:
            data = b"".join(
                struct.pack(">ii", 4 + 1 + len(text), number) + b"\x00" + text
                for number, _ in reversed(held)
                for text in [b"answer to %d" % number]
            )
            for byte in data:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)

    async with serving(respond) as (_, client, address):
        found = await asyncio.gather(*(client.request(address, 55, 2, b"\x01\x00") for _ in range(3)))
        # The first request of the connection was ApiVersions.
        assert found == [b"answer to 2", b"answer to 3", b"answer to 4"]


async def test_a_partially_written_request_arrives_complete_and_in_order() -> None:
    has_begun, may_read, received = asyncio.Event(), asyncio.Event(), []

    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        received.append(body)
        has_begun.set()
        await may_read.wait()
        answer(writer, correlation_id, b"\x00" + b"%d" % len(body))

    bodies = [b"first", bytes(range(256)) * 100_000, b"third", b"y" * 10_000_000, b"last"]
    async with serving(respond) as (_, client, address):
        asked = [asyncio.ensure_future(client.request(address, 55, 2, body)) for body in bodies]
        await has_begun.wait()
        may_read.set()
        assert await asyncio.gather(*asked) == [b"%d" % len(body) for body in bodies]
        assert received == bodies


async def test_long_requests_use_several_connections() -> None:
    asked = asyncio.Queue[tuple[int, asyncio.StreamWriter]]()

    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        await asked.put((correlation_id, writer))

    async with serving(respond) as (server, client, address):
        asks = []
        for connections in (1, 2, 2):  # at most two
            peer = client.idlest_peer(address, 2)
            asks.append(asyncio.ensure_future(peer.ask(NO_TOPICS, DescribeQuorumResponse, (0, 1))))
            correlation_id, writer = await asked.get()
            assert server.connections == connections
        answer(writer, correlation_id, b"\0" + write(DescribeQuorumResponse(), 1))
        assert (await asks.pop()).error_code is ErrorCode.NONE
        client.close()
        for ask in asks:
            with pytest.raises(ClientError, match="closed"):
                await ask


async def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        answer(writer, correlation_id, b"\x01\x05\x03abc" + b"body")

    async with serving(respond) as (_, client, address):
        assert await client.request(address, 55, 2, b"\x01\x00") == b"body"


async def test_an_unsupported_api_is_rejected_with_versions() -> None:
    async with serving(describe, {18: (0, 4), 55: (0, 1)}) as (_, client, address):
        with pytest.raises(ClientError, match="API 55 in versions 0 to 1, but 2 to 2 are needed"):
            await client.request(address, 55, 2, b"")
        with pytest.raises(ClientError, match="API 80 in versions none"):
            await client.request(address, 80, 0, b"")
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))).error_message == ""


async def test_a_refused_connection_is_reported_and_retried_later() -> None:
    async with serving(describe) as (_, client, address):
        pass
    client = Peers(CONFIG)
    for _ in range(3):
        with pytest.raises(ConnectRefusedError, match="Connection refused"):
            await client.request(address, 55, 2, b"")
    listening = await asyncio.start_server(Server(describe, {55: (0, 2)}).serve, *address[:2])
    async with listening, asyncio.timeout(30):
        while True:
            try:
                await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))
                break
            except ConnectRefusedError:
                await asyncio.sleep(0.001)
        client.close()


async def test_a_local_fault_is_reported_at_once_and_retried() -> None:
    class FaultyNetwork(EngineNetwork):
        is_faulty = True

        def open(self, address: Address, client_id: str, handler: ChannelHandler) -> Channel:
            if self.is_faulty:
                raise LookupError("unknown encoding: idna")
            return super().open(address, client_id, handler)

    async with serving(describe) as (_, _, address):
        network = FaultyNetwork()
        peer = Peer(address, CONFIG, network)
        with pytest.raises(ConnectError, match=r"cannot be reached: LookupError.*idna"):
            await peer.ask(NO_TOPICS, DescribeQuorumResponse, (0, 2))
        network.is_faulty = False
        await asyncio.sleep(0.01)  # a pause, not a wait: the back-off of 1 ms passes, and no event shows it
        assert (await peer.ask(NO_TOPICS, DescribeQuorumResponse, (0, 2))).error_message == "v2"
        peer.close()
        network.close()


@pytest.mark.parametrize("event", ["on_accepted", "on_opened", "on_answer", "on_closed"])
async def test_a_failing_event_ends_only_its_connection(event: str, caplog: pytest.LogCaptureFixture) -> None:
    """Pending requests get an outcome, and the next request opens a new connection."""

    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        if event == "on_closed" and server.connections == 1:
            writer.close()
        else:
            await describe(key, version, correlation_id, body, writer)

    async with serving(respond) as (server, client, address), asyncio.timeout(30):
        with injected_into(vars(Peer)[event]) as raised, pytest.raises(ClientError):
            await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2), timeout_ms=60_000)
        assert raised.is_set()
        await asyncio.sleep(0.01)  # a pause, not a wait: the back-off of 1 ms passes, and no event shows it
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))).error_message == "v2"
        assert server.connections == 2
    assert len(injected(caplog)) == 1


async def test_a_failing_callback_affects_no_other_request(caplog: pytest.LogCaptureFixture) -> None:
    def fail(outcome: Outcome) -> None:
        raise InjectedError(INJECTED)

    async with serving(describe) as (server, client, address), asyncio.timeout(30):
        client.peer(address).send(55, (0, 2), lambda version: b"\x01\x00", fail)
        answers = await asyncio.gather(*(client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2)) for _ in "abc"))
        assert {one.error_message for one in answers} == {"v2"}
        assert server.connections == 1
    assert len(injected(caplog)) == 1


async def test_a_closed_connection_fails_its_requests_and_the_next_one_reconnects() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        if server.connections == 1:
            writer.close()
        else:
            await describe(key, version, correlation_id, body, writer)

    async with serving(respond) as (server, client, address):
        asked = [client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2)) for _ in range(3)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))).error_message == "v2"
        assert server.connections == 2


async def test_a_timeout_ends_the_request_and_the_connection() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        if server.connections > 1:
            await describe(key, version, correlation_id, body, writer)

    async with serving(respond) as (server, client, address):
        patient = asyncio.ensure_future(client.request(address, 55, 2, b"\x01\x00"))
        with pytest.raises(ClientTimeoutError, match="did not answer within 50 ms"):
            await client.request(address, 55, 2, b"\x01\x00", timeout_ms=50)
        with pytest.raises(ClientError, match="did not answer"):
            await patient
        await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))
        assert server.connections == 2


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (struct.pack(">ii", 4, 4711), "answered request 4711, which was not sent"),
        (struct.pack(">ii", 6, 2) + b"\x7f\x01", "sent an invalid"),
        (struct.pack(">ii", 6, 2) + b"\x00\x7f", "cannot be decoded"),
    ],
)
async def test_invalid_responses_are_rejected(reply: bytes, said: str) -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)

    async with serving(respond) as (_, client, address):
        with pytest.raises(ClientError, match=said):
            await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))


async def test_close_fails_pending_and_later_requests() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        asked.set()

    asked = asyncio.Event()
    async with serving(respond) as (_, client, address):
        peer = client.peer(address)
        waiting = asyncio.ensure_future(peer.request(55, (2, 2), lambda version: b"\x01\x00"))
        await asked.wait()
        client.close()
        with pytest.raises(ClientError, match="closed on this side"):
            await waiting
        with pytest.raises(ClientError, match="closed on this side"):
            await peer.request(55, (2, 2), lambda version: b"\x01\x00")
