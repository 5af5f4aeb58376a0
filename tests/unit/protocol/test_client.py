"""klamm as a client of another node: versions, many requests at a time, and every way to get no answer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from klamm.protocol.client import Client, ClientConfig, PeerError, PeerRefusedError, PeerTimeoutError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import DescribeQuorumRequest, DescribeQuorumResponse
from klamm.protocol.wire.codec import build, encode, read, write
from klamm.protocol.wire.kio_classes import response_class

CONFIG = ClientConfig("tests", request_timeout_ms=20_000, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1)
NO_TOPICS = DescribeQuorumRequest(())

Respond = Callable[[int, int, int, bytes, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers ApiVersions itself, and what else is asked with `respond`."""

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
                if key == 18:
                    rows = [{"api_key": k, "min_version": v[0], "max_version": v[1]} for k, v in self.versions.items()]
                    answer(writer, correlation_id, encode(build(response_class(18, 0), api_keys=rows)))
                else:
                    await self.respond(key, version, correlation_id, body[1:], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def answer(writer: asyncio.StreamWriter, correlation_id: int, body: bytes) -> None:
    writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)


@asynccontextmanager
async def serving(
    respond: Respond, versions: dict[int, tuple[int, int]] | None = None, config: ClientConfig = CONFIG
) -> AsyncIterator[tuple[Server, Client, tuple[str, int]]]:
    server = Server(respond, versions if versions is not None else {18: (0, 4), 55: (0, 2)})
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    client = Client(config)
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


async def test_the_newest_common_version_is_spoken_over_one_connection() -> None:
    async with serving(describe) as (server, client, address):
        asked = [client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2)) for _ in range(50)]
        assert {found.error_message for found in await asyncio.gather(*asked)} == {"v2"}
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 1))).error_message == ""
        assert server.connections == 1


async def test_an_exact_version_is_sent_as_it_is() -> None:
    async with serving(describe) as (_, client, address):
        body = await client.request(address, 55, 2, b"\x01\x00")
        assert b"v2" in body


async def test_answers_may_come_in_any_order_and_in_any_pieces() -> None:
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


async def test_several_connections_where_one_would_keep_others_waiting() -> None:
    asked = asyncio.Queue[tuple[int, asyncio.StreamWriter]]()

    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        await asked.put((correlation_id, writer))

    async with serving(respond) as (server, client, address):
        asks = []
        for connections in (1, 2, 2):  # two at most
            peer = client.idlest_peer(address, 2)
            asks.append(asyncio.ensure_future(peer.ask(NO_TOPICS, DescribeQuorumResponse, (0, 1))))
            correlation_id, writer = await asked.get()
            assert server.connections == connections
        answer(writer, correlation_id, b"\0" + write(DescribeQuorumResponse(), 1))
        assert (await asks.pop()).error_code is ErrorCode.NONE
        client.close()
        for ask in asks:
            with pytest.raises(PeerError, match="closed"):
                await ask


async def test_tagged_fields_of_an_answers_header_are_passed_over() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        answer(writer, correlation_id, b"\x01\x05\x03abc" + b"body")

    async with serving(respond) as (_, client, address):
        assert await client.request(address, 55, 2, b"\x01\x00") == b"body"


async def test_an_api_that_is_not_offered_is_refused_here_and_names_versions() -> None:
    async with serving(describe, {18: (0, 4), 55: (0, 1)}) as (_, client, address):
        with pytest.raises(PeerError, match="API 55 in versions 0 to 1, and 2 to 2 are needed"):
            await client.request(address, 55, 2, b"")
        with pytest.raises(PeerError, match="API 80 in versions none"):
            await client.request(address, 80, 0, b"")
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))).error_message == ""


async def test_nobody_listening_is_told_as_refusal_and_asked_again_later() -> None:
    async with serving(describe) as (_, client, address):
        pass
    client = Client(CONFIG)
    for _ in range(3):
        with pytest.raises(PeerRefusedError, match="nobody listens there"):
            await client.request(address, 55, 2, b"")
    listening = await asyncio.start_server(Server(describe, {55: (0, 2)}).serve, *address[:2])
    async with listening, asyncio.timeout(30):
        while True:
            try:
                await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))
                break
            except PeerRefusedError:
                await asyncio.sleep(0.001)
        client.close()


async def test_a_fault_of_this_side_is_told_at_once_and_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised while it connects: a look-up that ends in what nobody listed stands for it."""
    loop = asyncio.get_running_loop()
    async with serving(describe) as (_, client, address):
        with monkeypatch.context() as broken:
            broken.setattr(loop, "getaddrinfo", lambda *args, **kwargs: failing(LookupError("unknown encoding: idna")))
            with pytest.raises(PeerError, match=r"cannot be reached: LookupError.*idna"):
                await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))
        await asyncio.sleep(0.01)  # the back-off is 1 ms
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))).error_message == "v2"


async def failing(error: Exception) -> None:
    raise error


async def test_a_closed_connection_fails_what_was_asked_and_the_next_request_connects_again() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        if server.connections == 1:
            writer.close()
        else:
            await describe(key, version, correlation_id, body, writer)

    async with serving(respond) as (server, client, address):
        asked = [client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2)) for _ in range(3)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {PeerError}
        assert (await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))).error_message == "v2"
        assert server.connections == 2


async def test_silence_ends_the_request_and_the_connection() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        if server.connections > 1:
            await describe(key, version, correlation_id, body, writer)

    async with serving(respond) as (server, client, address):
        patient = asyncio.ensure_future(client.request(address, 55, 2, b"\x01\x00"))
        with pytest.raises(PeerTimeoutError, match="did not answer within 50 ms"):
            await client.request(address, 55, 2, b"\x01\x00", timeout_ms=50)
        with pytest.raises(PeerError, match="did not answer"):
            await patient
        await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))
        assert server.connections == 2


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (struct.pack(">ii", 4, 4711), "answered request 4711, which nobody made"),
        (struct.pack(">ii", 6, 2) + b"\x7f\x01", "cut short|goes beyond"),
        (struct.pack(">ii", 6, 2) + b"\x00\x7f", "cannot be read"),
    ],
)
async def test_what_is_no_answer_is_refused(reply: bytes, said: str) -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)

    async with serving(respond) as (_, client, address):
        with pytest.raises(PeerError, match=said):
            await client.ask(address, NO_TOPICS, DescribeQuorumResponse, (0, 2))


async def test_close_fails_what_waits_and_what_is_asked_later() -> None:
    async def respond(key: int, version: int, correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        asked.set()

    asked = asyncio.Event()
    async with serving(respond) as (_, client, address):
        peer = client.peer(address)
        waiting = asyncio.ensure_future(peer.request(55, (2, 2), lambda version: b"\x01\x00"))
        await asked.wait()
        client.close()
        with pytest.raises(PeerError, match="this side was closed"):
            await waiting
        with pytest.raises(PeerError, match="this side was closed"):
            await peer.request(55, (2, 2), lambda version: b"\x01\x00")
