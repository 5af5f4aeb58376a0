"""Connections to other nodes: one per address, opened on first use and reopened after it is lost.

A request has one outcome, a response or a `ClientError`, reported as soon as it is known: at once when the connection
is closed or refused, after the timeout when no response arrives. No request is sent twice: the caller decides about
retries. After a failed connect, requests fail with the reason of that failure until the reconnect back-off ends.

This module decides all of this; a `klamm.client.network.Network` transports the bytes: the engine's or the simulator's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from klamm.client import (
    ClientError,
    ClientTimeoutError,
    ConnectError,
    ConnectionLostError,
    UnsupportedVersionError,
)
from klamm.client.network import Address, Channel, EngineNetwork, Network, Versions
from klamm.driving.clock import LoopClock
from klamm.driving.deadlines import Deadlines
from klamm.protocol.backoff import ExponentialBackoff
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire import codec

if TYPE_CHECKING:
    from klamm._engine.client import Conditions

__all__ = ["Address", "Answer", "OnDone", "Outcome", "Peer", "PeerConfig", "Peers", "Versions"]

NO_VERSIONS: Final = (0, -1)
T = TypeVar("T")


class Answer(NamedTuple):
    """A response: its version, its value, and its body without header."""

    api_version: int
    body: bytes


Outcome = Answer | ClientError
OnDone = Callable[[Outcome], None]


class PeerConfig(NamedTuple):
    """Times in ms. The back-offs are those between Kafka's controllers and double with each failure."""

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
        """How long to wait before connecting again after a failure."""
        return ExponentialBackoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms)


class _Waiting(NamedTuple):
    """A request that waits for the connection."""

    api_key: int
    versions: tuple[int, int]
    body_of: Callable[[int], bytes]
    on_done: OnDone


class _Sent(NamedTuple):
    """A request in flight."""

    api_version: int
    on_done: OnDone


def _newest(here: tuple[int, int], there: tuple[int, int]) -> int | None:
    """The newest version in both ranges (lowest, highest), or None."""
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
        """`on_connected`: a connection is ready. `on_lost`: it was lost or could not be opened."""
        self.address, self._config, self._network, self._rng = address, config, network, rng
        self._name = f"node at {address[0]}:{address[1]}"
        self._on_connected, self._on_lost = on_connected, on_lost
        self._loop = asyncio.get_running_loop()
        self._clock = LoopClock()
        self._deadlines = Deadlines()
        self._channel: Channel | None = None  # set from the first connection attempt on
        self._is_connecting = False
        self._remote: Address | None = None
        self._versions: Versions | None = None  # known when the connection is ready
        self._limit: int | None = None  # the token of the deadline of the connection set-up
        self._waiting: list[_Waiting] = []
        self._sent: dict[int, _Sent] = {}  # by correlation id
        self._failures = 0
        self._unaccepted = 0  # attempts in a row that timed out before TCP connected; each extends the next timeout
        self._last_error: ClientError = ConnectError(f"{self._name}: no request was sent yet")
        self._idle_until_ms = 0.0
        self._is_closed = False

    def send(
        self,
        api_key: int,
        versions: tuple[int, int],
        body_of: Callable[[int], bytes],
        on_done: OnDone,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a request in the newest of `versions` (lowest, highest) that the other side supports.

        `body_of` encodes the body in that version. `on_done` is called exactly once, after this call has returned.
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
        """The numeric address and port of the other side, so that its name need not be resolved again."""
        return self._remote

    def version_of(self, api_key: int, versions: tuple[int, int]) -> int | None:
        """The version that a request sent now would have; None without a connection or a common version."""
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
        """The response to a request; see `send`. Raises ClientError."""
        done: asyncio.Future[Outcome] = self._loop.create_future()
        self.send(api_key, versions, body_of, _into(done), timeout_ms)
        outcome = await done
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    async def ask(self, request: Any, answer: type[T], versions: tuple[int, int], timeout_ms: int | None = None) -> T:
        """The response to one of our request values, as an `answer`. Raises ClientError."""
        found = await self.request(
            request.API_KEY, versions, lambda version: codec.write_request(request, version), timeout_ms
        )
        try:
            return codec.read_response(answer, found.api_version, found.body)
        except MalformedRequest as error:
            raise ClientError(f"{self._name} sent a response that cannot be decoded: {error}") from None

    def connect(self, *, at_once: bool = False) -> bool:
        """Start to connect, unless the reconnect back-off has not ended (`at_once` ignores it).

        Returns whether there is a connection, or an attempt whose result will be reported.
        """
        if self._channel is not None or self._is_connecting:
            return True
        is_idle = not at_once and self._clock.now_ms() < self._idle_until_ms
        if self._is_closed or is_idle:
            return False
        self._is_connecting = True
        setup_ms = self._config.connection_setup_timeout.time_ms(self._unaccepted, self._rng)
        self._unaccepted += 1
        try:
            self._channel = self._network.open(self.address, self._config.client_id, self)
        except Exception as error:  # of any kind: otherwise the peer would stay in state connecting
            text = f"{self._name} cannot be reached: {error!r}"
            self._loop.call_soon(self._on_not_opened, ConnectError(text))
        else:
            self._limit_setup(setup_ms)
        return True

    def close(self) -> None:
        """Close; requests in flight fail."""
        self._is_closed = True
        self._last_error = ConnectionLostError(f"{self._name}: the connection was closed on this side")
        self._close_channel()
        self._fail_sent(self._last_error)
        self._fail_waiting(self._last_error)
        self._deadlines.close()

    @property
    def versions(self) -> Versions | None:
        """The lowest and highest version of each API that the other side supports; None without a connection."""
        return self._versions

    @property
    def unanswered(self) -> int:
        """The number of requests without an outcome yet."""
        return len(self._waiting) + len(self._sent)

    # Events of the channel

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
            text = f"{self._name} supports API {request.api_key} in versions {known}, but {low} to {high} are needed"
            self._loop.call_soon(request.on_done, UnsupportedVersionError(text))
            return
        try:
            body = request.body_of(version)
        except Exception as error:  # the caller's error must not close the connection
            self._loop.call_soon(request.on_done, ClientError(f"{self._name}: the request was not sent: {error}"))
            return
        self._sent[channel.send(request.api_key, version, body)] = _Sent(version, request.on_done)

    def _with_timeout(self, on_done: OnDone, timeout_ms: int | None) -> OnDone:
        """`on_done`, called once with the outcome or after the timeout, which also closes the connection.

        Kafka does the same: a node that exceeds the timeout of one request gets no more requests over this connection.
        """
        wait_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms

        def finish(outcome: Outcome) -> None:
            if self._deadlines.remove(token):
                self._report(on_done, outcome)

        def expire() -> None:
            text = f"{self._name} did not answer within {wait_ms} ms"
            self._report(on_done, ClientTimeoutError(text))
            if self._versions is not None:
                self._close_channel()
                self._on_channel_lost(ConnectionLostError(text))

        token = self._deadlines.add(wait_ms, expire)
        return finish

    def _report(self, on_done: OnDone, outcome: Outcome) -> None:
        """An exception of the caller's function affects neither the connection nor other requests."""
        try:
            on_done(outcome)
        except Exception as error:  # the caller's exception must not end the connection
            context = {"message": f"an outcome of a request to {self._name} was not handled", "exception": error}
            self._loop.call_exception_handler(context)

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
        """Close the connection unless its next set-up step completes in time."""
        self._end_limit()

        def expire() -> None:
            self._limit = None
            self._close_channel()
            self._on_not_opened(ClientTimeoutError(f"{self._name}: no connection within {timeout_ms:.0f} ms"))

        self._limit = self._deadlines.add(timeout_ms, expire)

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
        try:
            if not self._is_closed:
                self._on_lost(error)
        finally:
            self._fail_sent(error)

    def _on_not_opened(self, error: ClientError) -> None:
        if self._is_closed:
            return
        self._forget_channel()
        self._last_error = error
        backoff_ms = self._config.reconnect_backoff.time_ms(self._failures, self._rng)
        self._failures += 1
        self._idle_until_ms = self._clock.now_ms() + backoff_ms
        self._fail_waiting(error)
        self._on_lost(error)


class Peers:
    """Connections to any number of addresses. Use it in the loop's thread."""

    def __init__(
        self,
        config: PeerConfig,
        on_versions: Callable[[], None] = lambda: None,
        *,
        conditions: Conditions | None = None,
    ) -> None:
        """`on_versions` is called when the API versions of a peer become known or unknown.

        `conditions`: those of the node of an embedded cluster.
        """
        self._config, self._on_versions = config, on_versions
        self._network = EngineNetwork(conditions=conditions)
        self._peers: dict[Address, Peer] = {}
        self._many: dict[Address, list[Peer]] = {}  # the first one of each address is also in `_peers`

    def peer(self, address: Address) -> Peer:
        """The peer at this address."""
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
        """The body of the response to a request in exactly this version. Raises ClientError."""
        versions = (api_version, api_version)
        return (await self.peer(address).request(api_key, versions, lambda version: body, timeout_ms)).body

    async def ask(
        self, address: Address, request: Any, answer: type[T], versions: tuple[int, int], timeout_ms: int | None = None
    ) -> T:
        """The response to one of our request values; see `Peer.ask`. Raises ClientError."""
        return await self.peer(address).ask(request, answer, versions, timeout_ms)

    def idlest_peer(self, address: Address, connections_max: int) -> Peer:
        """The peer with the fewest unanswered requests, of up to `connections_max` to this address.

        For requests in any order: a broker handles one request of a connection at a time.
        """
        peers = self._many.setdefault(address, [self.peer(address)])
        idlest = min(peers, key=lambda peer: peer.unanswered)
        if idlest.unanswered > 0 and len(peers) < connections_max:
            idlest = Peer(address, self._config, self._network)
            peers.append(idlest)
        return idlest

    def keep_only(self, addresses: set[Address]) -> None:
        """Close the connections to all other addresses."""
        for address in self._peers.keys() - addresses:
            peer = self._peers.pop(address)
            for one in self._many.pop(address, [peer]):
                one.close()

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self.keep_only(set())
        self._network.close()


def _into(future: asyncio.Future[Outcome]) -> OnDone:
    def deliver(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return deliver
