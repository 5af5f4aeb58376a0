"""How replicas of a library reach each other: the port, and a network inside one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from klamm.raft.driver.serving import Give
from klamm.raft.effects import SendRequest
from klamm.raft.messages import Request, Response
from klamm.raft.voters.voter_set import Endpoint


class UnreachableError(Exception):
    """A call has no answer; the text names the receiver and the cause. It may have been carried out or not."""


class Service(Protocol):
    """The services of a replica for the others."""

    def handle_raft(self, request: Request, reply: Callable[[Response], None]) -> None:
        """Take a request of raft's; `reply` is called once, now or later, or never when the replica stops."""

    def handle_encoded(self, api_key: int, version: int, body: bytes, give: Give) -> None:
        """Process an encoded raft request; `give` is called once with the function that creates the response, or never.

        Raises MalformedRequest.
        """

    async def handle_call(self, body: bytes) -> bytes:
        """Answer a request of `klamm.raft.library.calls`. Raises CallError."""

    def on_peer_crashed(self, node_id: int) -> None:
        """A replica's connection was closed and a new one refused: its process has crashed."""

    def on_peer_refused(self, node_id: int) -> None:
        """A replica refuses connections: it is not there, whether or not it was before."""


class Network(Protocol):
    """The network of one replica; also the `Transport` of its raft driver."""

    async def open(self, service: Service) -> None:
        """Let others reach `service`. Raises OSError."""

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """Send a request of raft's; `on_done` is called once, later, with the answer or None."""

    async def call(self, to: int, endpoints: tuple[Endpoint, ...], body: bytes) -> bytes:
        """The answer of replica `to` to a request of ours. Raises UnreachableError, soon or after a time-out."""

    async def close(self) -> None:
        """Release everything; pending requests fail."""


class LocalHub:
    """Connects the replicas of one process, without a socket: for tests, and for what lives in one process anyway.

    `reachable` may cut single ways: it is asked for each message, with the ids of its sender and its receiver.
    """

    def __init__(self) -> None:
        self._services: dict[int, Service] = {}
        self.reachable: Callable[[int, int], bool] = lambda source, target: True

    def network(self, node_id: int) -> LocalNetwork:
        """The network of one replica."""
        return LocalNetwork(self, node_id)

    def service(self, source: int, target: int) -> Service | None:
        """The service of `target`, where there is one and a way to it."""
        return self._services.get(target) if self.reachable(source, target) else None

    def is_there(self, node_id: int) -> bool:
        """Whether there is such a replica, reachable or not."""
        return node_id in self._services

    def attach(self, node_id: int, service: Service) -> None:
        """A replica has started."""
        self._services[node_id] = service

    def detach(self, node_id: int) -> None:
        """A replica has crashed: those connected to it notice, as if a connection was closed."""
        if self._services.pop(node_id, None) is None:
            return
        for other, service in self._services.items():
            if self.reachable(node_id, other) and self.reachable(other, node_id):
                asyncio.get_running_loop().call_soon(service.on_peer_crashed, node_id)


class LocalNetwork:
    """One replica's end of a LocalHub."""

    def __init__(self, hub: LocalHub, node_id: int) -> None:
        self._hub, self._node_id = hub, node_id

    async def open(self, service: Service) -> None:
        """See `Network.open`."""
        self._hub.attach(self._node_id, service)

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """See `Network.send`."""
        asyncio.get_running_loop().call_soon(self._deliver, request, on_done)

    def _deliver(self, sent: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        service = self._hub.service(self._node_id, sent.to)
        if service is None:
            own = self._hub.service(self._node_id, self._node_id)
            if own is not None and not self._hub.is_there(sent.to):
                own.on_peer_refused(sent.to)
            on_done(None)
            return
        loop = asyncio.get_running_loop()

        def reply(response: Response) -> None:
            way_back = self._hub.reachable(sent.to, self._node_id)
            loop.call_soon(on_done, response if way_back else None)

        service.handle_raft(sent.request, reply)

    async def call(self, to: int, endpoints: tuple[Endpoint, ...], body: bytes) -> bytes:
        """See `Network.call`."""
        await asyncio.sleep(0)
        service = self._hub.service(self._node_id, to)
        if service is None:
            raise UnreachableError(f"replica {to} is not there")
        answer = await service.handle_call(body)
        if self._hub.service(to, self._node_id) is None:
            raise UnreachableError(f"the answer of replica {to} was lost")
        return answer

    async def close(self) -> None:
        """See `Network.close`."""
        self._hub.detach(self._node_id)
