"""klamm as a client of other nodes: one connection an address, made when it is needed and made again when it is lost.

A request has one outcome: an answer, or a `PeerError`, as soon as it is known: at once when the connection
closes or is refused, after the time-out when nothing comes. Nothing is sent twice: whether to ask again is the asker's
to decide. After a failed connect the address is left alone for a moment (Kafka's reconnect back-off), and requests fail
with the reason of that failure meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.backoff import ExponentialBackoff
from klamm.protocol.connection import (
    Answer,
    Connection,
    OnDone,
    Outcome,
    PeerError,
    PeerRefusedError,
    PeerTimeoutError,
    VersionNotOfferedError,
)
from klamm.protocol.deadlines import Deadlines
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.wire import codec, kio_classes

__all__ = [
    "Address",
    "Answer",
    "Client",
    "ClientConfig",
    "Peer",
    "PeerError",
    "PeerRefusedError",
    "PeerTimeoutError",
    "VersionNotOfferedError",
]

NO_VERSIONS: Final = (0, -1)
Address = tuple[str, int]
T = TypeVar("T")
Versions = Mapping[int, tuple[int, int]]


class ClientConfig(NamedTuple):
    """Times in ms; the back-offs are those of Kafka's controllers among themselves, doubled from failure to failure."""

    client_id: str
    request_timeout_ms: int = 2000
    connection_setup_timeout_ms: int = 10_000
    connection_setup_timeout_max_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 500

    @property
    def connection_setup_timeout(self) -> ExponentialBackoff:
        """How long the other side may take to accept a connection."""
        return ExponentialBackoff(self.connection_setup_timeout_ms, self.connection_setup_timeout_max_ms)

    @property
    def reconnect_backoff(self) -> ExponentialBackoff:
        """How long an address is left alone after a failure."""
        return ExponentialBackoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms)


class _Waiting(NamedTuple):
    """A request that waits for the connection."""

    api_key: int
    versions: tuple[int, int]
    body_of: Callable[[int], bytes]
    on_done: OnDone


def _newest(here: tuple[int, int], there: tuple[int, int]) -> int | None:
    """The newest version in both ranges (lowest, highest)."""
    version = min(here[1], there[1])
    return version if version >= max(here[0], there[0]) else None


class Peer:
    """One address and the connection to it."""

    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        *,
        on_connected: Callable[[], None] = lambda: None,
        on_lost: Callable[[PeerError], None] = lambda error: None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """`on_connected`: there is a connection. `on_lost`: it is gone, or could not be made."""
        self.address, self._config, self._dice = address, config, dice
        self._name = f"node at {address[0]}:{address[1]}"
        self._on_connected, self._on_lost = on_connected, on_lost
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._connection: Connection | None = None
        self._versions: Versions | None = None  # known once the connection may be used
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[_Waiting] = []
        self._failures = 0
        self._unaccepted = 0  # connections in a row that were never made: those make the next one's time longer
        self._last_error = PeerError(f"{self._name} was never asked")
        self._idle_until = 0.0
        self._is_closed = False

    def send(
        self,
        api_key: int,
        versions: tuple[int, int],
        body_of: Callable[[int], bytes],
        on_done: OnDone,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a request in the newest of `versions` (lowest, highest) that the other side knows.

        `body_of` gives the body of that version. `on_done` is called once and later, never in this call.
        """
        request = _Waiting(api_key, versions, body_of, self._with_timeout(on_done, timeout_ms))
        if self._connection is not None and self._versions is not None:
            self._send(self._connection, self._versions, request)
        elif self._connecting is not None or self.connect():
            self._waiting.append(request)
        else:
            self._loop.call_soon(request.on_done, self._last_error)

    @property
    def connected_to(self) -> Address | None:
        """Address and port of the other side as numbers, so that no name has to be resolved again."""
        return None if self._connection is None else self._connection.remote_address

    def version_of(self, api_key: int, versions: tuple[int, int]) -> int | None:
        """The version that a request sent now would have; None while there is no connection, or none in common."""
        if self._connection is None or self._versions is None:
            return None
        return _newest(versions, self._versions.get(api_key, NO_VERSIONS))

    async def request(
        self,
        api_key: int,
        versions: tuple[int, int],
        body_of: Callable[[int], bytes],
        timeout_ms: int | None = None,
    ) -> Answer:
        """The answer to a request; see `send`. Raises PeerError."""
        done: asyncio.Future[Outcome] = self._loop.create_future()
        self.send(api_key, versions, body_of, _into(done), timeout_ms)
        return _answered(await done)

    async def ask(self, request: Any, answer: type[T], versions: tuple[int, int], timeout_ms: int | None = None) -> T:
        """The answer to one of our request values, as our value `answer`. Raises PeerError."""
        found = await self.request(
            request.API_KEY, versions, lambda version: codec.write_request(request, version), timeout_ms
        )
        try:
            return codec.read_response(answer, found.api_version, found.body)
        except MalformedRequest as error:
            raise PeerError(f"{self._name} sent an answer that cannot be read: {error}") from None

    def connect(self, *, at_once: bool = False) -> bool:
        """Begin to connect, unless the back-off of a failure says not yet (`at_once`: even so).

        Whether there will be a connection or a failure to tell of.
        """
        is_idle = not at_once and self._loop.time() < self._idle_until
        if self._is_closed or is_idle:
            return False
        if self._connection is None and self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
        return True

    def close(self) -> None:
        """Close; what is under way fails."""
        self._is_closed = True
        self._last_error = PeerError(f"{self._name}: this side was closed")
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.end("this side was closed")
        self._fail_waiting(self._last_error)
        self._deadlines.close()

    @property
    def versions(self) -> Versions | None:
        """What the other side speaks: the lowest and highest version of each API; None without a connection."""
        return self._versions

    @property
    def unanswered(self) -> int:
        """How many requests have no outcome yet."""
        return len(self._waiting) + (0 if self._connection is None else self._connection.unanswered)

    # Requests

    def _send(self, connection: Connection, versions: Versions, request: _Waiting) -> None:
        low, high = request.versions
        there_low, there_high = there = versions.get(request.api_key, NO_VERSIONS)
        version = _newest(request.versions, there)
        if version is None:
            known = f"{there_low} to {there_high}" if there_high >= 0 else "none"
            text = f"{self._name} knows API {request.api_key} in versions {known}, and {low} to {high} are needed"
            self._loop.call_soon(request.on_done, VersionNotOfferedError(text))
            return
        try:
            body = request.body_of(version)
        except Exception as error:  # the asker's fault; it must not be ours
            self._loop.call_soon(request.on_done, PeerError(f"{self._name} was not asked: {error}"))
            return
        connection.send(request.api_key, version, body, request.on_done)

    def _with_timeout(self, on_done: OnDone, timeout_ms: int | None) -> OnDone:
        """`on_done`, called once: with the outcome, or when time is over. Then the connection is given up, as Kafka
        does: who lets one request wait too long is not asked the next one on the same connection.
        """
        wait_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms

        def finish(outcome: Outcome) -> None:
            if self._deadlines.remove(token):
                on_done(outcome)

        def expire() -> None:
            text = f"{self._name} did not answer within {wait_ms} ms"
            on_done(PeerTimeoutError(text))
            if self._connection is not None:
                self._connection.end(text)

        token = self._deadlines.add(wait_ms / 1000, expire)
        return finish

    def _fail_waiting(self, error: PeerError) -> None:
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request.on_done(error)

    # The connection

    async def _connect(self) -> None:
        setup_ms = self._config.connection_setup_timeout.time_ms(self._unaccepted, self._dice)
        try:
            self._unaccepted += 1
            async with asyncio.timeout(setup_ms / 1000):
                await self._open()
            self._unaccepted = 0
            setup_ms = self._config.request_timeout_ms
            async with asyncio.timeout(setup_ms / 1000):
                versions = await self._ask_versions()
        except Exception as error:  # of any kind: the task is not awaited, and it would stay "connecting" for good
            self._connecting = None
            self._on_no_connection(self._readable(error, setup_ms))
            return
        self._connecting, self._failures, self._versions = None, 0, versions
        self._on_connected()
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if self._connection is None:
                request.on_done(self._last_error)
            else:
                self._send(self._connection, versions, request)

    async def _open(self) -> None:
        """Connect to the first of the host's addresses that takes it. Raises OSError, of refusal only if all refuse."""
        errors: list[OSError] = []
        host, port = self.address
        # As bytes: for text the first look-up, in a thread, imports what names beyond ASCII need.
        name = host.encode() if host.isascii() else host
        for family, _, _, _, where in await self._loop.getaddrinfo(name, port, type=1):
            try:
                _, connection = await self._loop.create_connection(self._new_connection, *where[:2], family=family)
            except OSError as error:
                errors.append(error)
            else:
                self._connection = connection
                return
        raise next((error for error in errors if not isinstance(error, ConnectionRefusedError)), errors[-1])

    def _new_connection(self) -> Connection:
        return Connection(self._name, self._config.client_id, self._on_connection_lost)

    async def _ask_versions(self) -> Versions:
        """What the other side speaks. Version 0 of the question is the one that everybody answers."""
        assert self._connection is not None
        done: asyncio.Future[Outcome] = self._loop.create_future()
        request = codec.build(kio_classes.request_class(ApiKey.API_VERSIONS, 0))
        self._connection.send(ApiKey.API_VERSIONS, 0, codec.encode_request(request), _into(done))
        answer = codec.decode_response(ApiKey.API_VERSIONS, 0, _answered(await done).body)
        if answer.error_code != ErrorCode.NONE:
            raise PeerError(f"{self._name} does not say what it speaks: {ErrorCode(answer.error_code).name}")
        return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    def _on_connection_lost(self, error: PeerError) -> None:
        was_in_use = self._versions is not None
        self._connection, self._versions, self._last_error = None, None, error
        if was_in_use and not self._is_closed:
            self._on_lost(error)

    def _on_no_connection(self, error: PeerError) -> None:
        if self._connection is not None:
            self._connection.end("it could not be used")
        self._last_error = error
        backoff_ms = self._config.reconnect_backoff.time_ms(self._failures, self._dice)
        self._failures += 1
        self._idle_until = self._loop.time() + backoff_ms / 1000
        self._fail_waiting(error)
        self._on_lost(error)

    def _readable(self, error: Exception, setup_ms: float) -> PeerError:
        match error:
            case PeerError():
                return error
            case ConnectionRefusedError():
                return PeerRefusedError(f"{self._name} refuses the connection: nobody listens there")
            case TimeoutError():
                return PeerTimeoutError(f"{self._name}: no connection within {setup_ms:.0f} ms")
            case OSError():
                return PeerError(f"{self._name} cannot be reached: {error.strerror or error}")
            case MalformedRequest():
                return PeerError(f"{self._name} sent an answer that cannot be read: {error}")
            case _:
                return PeerError(f"{self._name} cannot be reached: {error!r}")


class Client:
    """Connections to any number of addresses. To be made and used on the loop's thread."""

    def __init__(self, config: ClientConfig, on_versions: Callable[[], None] = lambda: None) -> None:
        """`on_versions`: what some peer speaks is known, or not known any more."""
        self._config, self._on_versions = config, on_versions
        self._peers: dict[Address, Peer] = {}
        self._many: dict[Address, list[Peer]] = {}  # the first of each is that of `_peers`

    def peer(self, address: Address) -> Peer:
        """The peer at that address."""
        found = self._peers.get(address)
        if found is None:
            found = self._peers[address] = Peer(
                address, self._config, on_connected=self._on_versions, on_lost=lambda error: self._on_versions()
            )
        return found

    async def request(
        self, address: Address, api_key: int, api_version: int, body: bytes, timeout_ms: int | None = None
    ) -> bytes:
        """The body of the answer to a request in that very version. Raises PeerError."""
        versions = (api_version, api_version)
        return (await self.peer(address).request(api_key, versions, lambda version: body, timeout_ms)).body

    async def ask(
        self, address: Address, request: Any, answer: type[T], versions: tuple[int, int], timeout_ms: int | None = None
    ) -> T:
        """The answer to one of our request values; see `Peer.ask`. Raises PeerError."""
        return await self.peer(address).ask(request, answer, versions, timeout_ms)

    def idlest_peer(self, address: Address, connections_max: int) -> Peer:
        """Of several connections to that address, made as they are needed, the one with the fewest unanswered requests.

        For requests that need not be carried out in their order: who is asked takes one at a time of a connection.
        """
        peers = self._many.setdefault(address, [self.peer(address)])
        idlest = min(peers, key=lambda peer: peer.unanswered)
        if idlest.unanswered > 0 and len(peers) < connections_max:
            idlest = Peer(address, self._config)
            peers.append(idlest)
        return idlest

    def keep_only(self, addresses: set[Address]) -> None:
        """Close the connections to all others."""
        for address in self._peers.keys() - addresses:
            peer = self._peers.pop(address)
            for one in self._many.pop(address, [peer]):
                one.close()

    def close(self) -> None:
        """Close all of them; what is under way fails."""
        self.keep_only(set())


def _into(future: asyncio.Future[Outcome]) -> OnDone:
    def tell(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return tell


def _answered(outcome: Outcome) -> Answer:
    if isinstance(outcome, PeerError):
        raise outcome
    return outcome
