"""Requests of a simulated broker's coordinators to other brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from klamm.client import ClientError, ConnectionLostError
from klamm.client.peer import Answer
from klamm.node.coordinators.other_brokers import OtherBrokers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.messages.transactions import WriteTxnMarkersRequest
from klamm.protocol.wire import codec
from klamm.testing.simulator.brokers.network import Repeated, Reply, Request

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm.client.peer import OnDone
    from klamm.testing.simulator.brokers.network import Process
    from klamm.testing.simulator.brokers.scene import Scene

TIMEOUT_US: Final = 1_000_000
LISTENER: Final = "PLAINTEXT"
VERSION_2: Final = 2


class SimulatedPeer:
    """A connection to another broker, on the simulated network; a `klamm.client.peer.Peer`."""

    def __init__(self, scene: Scene, broker: Process, target_id: int) -> None:
        self._scene, self._broker, self._target_id = scene, broker, target_id

    def send(self, api_key: int, versions: tuple[int, int], body_of: Callable[[int], bytes], on_done: OnDone) -> None:
        """See `Peer.send`. A request may arrive after its outcome is known, as what a closed connection still held."""
        version, body = versions[1], body_of(versions[1])
        target = self._scene.coordinating(self._target_id)
        may_be_late, is_over = _may_be_late(api_key, version, body), False

        def done(outcome: Answer | ClientError) -> None:
            nonlocal is_over
            is_over = True
            on_done(outcome)

        def handle(reply: Reply) -> None:
            if may_be_late or not is_over:
                target.answer(api_key, version, body, reply)

        def failed() -> None:
            done(ConnectionLostError(f"broker {self._target_id} does not answer"))

        request = Request(
            handle, lambda answer: done(Answer(version, answer)), failed, TIMEOUT_US, Repeated.OF_COORDINATOR
        )
        self._scene.network.call(self._broker, target, request)


def _may_be_late(api_key: int, version: int, body: bytes) -> bool:
    """A known weakness, as in Apache Kafka: before transaction.version 2 a late marker ends the next transaction
    (KIP-890).
    """
    if api_key != ApiKey.WRITE_TXN_MARKERS:
        return True
    request = codec.read(WriteTxnMarkersRequest, version, body)
    return all(marker.transaction_version >= VERSION_2 for marker in request.markers)


class SimulatedOthers(OtherBrokers):
    """All of them."""

    def __init__(self, scene: Scene, broker: Process, image: Callable[[], Image]) -> None:
        self._scene, self._broker, self._image, self._listener = scene, broker, image, LISTENER

    def peer(self, broker_id: int) -> Any:
        """The connection to a broker."""
        return SimulatedPeer(self._scene, self._broker, broker_id)

    def on_published(self, image: Image) -> None:
        """There are no connections to close."""

    def close(self) -> None:
        """There are no connections to close."""
