"""Probes the listeners of brokers, and ends the session of a broker that has crashed (`klamm.crash.detection`)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from klamm.controller.nodes.crash_detection import BrokerCrashDetection, Crashed, Effect, Probe, ProbeOutcome
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.messages.registration import BrokerRegistrationRequest
from klamm.protocol.wire import codec

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm._engine.metadata import BrokerInfo, Image
    from klamm._engine.node import RequestEvent
    from klamm.controller.driver import ControllerDriver

log = logging.getLogger("klamm.node.broker_probes")

PROBES_AT_ONCE: Final = 16
PROBE_TIMEOUT_S: Final = 1.0
REPEAT_PAUSE_S: Final = 0.01
HEARTBEAT_SENDER_BYTES: Final = 12


class BrokerProbes:
    """Runs `BrokerCrashDetection` on the loop's thread."""

    def __init__(
        self,
        node_id: int,
        controller: ControllerDriver,
        inter_broker_listener: str,
        conditions: Conditions | None = None,
    ) -> None:
        """`conditions`: those of the node of an embedded cluster."""
        self._conditions = conditions
        self._node_id, self._controller, self._listener = node_id, controller, inter_broker_listener
        self._detection = BrokerCrashDetection()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._brokers: dict[int, BrokerInfo] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._slots = asyncio.Semaphore(PROBES_AT_ONCE)

    def on_published(self, image: Image) -> None:
        """A newer image was applied."""
        brokers = [found for each in image.broker_ids() if (found := image.broker(each)) is not None]
        unfenced = {each.id: each.epoch for each in brokers if not each.fenced and each.id != self._node_id}
        self._brokers = {each.id: each for each in brokers}
        self._addresses = {each.id: self._address_of(each) for each in brokers if each.endpoints}
        self._carry_out(self._detection.on_brokers(unfenced, is_active=self._controller.epoch is not None))

    def on_request(self, request: RequestEvent) -> None:
        """A request to this controller, which is answered elsewhere."""
        if request.api_key == ApiKey.BROKER_HEARTBEAT:
            self._on_heartbeat(request.connection_id, request.body)
        elif request.api_key == ApiKey.BROKER_REGISTRATION:
            self._on_registration(request.api_version, request.body)

    def _on_heartbeat(self, connection_id: int, body: bytes) -> None:
        if len(body) >= HEARTBEAT_SENDER_BYTES:  # its first fields in every version: broker id and epoch
            broker_id, epoch = int.from_bytes(body[:4], signed=True), int.from_bytes(body[4:12], signed=True)
            self._detection.on_heartbeat(connection_id, broker_id, epoch)

    def _on_registration(self, api_version: int, body: bytes) -> None:
        broker = self._brokers.get(int.from_bytes(body[:4], signed=True))
        if broker is None or broker.fenced:
            return
        try:
            request = codec.read(BrokerRegistrationRequest, api_version, body)
        except MalformedRequest:
            return
        has_its_dirs = bool(broker.log_dirs) and set(request.log_dirs) == set(broker.log_dirs)
        if has_its_dirs and request.incarnation_id != broker.incarnation_id:
            self._carry_out(self._detection.on_returned(broker.id))

    def on_closed(self, connection_id: int) -> None:
        """A connection was closed."""
        self._carry_out(self._detection.on_closed(connection_id))

    def close(self) -> None:
        """Probe no more."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()

    def _address_of(self, broker: BrokerInfo) -> tuple[str, int]:
        endpoints = broker.endpoints
        found = next((each for each in endpoints if each.name == self._listener), endpoints[0])
        return found.host, found.port

    def _carry_out(self, effects: list[Effect]) -> None:
        if self._is_closed:
            return
        for effect in effects:
            match effect:
                case Probe():
                    task = asyncio.ensure_future(self._probe(effect))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                case Crashed() if self._controller.epoch is not None:
                    evidence = (
                        "its next process registers" if effect.has_returned else "its listener refuses connections"
                    )
                    log.warning("broker %d has crashed: %s", effect.broker_id, evidence)
                    self._controller.on_broker_crashed(effect.broker_id, effect.broker_epoch)

    async def _probe(self, probe: Probe) -> None:
        if probe.is_repeated:
            await asyncio.sleep(REPEAT_PAUSE_S)
        async with self._slots:
            outcome = await self._connect(probe.broker_id)
        try:
            self._carry_out(self._detection.on_probed(probe.broker_id, probe.broker_epoch, outcome))
        except Exception:  # the next image is a reason to probe again
            log.exception("a probe of broker %d could not be evaluated", probe.broker_id)

    async def _connect(self, broker_id: int) -> ProbeOutcome:
        address = self._addresses.get(broker_id)
        if address is None:
            return ProbeOutcome.UNKNOWN
        if self._conditions is not None and self._conditions.is_cut(address[1]):
            await asyncio.sleep(PROBE_TIMEOUT_S)  # as for a host that does not answer
            return ProbeOutcome.UNKNOWN
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(*address)
        except ConnectionRefusedError:
            return ProbeOutcome.REFUSED
        except (OSError, TimeoutError):
            return ProbeOutcome.UNKNOWN
        writer.close()
        return ProbeOutcome.ACCEPTED
