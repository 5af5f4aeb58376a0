"""Other nodes as peers: one connection an address, made when it is needed and made again when it is lost.

A request has one outcome: an answer, or a `ClientError`, as soon as it is known: at once when the connection closes or
is refused, after the time-out when nothing comes. Nothing is sent twice: the caller decides whether to ask again.
After a failed connect the address is left alone for a moment (Kafka's reconnect back-off), and requests fail with the
reason of that failure meanwhile.

All of this is decided here; a `klamm.client.network.Network` moves the bytes: the engine's, or the simulator's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from klamm.client import (
    ClientError,
    ClientTimeoutError,
    ConnectError,
    ConnectionLostError,
    UnsupportedVersionError,
)
from klamm.client.network import Address, Channel, EngineNetwork, Network, Versions
from klamm.protocol.backoff import ExponentialBackoff
from klamm.protocol.deadlines import Deadlines
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire import codec

__all__ = ["Address", "Answer", "OnDone", "Outcome", "Peer", "PeerConfig", "Peers", "Versions"]

NO_VERSIONS: Final = (0, -1)
T = TypeVar("T")


class Answer(NamedTuple):
    """The version of a request and its answer, and the answer's body without header."""

    api_version: int
    body: bytes


Outcome = Answer | ClientError
OnDone = Callable[[Outcome], None]


class PeerConfig(NamedTuple):
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


class _Sent(NamedTuple):
    """A request that was sent."""

    api_version: int
    on_done: OnDone


def _newest(here: tuple[int, int], there: tuple[int, int]) -> int | None:
    """The newest version in both ranges (lowest, highest)."""
    version = min(here[1], there[1])
    return version if version >= max(here[0], there[0]) else None


class Peer:
    """One address and the connection to it. Implements `ChannelHandler`."""

    def __init__(
        self,
        address: Address,
        config: PeerConfig,
        network: Network,
        *,
        on_connected: Callable[[], None] = lambda: None,
        on_lost: Callable[[ClientError], None] = lambda error: None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """`on_connected`: there is a connection. `on_lost`: it is gone, or could not be made."""
        self.address, self._config, self._network, self._rng = address, config, network, rng
        self._name = f"node at {address[0]}:{address[1]}"
        self._on_connected, self._on_lost = on_connected, on_lost
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._channel: Channel | None = None  # from the first attempt to connect on
        self._is_connecting = False
        self._remote: Address | None = None
        self._versions: Versions | None = None  # known once the connection may be used
        self._limit: int | None = None  # the token of the deadline of what the connection waits for
        self._waiting: list[_Waiting] = []
        self._sent: dict[int, _Sent] = {}  # by correlation id
        self._failures = 0
        self._unaccepted = 0  # connections in a row that were never made: those make the next one's time longer
        self._last_error: ClientError = ConnectError(f"{self._name} was never asked")
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
        if self._channel is not None and self._versions is not None:
            self._send(self._channel, self._versions, request)
        elif self.connect():
            self._waiting.append(request)
        else:
            self._loop.call_soon(request.on_done, self._last_error)

    @property
    def connected_to(self) -> Address | None:
        """Address and port of the other side as numbers, so that no name has to be resolved again."""
        return self._remote

    def version_of(self, api_key: int, versions: tuple[int, int]) -> int | None:
        """The version that a request sent now would have; None while there is no connection, or none in common."""
        if self._versions is None:
            return None
        return _newest(versions, self._versions.get(api_key, NO_VERSIONS))

    async def request(
        self,
        api_key: int,
        versions: tuple[int, int],
        body_of: Callable[[int], bytes],
        timeout_ms: int | None = None,
    ) -> Answer:
        """The answer to a request; see `send`. Raises ClientError."""
        done: asyncio.Future[Outcome] = self._loop.create_future()
        self.send(api_key, versions, body_of, _into(done), timeout_ms)
        outcome = await done
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    async def ask(self, request: Any, answer: type[T], versions: tuple[int, int], timeout_ms: int | None = None) -> T:
        """The answer to one of our request values, as our value `answer`. Raises ClientError."""
        found = await self.request(
            request.API_KEY, versions, lambda version: codec.write_request(request, version), timeout_ms
        )
        try:
            return codec.read_response(answer, found.api_version, found.body)
        except MalformedRequest as error:
            raise ClientError(f"{self._name} sent an answer that cannot be read: {error}") from None

    def connect(self, *, at_once: bool = False) -> bool:
        """Begin to connect, unless the back-off of a failure says not yet (`at_once`: even so).

        Whether there is a connection, or will be one or a failure to report.
        """
        if self._channel is not None or self._is_connecting:
            return True
        is_idle = not at_once and self._loop.time() < self._idle_until
        if self._is_closed or is_idle:
            return False
        self._is_connecting = True
        setup_ms = self._config.connection_setup_timeout.time_ms(self._unaccepted, self._rng)
        self._unaccepted += 1
        try:
            self._channel = self._network.open(self.address, self._config.client_id, self)
        except Exception as error:  # of any kind: it would stay "connecting" for good
            text = f"{self._name} cannot be reached: {error!r}"
            self._loop.call_soon(self._on_not_opened, ConnectError(text))
        else:
            self._limit_setup(setup_ms)
        return True

    def close(self) -> None:
        """Close; what is under way fails."""
        self._is_closed = True
        self._last_error = ConnectionLostError(f"{self._name}: this side was closed")
        self._close_channel()
        self._fail_sent(self._last_error)
        self._fail_waiting(self._last_error)
        self._deadlines.close()

    @property
    def versions(self) -> Versions | None:
        """What the other side speaks: the lowest and highest version of each API; None without a connection."""
        return self._versions

    @property
    def unanswered(self) -> int:
        """How many requests have no outcome yet."""
        return len(self._waiting) + len(self._sent)

    # What happens to the channel

    def on_accepted(self, address: Address) -> None:
        """See `ChannelHandler.on_accepted`."""
        self._remote, self._unaccepted = address, 0
        self._limit_setup(self._config.request_timeout_ms)

    def on_opened(self, versions: Versions) -> None:
        """See `ChannelHandler.on_opened`."""
        self._end_limit()
        self._is_connecting, self._failures, self._versions = False, 0, versions
        self._on_connected()
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if self._channel is None or self._versions is None:
                request.on_done(self._last_error)
            else:
                self._send(self._channel, versions, request)

    def on_answer(self, correlation_id: int, body: bytes) -> None:
        """See `ChannelHandler.on_answer`."""
        sent = self._sent.pop(correlation_id)
        sent.on_done(Answer(sent.api_version, body))

    def on_closed(self, error: ClientError) -> None:
        """See `ChannelHandler.on_closed`."""
        if self._is_connecting:
            self._on_not_opened(error)
        else:
            self._on_channel_lost(error)

    # Requests

    def _send(self, channel: Channel, versions: Versions, request: _Waiting) -> None:
        low, high = request.versions
        there_low, there_high = there = versions.get(request.api_key, NO_VERSIONS)
        version = _newest(request.versions, there)
        if version is None:
            known = f"{there_low} to {there_high}" if there_high >= 0 else "none"
            text = f"{self._name} knows API {request.api_key} in versions {known}, and {low} to {high} are needed"
            self._loop.call_soon(request.on_done, UnsupportedVersionError(text))
            return
        try:
            body = request.body_of(version)
        except Exception as error:  # the caller's fault; it must not end the connection
            self._loop.call_soon(request.on_done, ClientError(f"{self._name} was not asked: {error}"))
            return
        self._sent[channel.send(request.api_key, version, body)] = _Sent(version, request.on_done)

    def _with_timeout(self, on_done: OnDone, timeout_ms: int | None) -> OnDone:
        """`on_done`, called once: with the outcome, or after the time-out. Then the connection is given up, as Kafka
        does: a node that leaves one request waiting for too long gets no further ones over the same connection.
        """
        wait_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms

        def finish(outcome: Outcome) -> None:
            if self._deadlines.remove(token):
                on_done(outcome)

        def expire() -> None:
            text = f"{self._name} did not answer within {wait_ms} ms"
            on_done(ClientTimeoutError(text))
            if self._versions is not None:
                self._close_channel()
                self._on_channel_lost(ConnectionLostError(text))

        token = self._deadlines.add(wait_ms / 1000, expire)
        return finish

    def _fail_waiting(self, error: ClientError) -> None:
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request.on_done(error)

    def _fail_sent(self, error: ClientError) -> None:
        sent, self._sent = self._sent, {}
        for request in sent.values():
            request.on_done(error)

    # The connection

    def _limit_setup(self, timeout_ms: float) -> None:
        """The connection is given up unless its next step is done within that time."""
        self._end_limit()

        def expire() -> None:
            self._limit = None
            self._close_channel()
            self._on_not_opened(ClientTimeoutError(f"{self._name}: no connection within {timeout_ms:.0f} ms"))

        self._limit = self._deadlines.add(timeout_ms / 1000, expire)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._deadlines.remove(self._limit)
            self._limit = None

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._forget_channel()

    def _forget_channel(self) -> None:
        self._end_limit()
        self._channel, self._remote, self._versions, self._is_connecting = None, None, None, False

    def _on_channel_lost(self, error: ClientError) -> None:
        self._forget_channel()
        self._last_error = error
        if not self._is_closed:
            self._on_lost(error)
        self._fail_sent(error)

    def _on_not_opened(self, error: ClientError) -> None:
        if self._is_closed:
            return
        self._forget_channel()
        self._last_error = error
        backoff_ms = self._config.reconnect_backoff.time_ms(self._failures, self._rng)
        self._failures += 1
        self._idle_until = self._loop.time() + backoff_ms / 1000
        self._fail_waiting(error)
        self._on_lost(error)


class Peers:
    """Connections to any number of addresses. To be made and used on the loop's thread."""

    def __init__(self, config: PeerConfig, on_versions: Callable[[], None] = lambda: None) -> None:
        """`on_versions`: what some peer speaks is known, or not known any more."""
        self._config, self._on_versions = config, on_versions
        self._network = EngineNetwork()
        self._peers: dict[Address, Peer] = {}
        self._many: dict[Address, list[Peer]] = {}  # the first of each is that of `_peers`

    def peer(self, address: Address) -> Peer:
        """The peer at that address."""
        found = self._peers.get(address)
        if found is None:
            found = self._peers[address] = Peer(
                address,
                self._config,
                self._network,
                on_connected=self._on_versions,
                on_lost=lambda error: self._on_versions(),
            )
        return found

    async def request(
        self, address: Address, api_key: int, api_version: int, body: bytes, timeout_ms: int | None = None
    ) -> bytes:
        """The body of the answer to a request in that very version. Raises ClientError."""
        versions = (api_version, api_version)
        return (await self.peer(address).request(api_key, versions, lambda version: body, timeout_ms)).body

    async def ask(
        self, address: Address, request: Any, answer: type[T], versions: tuple[int, int], timeout_ms: int | None = None
    ) -> T:
        """The answer to one of our request values; see `Peer.ask`. Raises ClientError."""
        return await self.peer(address).ask(request, answer, versions, timeout_ms)

    def idlest_peer(self, address: Address, connections_max: int) -> Peer:
        """Of several connections to that address, made as they are needed, the one with the fewest unanswered requests.

        For requests that may be carried out in any order: a broker takes one at a time of a connection.
        """
        peers = self._many.setdefault(address, [self.peer(address)])
        idlest = min(peers, key=lambda peer: peer.unanswered)
        if idlest.unanswered > 0 and len(peers) < connections_max:
            idlest = Peer(address, self._config, self._network)
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
        self._network.close()


def _into(future: asyncio.Future[Outcome]) -> OnDone:
    def deliver(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return deliver
