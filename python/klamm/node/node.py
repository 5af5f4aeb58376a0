"""One node: constructs its parts, connects them, and starts and stops them in order (ARCHITECTURE.md: a start).

Every node has an engine and follows the metadata log. A broker also has a `BrokerPart`, a controller also the
controller in its `Metadata`. A node with both roles has both, in one process and with one metadata log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm._engine.metadata import Delta, Image
from klamm._engine.node import Engine
from klamm.broker.authorization import AllowAll, Authorizer
from klamm.config.node_config import NodeConfig
from klamm.driving.deadlines import Deadlines
from klamm.formats.directories import metadata_directory_failed
from klamm.node.boot import Booted, Booting, known, supported_features
from klamm.node.broker_part import BrokerPart
from klamm.node.controller.controller_registration import ControllerRegistration
from klamm.node.counters import counters
from klamm.node.engine_events import EngineEvents
from klamm.node.metadata import Metadata
from klamm.node.publishing import Publisher
from klamm.node.requests.dispatch import Dispatcher
from klamm.node.requests.handlers import Handlers
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.messages.registration import ControllerRegistrationRequest, Listener, supported
from klamm.raft.log.metadata_log import MetadataLogError
from klamm.raft.ports import RaftStoppedError, StateFailedError

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm.controller.driver import ControllerDriver
    from klamm.coordinator.groups.driver import GroupCoordinator
    from klamm.coordinator.transactions.driver import TransactionCoordinator
    from klamm.node.controller.broker_probes import BrokerProbes
    from klamm.node.controller.controller_registration import ControllerRegistration
    from klamm.node.views.quorum_view import QuorumView

log = logging.getLogger("klamm.node")

SHUTDOWN_S: Final = 300.0
DRAIN_S: Final = 5.0
BROKER_RESOURCE: Final = 4
NO_EPOCH: Final = -1
REGISTRATION_DELAY_MS: Final = 500
"""The delay before a controller without brokers registers, so that it answers its first clients first."""


class NodeFailedError(Exception):
    """The node stopped by itself. The message states the reason."""


class Node:
    """A node with the roles of its configuration. Create, start and stop it in the thread of one event loop."""

    def __init__(
        self,
        config: NodeConfig,
        booting: Booting | Booted | None = None,
        *,
        is_volatile: bool = False,
        conditions: Conditions | None = None,
    ) -> None:
        """Takes over `booting`, a boot in progress or finished, if given.

        `is_volatile`: the files need not survive a power failure. `conditions`: those of a node of an embedded
        cluster, which `booting` has too.
        """
        self.config = config
        self._booting = booting
        self._is_volatile, self._conditions = is_volatile, conditions
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The failure is logged where it happens; this avoids asyncio's warning that it was not retrieved.
        self.failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self.cluster_id = ""
        self.listeners: Mapping[str, tuple[str, int]] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._publisher = Publisher()
        self._unassigned: list[tuple[bytes, bytes, int]] = []
        """Directory id, topic id and partition of replicas that are not yet reported to the controller."""
        self._is_first_image = True
        self._told_kraft_version: int | None = None
        self._engine: Engine | None = None
        self._broker: BrokerPart | None = None
        self._controller_registration: ControllerRegistration | None = None
        self._broker_probes: BrokerProbes | None = None
        self._deadlines = Deadlines()
        self._incarnation_id = os.urandom(16)

    # Start

    async def start(self) -> None:
        """Start. Returns when a broker serves clients or a controller serves its listener.

        Raises StorageError, OSError, NodeFailedError.
        """
        began = time.monotonic()
        booting, self._booting = self._booting, None
        booting = booting or Booting(self.config, is_volatile=self._is_volatile, conditions=self._conditions)
        booted = booting if isinstance(booting, Booted) else booting.finish()
        self.cluster_id, self._directory_ids = booted.cluster_id, booted.directory_ids
        self._locks, self._engine, self.listeners = booted.locks, booted.engine, booted.listeners
        try:
            await self._start_parts(booted)
        except BaseException:  # a cancelled start too
            await self._abandon(booted)
            raise
        log.info("serving after %d ms", (time.monotonic() - began) * 1000)

    async def _start_parts(self, booted: Booted) -> None:
        config, engine = self.config, booted.engine
        self.metadata = Metadata(
            config,
            booted,
            incarnation_id=self._incarnation_id,
            is_volatile=self._is_volatile,
            on_published=self._publisher.publish,
            on_fault=self._on_fault,
        )
        self._announce_features(engine)
        if config.is_broker:
            self._broker = BrokerPart(
                config,
                booted,
                self.metadata,
                incarnation_id=self._incarnation_id,
                image=lambda: self.image,
                on_fault=self._on_fault,
                conditions=self._conditions,
            )
        self._follow_image(engine)
        authorizer = AllowAll()
        handlers = self._handlers(engine, authorizer)
        self._dispatcher = Dispatcher(engine, handlers, authorizer)
        self._events = EngineEvents(
            engine,
            self._dispatcher,
            self._deadlines,
            broker=lambda: self.broker,
            broker_probes=lambda: self._broker_probes,
            create_topics=handlers.create_topics,
            create_timeout_ms=config.integer("request.timeout.ms"),
            on_log_dir_failed=self._on_log_dir_failed,
        )
        asyncio.get_running_loop().add_reader(engine.event_fd, self._events.on_readable)
        self.metadata.start()
        if self.metadata.is_alone:
            await self._or_fail(self.metadata.is_active.wait())
        for listener in config.controller_listeners:
            engine.open(listener.name)
        if self._broker is not None:
            await self._or_fail(self._broker.start())
        if self.metadata.controller is not None and config.boolean("klamm.crash.detection"):
            self._watch_brokers(self.metadata.controller)
        if config.is_controller:
            self._deadlines.add(REGISTRATION_DELAY_MS if self.metadata.is_alone else 0, self._register_controller)

    def _announce_features(self, engine: Engine) -> None:
        """Announce the supported feature levels, and kraft.version, which is not part of the image."""
        kraft_version = self.metadata.kraft_version
        if kraft_version != self._told_kraft_version:
            self._told_kraft_version = kraft_version
            engine.set_supported_features(supported_features(), kraft_version)

    def _watch_brokers(self, controller: ControllerDriver) -> None:
        """Detect brokers that have crashed, from the first image with another broker on."""

        def on_published(image: Image, _: Delta) -> None:
            if self._broker_probes is None and set(image.broker_ids()) - {self.config.node_id}:
                from klamm.node.controller.broker_probes import BrokerProbes

                name = self.config.inter_broker_listener_name
                self._broker_probes = BrokerProbes(self.config.node_id, controller, name, self._conditions)
            if self._broker_probes is not None:
                self._broker_probes.on_published(image)

        def on_active() -> None:
            # A broker may have crashed together with the controller before.
            if self._broker_probes is not None:
                self._broker_probes.on_published(self.image)

        self._publisher.follow("broker probes", on_published)
        self.metadata.on_active = on_active

    def _register_controller(self) -> None:
        """Register the controller in the background after the start."""
        request = ControllerRegistrationRequest(
            self.config.node_id,
            self._incarnation_id,
            tuple(Listener(*endpoint) for endpoint in self.metadata.endpoints),
            supported(SUPPORTED_FEATURES),
        )
        registration = self._controller_registration = ControllerRegistration(request, self.metadata.active_controller)
        registration.on_published(self.image)
        self._publisher.follow("controller registration", lambda image, _: registration.on_published(image))

    async def _or_fail(self, waiting: Any) -> None:
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({task, self.failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if self.failed.done():
            self.failed.result()
        task.result()

    def _handlers(self, engine: Engine, authorizer: Authorizer) -> Handlers:
        return Handlers(
            self.config,
            self.cluster_id,
            engine,
            lambda: self.image,
            controller=self.metadata.controller,
            active_controller=self.metadata.active_controller,
            broker=lambda: self.broker,
            quorum=self._quorum_view,
            raft=self.metadata.raft_requests,
            authorizer=authorizer,
        )

    @property
    def image(self) -> Image:
        """The committed image."""
        return self._publisher.image

    @property
    def engine(self) -> Engine:
        """The engine of a running node. Raises NodeFailedError."""
        return self._running()

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator of a broker."""
        return self.broker.groups.coordinator

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator of a broker."""
        return self.broker.transactions.coordinator

    @property
    def broker(self) -> BrokerPart:
        """The broker half. Raises NodeFailedError if the node is not a broker."""
        if self._broker is None:
            raise NodeFailedError(f"node {self.config.node_id} is not a broker")
        return self._broker

    def counters(self) -> dict[str, int]:
        """The counters since the start of the node; see `klamm.node.counters`."""
        found = counters(self._running(), self.metadata.log.native)
        if self._broker is not None:
            found |= self._broker.groups.counters() | self._broker.transactions.counters()
            found |= self._broker.share_states.counters()
        return found

    def gauges(self) -> dict[str, int]:
        """The numbers of a broker's partitions by state; see `klamm.node.counters`. It visits every partition."""
        found = self._running().gauges()
        if self._broker is not None:
            found |= self._broker.transactions.gauges() | self._broker.share_states.gauges()
            found |= self._broker.groups.gauges()
        return found

    def _running(self) -> Engine:
        if self._engine is None:
            raise NodeFailedError("the node is not running")
        return self._engine

    # What the engine and the image report

    def _on_log_dir_failed(self, directory_id: bytes) -> None:
        """A log directory failed. As in Kafka, the node stops if it held the metadata log or was the last one."""
        self.broker.on_log_dir_failed(directory_id)
        failures = {found: (path, cause) for path, found, cause, *_ in self._running().log_dirs()}
        path, cause = failures.get(directory_id, ("", None))
        if directory_id == self._directory_ids[self.config.metadata_log_dir]:
            self._on_fault(NodeFailedError(metadata_directory_failed(path, cause)))
        elif all(cause is not None for _, cause in failures.values()):
            self._on_fault(NodeFailedError(f"every log directory has failed, {path} as the last: {cause}"))

    def _follow_image(self, engine: Engine) -> None:
        """Subscribe to the committed image, in this order."""
        follow = self._publisher.follow
        follow("engine", lambda image, _: self._unassigned.extend(engine.publish(image)))
        follow("dynamic configs", self._follow_dynamic_configs)
        follow("features", lambda *_: self._announce_features(engine))
        if self._broker is not None:
            broker = self._broker
            follow("directory assignments", lambda *_: self._assign())
            for name, take in broker.followers.items():
                follow(name, take)

    def _assign(self) -> None:
        self.broker.assign(self._unassigned)
        self._unassigned.clear()

    def _follow_dynamic_configs(self, image: Image, delta: Delta) -> None:
        # The first image may come from a snapshot, whose configs are in no delta.
        if self._is_first_image or any(place in delta.changed_configs for place in self._own_config_places):
            self._apply_dynamic_configs(image)
            self._is_first_image = False

    @property
    def _own_config_places(self) -> tuple[tuple[int, str], ...]:
        return (BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(self.config.node_id))

    def _apply_dynamic_configs(self, image: Image) -> None:
        """Apply the defaults for all brokers, then the values for this one, over the values of the file."""
        merged = dict(self.config.given)
        for place in self._own_config_places:
            merged |= image.configs(*place)
        self._running().set_settings(known(merged))
        if self._broker is not None:
            self._broker.follow_configs(merged)

    def _on_fault(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(NodeFailedError(_reason(error)))

    def _quorum_view(self) -> QuorumView:
        from klamm.node.views.quorum_view import QuorumView

        return QuorumView(self.metadata.raft, self.config.node_id, self.metadata.endpoints)

    # Stop

    async def stop(self, timeout_s: float = SHUTDOWN_S, *, hand_over: bool = True) -> None:
        """Controlled shutdown: hand over leadership, finish requests, close cleanly. A second call waits for the first.

        Without `hand_over`, the active controller and the other voters detect the stop by their timeouts.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(self._running(), timeout_s, hand_over=hand_over))
        await asyncio.shield(self._stopping)

    async def _stop(self, engine: Engine, timeout_s: float, *, hand_over: bool) -> None:
        if self._broker is not None:
            is_controlled = hand_over and self.config.boolean("controlled.shutdown.enable") and not self.failed.done()
            await self._broker.shut_down(timeout_s if is_controlled else 0)
        # Not earlier: other brokers may still have to find the controller of this process.
        engine.stop_accepting()
        await self._dispatcher.drain(DRAIN_S if hand_over else 0)
        await self._close(engine, hand_over=hand_over)

    async def _close(self, engine: Engine, *, hand_over: bool) -> None:
        self._deadlines.close()
        if self._controller_registration is not None:
            self._controller_registration.close()
        if self._broker_probes is not None:
            self._broker_probes.close()
        broker_epoch = NO_EPOCH
        if self._broker is not None:
            broker_epoch = self._broker.broker_epoch
            self._broker.close()
        try:
            # The other voters can still be notified and can elect a successor.
            await self.metadata.leave(hand_over=hand_over)
            self._dispatcher.refuse_replicas()
            asyncio.get_running_loop().remove_reader(engine.event_fd)
            self._events.close()
            self._publisher.close()  # later commits are applied by the next start
            self._engine = None
            await asyncio.to_thread(engine.shutdown, broker_epoch)
            self._events.log_rest()
            self.metadata.close()
        finally:
            self._publisher.close()
            self._engine = None
            self._locks.release()

    async def _abandon(self, booted: Booted) -> None:
        """Undo a start that failed."""
        self._locks.release()
        engine, self._engine = booted.engine, None
        self._publisher.close()
        asyncio.get_running_loop().remove_reader(engine.event_fd)
        if self._broker is not None:
            self._broker.close()
        if hasattr(self, "metadata"):
            await self.metadata.leave(hand_over=True)
            self.metadata.close()
        else:
            booted.log.close()
        # A clean shutdown found at the start is recorded again.
        engine.shutdown(engine.previous_broker_epoch)


def _reason(error: Exception) -> str:
    """The error message if there is one; otherwise the exception, whose traceback is in the log."""
    in_words = NodeFailedError, RaftStoppedError, MetadataLogError, StateFailedError, OSError
    return str(error) if isinstance(error, in_words) else f"the replica stopped: {type(error).__name__}: {error}"
