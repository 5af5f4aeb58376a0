"""The other replicas over Kafka's protocol: one connection each, made when there is something to send."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm.protocol.client import (
    Address,
    Answer,
    ClientConfig,
    Peer,
    PeerError,
    PeerRefusedError,
    VersionNotOfferedError,
)
from klamm.protocol.connection import Outcome
from klamm.protocol.errors import MalformedRequest
from klamm.raft.driver.streams import Route
from klamm.raft.effects import SendRequest
from klamm.raft.messages import ApiVersionsRequest, Error, Response, VoteRequest, VoteResponse
from klamm.raft.voters.voter_set import Endpoint
from klamm.raft.wire.requests import api_key_of, encode_request, versions_of
from klamm.raft.wire.responses import RefusedError, decode_response

KNOCKS_MAX: Final = 4
KNOCK_PAUSE_S: Final = 0.005
# An election is no time to import what it needs; nor is a start.
WARM_UP_S: Final = 1.0

logger = logging.getLogger("klamm.raft.peers")


class PeerTransport:
    """Implements `klamm.raft.ports.Transport`. To be made and used on the loop's thread."""

    def __init__(
        self,
        listener: str,
        config: ClientConfig,
        on_gone: Callable[[int], None] = lambda node_id: None,
        on_refused: Callable[[int], None] = lambda node_id: None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """`listener` is the name of the listener that the others are asked by.

        `on_gone` hears of nodes that were connected, and refuse to be connected again; `on_refused` of the others that
        refuse a connection. `dice` vary the back-off.
        """
        self._dice = dice
        self._listener, self._config, self._on_gone, self._on_refused = listener, config, on_gone, on_refused
        self._answered: set[int] = set()  # those that were connected since they were last found gone
        self._knocks: dict[int, int] = {}  # how often since
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(WARM_UP_S, self._warm_up, 0)
        self._peers: dict[int, Peer] = {}
        self._is_closed = False
        self._told: dict[int, str] = {}  # why a node could not be asked, so that it is said once
        self.foreign: str | None = None
        """What is to be said of the last node that answered as one of another cluster; None when none did."""

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """Send to a node at the endpoint of the listener, or at the first that it has."""
        endpoint = self._choose(request.endpoints)
        peer = self._peer(request.to, endpoint)
        message = request.request
        peer.send(
            api_key_of(message),
            versions_of(message),
            partial(encode_request, message),
            lambda outcome: on_done(self._response(request, outcome)),
        )

    def route(self, request: SendRequest) -> Route | None:
        """How who was connected last time is reached for a fetch of the log; None while there is no connection."""
        endpoint = self._choose(request.endpoints)
        peer = self._peers.get(request.to)
        if peer is None or peer.address != (endpoint.host, endpoint.port):
            return None
        version = peer.version_of(api_key_of(request.request), versions_of(request.request))
        address = peer.connected_to
        if version is None or address is None:
            return None
        return Route(*address, self._listener, version, self._config.client_id, self._config.request_timeout_ms)

    def close(self) -> None:
        """Close all connections; what was sent has no answer."""
        self._is_closed = True
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _warm_up(self, index: int) -> None:
        """Make ready what an election needs, an API a turn: each takes milliseconds."""
        if self._is_closed:
            return
        from klamm.raft.wire.warming import APIS, warm

        warm(APIS[index])
        if index + 1 < len(APIS):
            self._loop.call_later(WARM_UP_S / 10, self._warm_up, index + 1)

    def _choose(self, endpoints: tuple[Endpoint, ...]) -> Endpoint:
        return next((one for one in endpoints if one.listener == self._listener), endpoints[0])

    def _peer(self, node_id: int, endpoint: Endpoint) -> Peer:
        address = endpoint.host, endpoint.port
        found = self._peers.get(node_id)
        if found is not None and found.address == address:
            return found
        if found is not None:
            found.close()
        peer = Peer(
            address,
            self._config,
            on_connected=lambda: self._on_connected(node_id),
            on_lost=lambda error: self._on_lost(node_id, address, error),
            dice=self._dice,
        )
        self._peers[node_id] = peer
        return peer

    def _response(self, request: SendRequest, outcome: Outcome) -> Response | None:
        message = request.request
        try:
            if isinstance(outcome, Answer):
                response = decode_response(message, outcome.api_version, outcome.body, self._listener)
                if response.error is Error.INCONSISTENT_CLUSTER_ID:
                    self._tell_foreign(request)
                return response
        except (MalformedRequest, RefusedError) as error:
            self._tell(request.to, str(error))
            return None
        if isinstance(outcome, VersionNotOfferedError) and isinstance(message, VoteRequest) and message.pre_vote:
            return VoteResponse(Error.UNSUPPORTED_VERSION, 0, None, False)
        self._tell(request.to, str(outcome))
        return None

    def _on_connected(self, node_id: int) -> None:
        self._told.pop(node_id, None)
        self._answered.add(node_id)
        self._knocks[node_id] = 0

    def _on_lost(self, node_id: int, address: Address, error: PeerError) -> None:
        """A killed process is known by its refusal: so who closed the connection is knocked at, at once."""
        peer = self._peers.get(node_id)
        if peer is None or peer.address != address:
            return  # it was moved, and who is at the old address says nothing of it
        if node_id not in self._answered:
            if isinstance(error, PeerRefusedError):
                self._on_refused(node_id)
            return
        if not isinstance(error, PeerRefusedError):
            # A process that ends may take its listener down last: one more connection is taken, and reset.
            knocks = self._knocks[node_id] = self._knocks[node_id] + 1
            if knocks <= KNOCKS_MAX:
                self._loop.call_later((knocks - 1) * KNOCK_PAUSE_S, lambda: peer.connect(at_once=True))
        else:
            self._answered.remove(node_id)
            logger.info("node %d is gone: %s", node_id, error)
            self._on_gone(node_id)

    def _tell_foreign(self, request: SendRequest) -> None:
        """Nobody who waits for the quorum would find out that it is another's."""
        endpoint, message = self._choose(request.endpoints), request.request
        cluster_id = None if isinstance(message, ApiVersionsRequest) else message.cluster_id
        self.foreign = (
            f"node at {endpoint.host}:{endpoint.port} belongs to another cluster (INCONSISTENT_CLUSTER_ID): this node "
            f"was formatted for cluster.id {cluster_id}, as its meta.properties says. Correct "
            "controller.quorum.bootstrap.servers or controller.quorum.voters, or format this node for that cluster"
        )
        if self._told.get(request.to) != self.foreign:
            self._told[request.to] = self.foreign
            logger.error("%s", self.foreign)

    def _tell(self, node_id: int, why: str) -> None:
        if self._told.get(node_id) != why:
            self._told[node_id] = why
            logger.info("node %d could not be asked: %s", node_id, why)
