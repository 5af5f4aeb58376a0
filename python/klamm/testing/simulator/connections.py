"""The connections of a simulated process: the `Network` of the product's `PeerTransport`.

A request becomes a message of the world; its response arrives as the body of a frame. The simulated network decides
which connections break, and which side notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from klamm.client import ConnectionLostError, ConnectRefusedError
from klamm.client.network import Address, ChannelHandler
from klamm.protocol.api_key import ApiKey
from klamm.raft.messages import ApiVersionsRequest, Request, Response
from klamm.raft.wire.requests import VERSIONS, decode_request
from klamm.raft.wire.responses import encode_response

LISTENER: Final = "CONTROLLER"
ANY_PORT: Final = 0  # wherever the process listens on that host

Dialed = Callable[[int | None], None]
"""Receives the life of the process that accepted the connection; None if it was refused."""


class Owner(Protocol):
    """The process."""

    def dial(self, node_id: int, port: int, on_dialed: Dialed) -> None:
        """Try to connect; `on_dialed` is called once, or never if there is no reply."""

    def ask(self, connection: SimulatedConnection, correlation_id: int, request: Request) -> None:
        """Send a request."""


class SimulatedConnection:
    """Implements `klamm.client.network.Channel`: this side's end of a connection."""

    def __init__(self, address: Address, owner: Owner, handler: ChannelHandler) -> None:
        """`handler`: the product's."""
        self.node_id, self.number, self.life = int(address[0].removeprefix("node-")), -1, -1
        self._address, self._owner, self._handler = address, owner, handler
        self._loop = asyncio.get_running_loop()
        self._versions: dict[int, int] = {}  # of requests, by correlation id
        self._correlation_id = 0
        self.is_over = False

    def on_made(self, number: int, life: int) -> None:
        """A process of that life has accepted the connection. Its API versions are requested over the connection."""
        self.number, self.life = number, life
        self._handler.on_accepted(self._address)
        self._loop.call_soon(self._open)

    def on_refused(self) -> None:
        """No process listens there."""
        self.is_over = True
        self._handler.on_closed(ConnectRefusedError(f"nothing listens at {self._address[0]}:{self._address[1]}"))

    def send(self, api_key: int, api_version: int, body: bytes) -> int:
        """See `Channel.send`."""
        self._correlation_id += 1
        self._versions[self._correlation_id] = api_version
        is_empty = api_key == ApiKey.API_VERSIONS
        request = ApiVersionsRequest() if is_empty else decode_request(api_key, api_version, body).message
        if request is None:
            raise AssertionError(f"API {api_key} was asked about another partition than the quorum's")
        self._owner.ask(self, self._correlation_id, request)
        return self._correlation_id

    def close(self) -> None:
        """See `Channel.close`."""
        self.is_over = True

    def on_answer(self, correlation_id: int, response: Response) -> None:
        """The answer to a request has arrived."""
        if not self.is_over and correlation_id in self._versions:
            body = encode_response(response, self._versions.pop(correlation_id), LISTENER)
            self._handler.on_answer(correlation_id, body)

    def lose(self) -> None:
        """The connection breaks, and this side notices."""
        if not self.is_over:
            self.is_over = True
            self._handler.on_closed(ConnectionLostError(f"{self._address[0]} closed the connection"))

    def _open(self) -> None:
        if not self.is_over:
            self._handler.on_opened(VERSIONS)


class Connections:
    """Implements `klamm.client.network.Network`: the connections of one life. Use it on its loop only."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._made: dict[int, SimulatedConnection] = {}

    def open(self, address: Address, client_id: str, handler: ChannelHandler) -> SimulatedConnection:
        """See `Network.open`."""
        connection = SimulatedConnection(address, self._owner, handler)

        def on_dialed(life: int | None) -> None:
            if connection.is_over:
                return
            if life is None:
                connection.on_refused()
                return
            number = len(self._made)
            self._made[number] = connection
            connection.on_made(number, life)

        self._owner.dial(connection.node_id, address[1], on_dialed)
        return connection

    def close(self) -> None:
        """See `Network.close`."""

    def on_answer(self, number: int, correlation_id: int, response: Response) -> None:
        """A response has arrived on that connection."""
        self._made[number].on_answer(correlation_id, response)

    def lose(self, number: int) -> None:
        """That connection breaks."""
        self._made[number].lose()

    def lose_all_to(self, node_id: int) -> None:
        """Every connection to that node breaks."""
        for connection in list(self._made.values()):
            if connection.node_id == node_id:
                connection.lose()
