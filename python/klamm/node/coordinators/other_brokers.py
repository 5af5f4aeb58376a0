"""Requests to other brokers, on their inter-broker listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm.client import ConnectError
from klamm.client.peer import Peer, PeerConfig, Peers

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm._engine.metadata import BrokerInfo, Image
    from klamm.client.network import Address
    from klamm.config.node_config import NodeConfig

T = TypeVar("T")

CONNECTIONS_MAX: Final = 16
"""Connections to one broker. It handles one request of a connection at a time, and a request may wait for an append."""


class OtherBrokers:
    """Connections to the brokers that receive requests: one for each request in flight, up to `CONNECTIONS_MAX`.

    So requests may overtake each other. A caller that needs an order waits for each response.
    """

    def __init__(self, config: NodeConfig, image: Callable[[], Image], conditions: Conditions | None) -> None:
        """`conditions`: those of the node of an embedded cluster."""
        self._image, self._listener = image, config.inter_broker_listener_name
        times = PeerConfig(
            f"broker-{config.node_id}-coordinator", request_timeout_ms=config.integer("request.timeout.ms")
        )
        self._peers = Peers(times, conditions=conditions)

    def is_reachable(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced, and has the listener."""
        return self._address(self._image().broker(broker_id)) is not None

    def _address(self, broker: BrokerInfo | None) -> Address | None:
        if broker is None or broker.fenced:
            return None
        return next(((one.host, one.port) for one in broker.endpoints if one.name == self._listener), None)

    def peer(self, broker_id: int) -> Peer:
        """The connection to a broker for the next request. Raises ConnectError."""
        address = self._address(self._image().broker(broker_id))
        if address is None:
            raise ConnectError(f"broker {broker_id} has no listener {self._listener} that can be reached")
        return self._peers.idlest_peer(address, CONNECTIONS_MAX)

    async def ask(self, broker_id: int, request: Any, answer: type[T], versions: tuple[int, int]) -> T:
        """The response to one of our request values, as an `answer`. Raises ClientError."""
        return await self.peer(broker_id).ask(request, answer, versions)

    def on_published(self, image: Image) -> None:
        """A newer image is committed: close the connections to brokers that are no longer registered."""
        found = (self._address(image.broker(broker_id)) for broker_id in image.broker_ids())
        self._peers.keep_only({address for address in found if address is not None})

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._peers.close()
