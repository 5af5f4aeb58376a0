"""The network of a replica over TCP: Kafka's framing, raft's requests as Kafka has them, and one of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.client import ClientError
from klamm.client.peer import PeerConfig, Peers
from klamm.raft.config import RaftConfig
from klamm.raft.driver.peers import PeerTransport
from klamm.raft.effects import SendRequest
from klamm.raft.library.calls import API_KEY
from klamm.raft.library.driver.network import Service, UnreachableError
from klamm.raft.library.driver.serving import ServerConnection
from klamm.raft.messages import Response
from klamm.raft.voters.voter_set import Endpoint

CLIENT_ID = "klamm-raft"


class TcpNetwork:
    """Implements `Network`. klamm's own calls use a separate connection: raft's requests never queue after them."""

    def __init__(self, listen: Endpoint | None, config: RaftConfig) -> None:
        """Without `listen` no peer can connect to this replica, which is enough for an observer."""
        self._listen = listen
        listener = listen.listener if listen is not None else ""
        client_config = PeerConfig(CLIENT_ID, request_timeout_ms=config.request_timeout_ms)
        self._service: Service | None = None
        self._peers = PeerTransport(listener, client_config, self._on_crashed, self._on_refused)
        self._client = Peers(client_config)
        self._server: asyncio.Server | None = None
        self._connections: set[ServerConnection] = set()

    async def open(self, service: Service) -> None:
        """See `Network.open`."""
        self._service = service
        if self._listen is None:
            return
        loop = asyncio.get_running_loop()
        where = self._listen.host, self._listen.port
        try:
            self._server = await loop.create_server(lambda: ServerConnection(service, self._connections), *where)
        except OSError as error:
            text = f"cannot listen on {where[0]}:{where[1]}: {error.strerror or error}; see `voters` and `listen`"
            raise OSError(error.errno, text) from None

    def _on_crashed(self, node_id: int) -> None:
        if self._service is not None:
            self._service.on_peer_crashed(node_id)

    def _on_refused(self, node_id: int) -> None:
        if self._service is not None:
            self._service.on_peer_refused(node_id)

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """See `Network.send`."""
        if request.endpoints:
            self._peers.send(request, on_done)
        else:
            asyncio.get_running_loop().call_soon(on_done, None)

    async def call(self, to: int, endpoints: tuple[Endpoint, ...], body: bytes) -> bytes:
        """See `Network.call`."""
        if not endpoints:
            raise UnreachableError(f"the endpoint of replica {to} is unknown")
        try:
            return await self._client.request((endpoints[0].host, endpoints[0].port), API_KEY, 0, body)
        except ClientError as error:
            raise UnreachableError(f"replica {to}: {error}") from None

    async def close(self) -> None:
        """See `Network.close`."""
        self._peers.close()
        self._client.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()
