"""The other replicas over Kafka's protocol: one connection each, opened at the first request."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm.client import ClientError, ConnectRefusedError, UnsupportedVersionError
from klamm.client.network import EngineNetwork, Network
from klamm.client.peer import Address, Answer, Outcome, Peer, PeerConfig
from klamm.driving.deadlines import Deadlines
from klamm.protocol.errors import MalformedRequest
from klamm.raft.driver.streams import Route
from klamm.raft.effects import SendRequest
from klamm.raft.messages import ApiVersionsRequest, Error, Response, VoteRequest, VoteResponse
from klamm.raft.voters.voter_set import Endpoint
from klamm.raft.wire.requests import api_key_of, encode_request, versions_of
from klamm.raft.wire.responses import RefusedError, decode_response
from klamm.raft.wire.warming import APIS, warm

PROBES_MAX: Final = 4
PROBE_PAUSE_MS: Final = 5
# Neither an election nor a start has time to import what an election needs.
WARM_UP_MS: Final = 1_000

logger = logging.getLogger("klamm.raft.peers")


class PeerTransport:
    """Implements `klamm.raft.ports.Transport`. Must be created and used on the loop's thread."""

    def __init__(
        self,
        listener: str,
        config: PeerConfig,
        on_crashed: Callable[[int], None] = lambda node_id: None,
        on_refused: Callable[[int], None] = lambda node_id: None,
        *,
        network: Network | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """`listener` is the name of the listener on which other replicas are reached.

        `on_crashed` is called for a node that was connected and now refuses connections, `on_refused` for any other
        that refuses one. `network`: the engine's unless given. `rng` varies the back-off.
        """
        self._rng = rng
        self._network: Network = EngineNetwork() if network is None else network
        self._listener, self._config, self._on_crashed, self._on_refused = listener, config, on_crashed, on_refused
        self._connected: set[int] = set()  # those that were connected since they were last found crashed
        self._probes: dict[int, int] = {}  # how many attempts to connect again since
        self._deadlines = Deadlines()
        self._deadlines.add(WARM_UP_MS, partial(self._warm_up, 0))
        self._peers: dict[int, Peer] = {}
        self._logged: dict[int, str] = {}  # why a node could not be asked, so that it is logged once
        self.foreign: str | None = None
        """The error about the last node that answered with another cluster id; None if none did."""

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
        """The route to a connected node for a fetch of the log; None while there is no connection."""
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
        """Close all connections; pending requests get no response."""
        self._deadlines.close()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._network.close()

    def _warm_up(self, index: int) -> None:
        """Import the modules that an election needs, one API in each turn: each takes milliseconds."""
        warm(APIS[index])
        if index + 1 < len(APIS):
            self._deadlines.add(WARM_UP_MS // 10, partial(self._warm_up, index + 1))

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
            self._network,
            on_connected=lambda: self._on_connected(node_id),
            on_lost=lambda error: self._on_lost(node_id, address, error),
            rng=self._rng,
        )
        self._peers[node_id] = peer
        return peer

    def _response(self, request: SendRequest, outcome: Outcome) -> Response | None:
        message = request.request
        try:
            if isinstance(outcome, Answer):
                response = decode_response(message, outcome.api_version, outcome.body, self._listener)
                if response.error is Error.INCONSISTENT_CLUSTER_ID:
                    self._log_foreign(request)
                return response
        except (MalformedRequest, RefusedError) as error:
            self._log_once(request.to, str(error))
            return None
        if isinstance(outcome, UnsupportedVersionError) and isinstance(message, VoteRequest) and message.pre_vote:
            return VoteResponse(Error.UNSUPPORTED_VERSION, 0, None, False)
        self._log_once(request.to, str(outcome))
        return None

    def _on_connected(self, node_id: int) -> None:
        self._logged.pop(node_id, None)
        self._connected.add(node_id)
        self._probes[node_id] = 0

    def _on_lost(self, node_id: int, address: Address, error: ClientError) -> None:
        """A killed process refuses connections, so a node that closed the connection is probed at once."""
        peer = self._peers.get(node_id)
        if peer is None or peer.address != address:
            return  # it was moved, and the process at the old address says nothing about it
        if node_id not in self._connected:
            if isinstance(error, ConnectRefusedError):
                self._on_refused(node_id)
            return
        if not isinstance(error, ConnectRefusedError):
            # A process that ends may close its listener last: one more connection is accepted, and reset.
            probes = self._probes[node_id] = self._probes[node_id] + 1
            if probes <= PROBES_MAX:
                self._deadlines.add((probes - 1) * PROBE_PAUSE_MS, lambda: peer.connect(at_once=True))
        else:
            self._connected.remove(node_id)
            logger.info("node %d has crashed or stopped: %s", node_id, error)
            self._on_crashed(node_id)

    def _log_foreign(self, request: SendRequest) -> None:
        """Without this error an operator would only see that the quorum has no leader."""
        endpoint, message = self._choose(request.endpoints), request.request
        cluster_id = None if isinstance(message, ApiVersionsRequest) else message.cluster_id
        self.foreign = (
            f"node at {endpoint.host}:{endpoint.port} belongs to another cluster (INCONSISTENT_CLUSTER_ID): this node "
            f"was formatted for cluster.id {cluster_id}, as its meta.properties says. Correct "
            "controller.quorum.bootstrap.servers or controller.quorum.voters, or format this node for that cluster"
        )
        if self._logged.get(request.to) != self.foreign:
            self._logged[request.to] = self.foreign
            logger.error("%s", self.foreign)

    def _log_once(self, node_id: int, why: str) -> None:
        if self._logged.get(node_id) != why:
            self._logged[node_id] = why
            # A server of controller.quorum.bootstrap.servers has a negative id; the reason names its address.
            who = f"node {node_id}" if node_id >= 0 else "a bootstrap server"
            logger.info("%s could not be asked: %s", who, why)
