"""The product's `PeerTransport` in a simulated process, over simulated connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from klamm.client.peer import PeerConfig
from klamm.raft.driver.peers import PeerTransport
from klamm.raft.effects import SendRequest
from klamm.raft.messages import Response
from klamm.raft.voters.voter_set import Endpoint
from klamm.testing.simulator.connections import ANY_PORT, LISTENER, Connections, Owner
from klamm.testing.simulator.envelope import Envelope


class SimulatedPeers:
    """Implements `klamm.raft.ports.Transport`. Use it on the process's loop only."""

    def __init__(
        self,
        owner: Owner,
        *,
        request_timeout_ms: int,
        on_crashed: Callable[[int], None],
        on_refused: Callable[[int], None],
        seed: int,
    ) -> None:
        """`seed` determines the jitter of the back-off."""
        self._connections = Connections(owner)
        client = PeerConfig("raft-client", request_timeout_ms=request_timeout_ms)
        self._transport = PeerTransport(
            LISTENER, client, on_crashed, on_refused, network=self._connections, rng=random.Random(seed).random
        )

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """See `klamm.raft.ports.Transport`."""
        self._transport.send(replace(request, endpoints=_where(request)), on_done)

    def on_answer(self, envelope: Envelope) -> None:
        """A response has arrived."""
        if envelope.connection is not None and envelope.response is not None:
            self._connections.on_answer(envelope.connection[0], envelope.correlation_id, envelope.response)

    def lose(self, envelope: Envelope) -> None:
        """The connection of that request or response breaks."""
        if envelope.connection is not None:
            self._connections.lose(envelope.connection[0])

    def lose_all_to(self, node_id: int) -> None:
        """That node has closed its connections."""
        self._connections.lose_all_to(node_id)

    def close(self) -> None:
        """The process ends in an orderly way."""
        self._transport.close()


def _where(request: SendRequest) -> tuple[Endpoint, ...]:
    """Configured voters and bootstrap servers are found by their host names."""
    if request.to < 0:
        return (request.endpoints[0]._replace(port=ANY_PORT),)
    return request.endpoints or (Endpoint(LISTENER, f"node-{request.to}", ANY_PORT),)
