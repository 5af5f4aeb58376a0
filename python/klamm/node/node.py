"""One node: its parts constructed, introduced to each other, started and stopped in order (ARCHITECTURE.md: a start).

Every node has an engine and follows the metadata log. A broker has a `BrokerPart` besides, a controller the controller
of its `Metadata`; a node of both roles has both, in one process and over one log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm._engine import (
    AckedEvent,
    AutoCreateEvent,
    CommitEvent,
    Delta,
    DirFailedEvent,
    Engine,
    Image,
    LogEvent,
    RequestEvent,
)
from klamm.broker.authorization import AllowAll, Authorizer
from klamm.broker.request import RequestContext, monotonic_ms
from klamm.config.node_config import NodeConfig
from klamm.formats.directories import metadata_directory_failed
from klamm.node.boot import Booted, Booting, known, supported_features
from klamm.node.broker_part import BrokerPart
from klamm.node.metadata import Metadata
from klamm.node.publishing import Publisher
from klamm.node.requests.dispatch import Dispatcher
from klamm.node.requests.handlers import Handlers
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.principal import ANONYMOUS, Principal
from klamm.raft.log.metadata_log import MetadataLogError
from klamm.raft.ports import RaftStoppedError, StateFailedError

if TYPE_CHECKING:
    from klamm._engine import EngineEvent
    from klamm.coordinator.groups.driver import GroupCoordinator
    from klamm.node.controller.controller_registration import ControllerRegistration
    from klamm.node.views.quorum_view import QuorumView

log = logging.getLogger("klamm.node")

EVENTS_AT_ONCE: Final = 128
LOST_EVENT_PAUSE_S: Final = 1.0
"""Before a failed log directory is reported to the controller again."""
SHUTDOWN_S: Final = 300.0
DRAIN_S: Final = 5.0
BROKER_RESOURCE: Final = 4
FEATURES_WITHOUT_APIS: Final = ("group.version", "transaction.version", "share.version", "streams.version")
NO_EPOCH: Final = -1
REGISTRATION_DELAY_S: Final = 0.5
"""How long after its start a controller without others registers: its first clients come first."""
LOG_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class NodeFailedError(Exception):
    """The node stopped by itself; the message says why."""


class Node:
    """A node of the roles that its configuration names. To be made, started and stopped on one loop's thread."""

    def __init__(
        self, config: NodeConfig, booting: Booting | Booted | None = None, *, is_volatile: bool = False
    ) -> None:
        """With a boot that was begun or done, if there is one.

        Volatile: the files need not survive a power cut.
        """
        self.config = config
        self._booting = booting
        self._is_volatile = is_volatile
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The failure is logged where it happens: asyncio shall not warn that it was not retrieved.
        self.failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self.cluster_id = ""
        self.listeners: Mapping[str, tuple[str, int]] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._publisher = Publisher()
        self._unassigned: list[tuple[bytes, bytes, int]] = []
        """Directory id, topic id and partition of what the controller has yet to hear of."""
        self._is_first_image = True
        self._told_kraft_version: int | None = None
        self._engine: Engine | None = None
        self._broker: BrokerPart | None = None
        self._controller_registration: ControllerRegistration | None = None
        self._registering: asyncio.TimerHandle | None = None
        self._incarnation_id = os.urandom(16)

    # Start

    async def start(self) -> None:
        """Start, and return when a broker serves clients, or a controller its listener.

        Raises StorageError, OSError, NodeFailedError.
        """
        began = time.monotonic()
        booting, self._booting = self._booting or Booting(self.config, is_volatile=self._is_volatile), None
        booted = booting if isinstance(booting, Booted) else booting.finish()
        self.cluster_id, self._directory_ids = booted.cluster_id, booted.directory_ids
        self._locks, self._engine, self.listeners = booted.locks, booted.engine, booted.listeners
        try:
            await self._start_parts(booted)
        except BaseException:  # also a start that is cancelled
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
        self._tell_features(engine)
        if config.is_broker:
            self._broker = BrokerPart(
                config,
                booted,
                self.metadata,
                incarnation_id=self._incarnation_id,
                image=lambda: self.image,
                on_fault=self._on_fault,
            )
        self._follow_image(engine)
        authorizer = AllowAll()
        self._dispatcher = Dispatcher(engine, self._handlers(engine, authorizer), authorizer)
        asyncio.get_running_loop().add_reader(engine.event_fd, self._on_events)
        self.metadata.start()
        if self.metadata.is_alone:
            await self._or_fail(self.metadata.is_active.wait())
        for listener in config.controller_listeners:
            engine.open(listener.name)
        if self._broker is not None:
            await self._or_fail(self._broker.start())
        if config.is_controller:
            delay_s = REGISTRATION_DELAY_S if self.metadata.is_alone else 0.0
            self._registering = asyncio.get_running_loop().call_later(delay_s, self._register_controller)
        self._warn_of_features()

    def _tell_features(self, engine: Engine) -> None:
        """The levels that this node knows, and kraft.version, which is in no image."""
        kraft_version = self.metadata.kraft_version
        if kraft_version != self._told_kraft_version:
            self._told_kraft_version = kraft_version
            engine.set_supported_features(supported_features(), kraft_version)

    def _warn_of_features(self) -> None:
        """A directory that Kafka formatted may have features on whose APIs klamm does not have yet."""
        on = self.image.features()
        without_apis = [f"{name}={on[name]}" for name in FEATURES_WITHOUT_APIS if on.get(name)]
        if without_apis:
            log.warning("features are finalized whose APIs klamm does not have yet: %s", ", ".join(without_apis))

    def _register_controller(self) -> None:
        """After the start, in the background."""
        from klamm.node.controller.controller_registration import ControllerRegistration
        from klamm.protocol.messages.registration import ControllerRegistrationRequest, Listener, supported

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
    def broker(self) -> BrokerPart:
        """What a broker has besides. Raises NodeFailedError where the node is none."""
        if self._broker is None:
            raise NodeFailedError(f"node {self.config.node_id} is no broker")
        return self._broker

    def counters(self) -> dict[str, int]:
        """What the node has done since its start; see `klamm.node.counters`."""
        from klamm.node.counters import counters

        groups = {} if self._broker is None else self._broker.groups.counters()
        return counters(self._running(), self.metadata.log.native) | groups

    def _running(self) -> Engine:
        if self._engine is None:
            raise NodeFailedError("the node is not running")
        return self._engine

    # What happens

    def _on_events(self) -> None:
        for event in self._running().drain(EVENTS_AT_ONCE):
            try:
                self._on_event(event)
            except Exception:  # it ends this event, and no other of the same turn
                log.exception("the node failed to process a %s of the engine", type(event).__name__)
                self._on_lost_event(event)

    def _on_lost_event(self, event: EngineEvent) -> None:
        """Nothing waits for it for ever. A client asks again for a topic that was not created."""
        match event:
            case RequestEvent() | CommitEvent():
                self._dispatcher.answer(event.handle, None)
            case AckedEvent():
                self.broker.groups.on_acked(event.token, None)
            case DirFailedEvent():
                call_later = asyncio.get_running_loop().call_later
                call_later(LOST_EVENT_PAUSE_S, self._on_log_dir_failed, event.directory_id)

    def _on_event(self, event: EngineEvent) -> None:
        match event:
            case RequestEvent():
                self._dispatcher.dispatch(event.handle, _context_of(event), event.body)
            case CommitEvent():
                self._dispatcher.commit(event.handle, event.address, event.request)
            case AckedEvent():
                self.broker.groups.on_acked(event.token, event.error_code)
            case AutoCreateEvent():
                self.broker.auto_create(event.topics)
            case DirFailedEvent():
                self._on_log_dir_failed(event.directory_id)
            case LogEvent():
                log.log(LOG_LEVELS[event.level], event.message)

    def _on_log_dir_failed(self, directory_id: bytes) -> None:
        """The others go on, unless it held the metadata log or there are none: then the node ends, as Kafka's does."""
        self.broker.on_log_dir_failed(directory_id)
        failures = {found: (path, cause) for path, found, cause, _ in self._running().log_dirs()}
        path, cause = failures.get(directory_id, ("", None))
        if directory_id == self._directory_ids[self.config.metadata_log_dir]:
            self._on_fault(NodeFailedError(metadata_directory_failed(path, cause)))
        elif all(cause is not None for _, cause in failures.values()):
            self._on_fault(NodeFailedError(f"every log directory is out of use, {path} as the last: {cause}"))

    def _follow_image(self, engine: Engine) -> None:
        """What follows the committed image, each in its turn."""
        follow = self._publisher.follow
        follow("engine", lambda image, _: self._unassigned.extend(engine.publish(image)))
        follow("dynamic configs", self._follow_dynamic_configs)
        follow("features", lambda *_: self._tell_features(engine))
        if self._broker is not None:
            broker = self._broker
            follow("directory assignments", lambda *_: self._assign())
            for name, take in broker.followers.items():
                follow(name, take)

    def _assign(self) -> None:
        self.broker.assign(self._unassigned)
        self._unassigned.clear()

    def _follow_dynamic_configs(self, image: Image, delta: Delta) -> None:
        # What a snapshot holds is in no delta.
        if self._is_first_image or any(place in delta.changed_configs for place in self._own_config_places):
            self._apply_dynamic_configs(image)
            self._is_first_image = False

    @property
    def _own_config_places(self) -> tuple[tuple[int, str], ...]:
        return (BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(self.config.node_id))

    def _apply_dynamic_configs(self, image: Image) -> None:
        """Values for all brokers, then those for this one, lie over the file's."""
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
        """Controlled shutdown: hand over, answer what is under way, close cleanly. A second call waits for it too.

        Without handing over, the active controller and the other voters find out by themselves.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(self._running(), timeout_s, hand_over=hand_over))
        await asyncio.shield(self._stopping)

    async def _stop(self, engine: Engine, timeout_s: float, *, hand_over: bool) -> None:
        if self._broker is not None:
            is_controlled = hand_over and self.config.boolean("controlled.shutdown.enable") and not self.failed.done()
            await self._broker.shut_down(timeout_s if is_controlled else 0)
        # Not before: the controller of this process may be the one that other brokers have yet to find.
        engine.stop_accepting()
        await self._dispatcher.drain(DRAIN_S if hand_over else 0)
        await self._close(engine, hand_over=hand_over)

    async def _close(self, engine: Engine, *, hand_over: bool) -> None:
        if self._registering is not None:
            self._registering.cancel()
        if self._controller_registration is not None:
            self._controller_registration.close()
        broker_epoch = NO_EPOCH
        if self._broker is not None:
            broker_epoch = self._broker.broker_epoch
            self._broker.close()
        try:
            # While the other voters can still be notified, and can elect a successor.
            await self.metadata.leave(hand_over=hand_over)
            self._dispatcher.refuse_replicas()
            asyncio.get_running_loop().remove_reader(engine.event_fd)
            self._publisher.close()  # what is committed from now on, the next start shows
            self._engine = None
            await asyncio.to_thread(engine.shutdown, broker_epoch)
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
        # What was found clean is left so.
        engine.shutdown(engine.previous_broker_epoch)


def _context_of(event: RequestEvent) -> RequestContext:
    principal, arrived_ms = event.principal, monotonic_ms() - event.age_ms
    return RequestContext(
        event.connection_id,
        event.api_key,
        event.api_version,
        event.client_id,
        event.listener,
        ANONYMOUS if principal is None else Principal(*principal),
        event.address,
        event.on_controller,
        arrived_ms,
        arrived_ms + event.timeout_ms,
    )


def _reason(error: Exception) -> str:
    """In words, where the error has some; else what was raised, whose traceback is in the log."""
    in_words = NodeFailedError, RaftStoppedError, MetadataLogError, StateFailedError, OSError
    return str(error) if isinstance(error, in_words) else f"the replica stopped: {type(error).__name__}: {error}"
