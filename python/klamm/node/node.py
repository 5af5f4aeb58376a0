"""One node: its parts constructed, introduced to each other, started and stopped in order (ARCHITECTURE: start)."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm._engine import Engine, Image
from klamm.broker.producer_ids import Block, ProducerIds
from klamm.broker.request import RequestContext, monotonic_ms
from klamm.node.assignments import Assignments
from klamm.node.boot import Booted, Booting, known, supported_features
from klamm.node.config import NodeConfig
from klamm.node.dispatch import Dispatcher
from klamm.node.groups import GROUPS_TOPIC, NodeGroups
from klamm.node.handlers import Handlers
from klamm.node.metadata import Metadata
from klamm.node.registration import Registration, lifecycle
from klamm.protocol import registration as messages
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from klamm.coordinator.driver import GroupCoordinator
    from klamm.node.dynamic_listeners import DynamicListeners
    from klamm.node.quorum_view import QuorumView
    from klamm.protocol.topics import CreatableTopic

log = logging.getLogger("klamm.node")

EVENTS_AT_ONCE: Final = 128
SHUTDOWN_S: Final = 300.0
DRAIN_S: Final = 5.0
BROKER_RESOURCE: Final = 4
RequestEvent = tuple[int, int, int, int, str | None, str, str, bytes, int]
"""Handle, connection id, API key and version, client id, listener, peer, body, age in ms: see `Engine.drain`."""
FEATURES_WITHOUT_APIS: Final = ("group.version", "transaction.version", "share.version", "streams.version")
LOG_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class NodeFailedError(Exception):
    """The node stopped by itself; the message says why."""


class Node:
    """A broker and controller in one process. To be made, started and stopped on one loop's thread."""

    def __init__(self, config: NodeConfig, booting: Booting | None = None, *, is_volatile: bool = False) -> None:
        """With a boot that was begun, if there is one. Volatile: nobody wants the files back after a power cut."""
        self.config = config
        self._booting = booting
        self._is_volatile = is_volatile
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Said in the log where it happens; nobody has to ask for it.
        self.failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self.cluster_id = ""
        self.listeners: Mapping[str, tuple[str, int]] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._image = Image()
        self._is_first_image = True
        self._is_serving = False
        self._dynamic_listeners: DynamicListeners | None = None
        self._told_kraft_version: int | None = None
        self._engine: Engine | None = None
        self._incarnation_id = os.urandom(16)
        self._creating: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._controller_listeners = frozenset(config.controller_listener_names)

    # Start

    async def start(self) -> None:
        """Start, and return when the broker serves clients. Raises StorageError, OSError, NodeFailedError."""
        began = time.monotonic()
        booting, self._booting = self._booting or Booting(self.config, is_volatile=self._is_volatile), None
        booted = booting.finish()
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
        self._groups = NodeGroups(config, engine, lambda: self._image)
        self.metadata = Metadata(
            config,
            booted,
            incarnation_id=self._incarnation_id,
            is_volatile=self._is_volatile,
            on_published=self._on_published,
            on_fault=self._on_fault,
        )
        self._tell_features(engine)
        self._producer_ids = ProducerIds(self._allocate_producer_ids)
        self._dispatcher = Dispatcher(engine, self._handlers(engine))
        asyncio.get_running_loop().add_reader(engine.event_fd, self._on_events)
        self._registration = Registration(
            lifecycle(
                config.integer("broker.heartbeat.interval.ms"),
                config.integer("broker.session.timeout.ms"),
                config.integer("initial.broker.registration.timeout.ms"),
            ),
            self.metadata.controller,
            self._registration_request,
            lambda: self.metadata.applied_offset,
            self._on_fault,
            log_dir_failure_timeout_ms=config.integer("log.dir.failure.timeout.ms"),
        )
        self._assignments = Assignments(
            config.node_id, self.metadata.controller, lambda: self._registration.broker_epoch
        )
        self.metadata.start()
        await self._or_fail(self.metadata.is_active.wait())
        for listener in config.controller_listeners:
            engine.open(listener.name)
        self._registration.start()
        await self._or_fail(self._registration.registered.wait())
        # Before the controller elects: a replica in a directory that is no longer there gets no leader.
        await self._or_fail(self._assignments.start())
        self._registration.ready()
        await self._or_fail(self._registration.running.wait())
        # Not before the image says what this run of the broker leads.
        engine.open_the_rest()
        for listener in config.client_listeners:
            engine.open(listener.name)
        self._is_serving = True
        if self._dynamic_listeners is not None:
            self._dynamic_listeners.serve()
        self._groups.start()
        self._warn_of_features()

    def _tell_features(self, engine: Engine) -> None:
        """The levels that this node knows, and kraft.version, which is in no image."""
        kraft_version = self.metadata.kraft_version
        if kraft_version != self._told_kraft_version:
            self._told_kraft_version = kraft_version
            engine.set_supported_features(supported_features(), kraft_version)

    def _warn_of_features(self) -> None:
        """A directory that Kafka formatted may have features on whose APIs klamm does not have yet."""
        on = self._image.features()
        without_apis = [f"{name}={on[name]}" for name in FEATURES_WITHOUT_APIS if on.get(name)]
        if without_apis:
            log.warning("features are finalized whose APIs klamm does not have yet: %s", ", ".join(without_apis))

    async def _or_fail(self, waiting: Any) -> None:
        task = asyncio.ensure_future(waiting)
        await asyncio.wait({task, self.failed}, return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            task.cancel()
            self.failed.result()

    def _handlers(self, engine: Engine) -> Handlers:
        return Handlers(
            self.config,
            self.cluster_id,
            engine,
            lambda: self._image,
            self.metadata.controller,
            groups=lambda: self._groups.coordinator,
            producer_ids=self._producer_ids,
            quorum=self._quorum_view,
            raft=self.metadata.raft_requests,
            create_internal_topic=self._create_internal_topic,
        )

    @property
    def image(self) -> Image:
        """The committed image."""
        return self._image

    @property
    def engine(self) -> Engine:
        """The engine of a running node. Raises NodeFailedError."""
        return self._running()

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator of this broker."""
        return self._groups.coordinator

    def counters(self) -> dict[str, int]:
        """What the node has done since its start; see `klamm.node.counters`."""
        from klamm.node.counters import counters

        return counters(self._running(), self.metadata.log.native, self._groups.counts)

    def _running(self) -> Engine:
        if self._engine is None:
            raise NodeFailedError("the node is not running")
        return self._engine

    # What happens

    def _on_events(self) -> None:
        for kind, event in self._running().drain(EVENTS_AT_ONCE):
            match kind:
                case "request":
                    self._on_request(event)
                case "acked":
                    self._groups.on_acked(*event)
                case "auto_create":
                    for topic in event:
                        self._auto_create(topic)
                case "dir_failed":
                    self._on_log_dir_failed(event)
                case "log":
                    level, text = event
                    log.log(LOG_LEVELS[level], text)

    def _on_log_dir_failed(self, directory_id: bytes) -> None:
        """The others go on, unless it held the metadata log or there are none: then the node ends, as Kafka's does."""
        self._registration.on_log_dir_failed(directory_id)
        failures = {found: (path, cause) for path, found, cause, _ in self._running().log_dirs() if found is not None}
        path, cause = failures.get(directory_id, ("", None))
        if directory_id == self._directory_ids[self.config.metadata_log_dir]:
            self._on_fault(NodeFailedError(f"the metadata log's directory {path} is out of use: {cause}"))
        elif all(cause is not None for _, cause in failures.values()):
            self._on_fault(NodeFailedError(f"every log directory is out of use, {path} as the last: {cause}"))

    def _on_request(self, event: RequestEvent) -> None:
        handle, connection_id, api_key, api_version, client_id, listener, peer, body, age_ms = event
        on_controller = listener in self._controller_listeners
        arrived_ms = monotonic_ms() - age_ms
        context = RequestContext(
            connection_id, api_key, api_version, client_id, listener, peer, on_controller, arrived_ms
        )
        self._dispatcher.dispatch(handle, context, body)

    def _on_published(self, before: Image, image: Image) -> None:
        self._image = image
        engine = self._engine
        if engine is None:
            return  # Committed while the node closes: its next start shows it.
        self._assignments.add(engine.publish(image))
        delta = image.delta_since(before)
        # What a snapshot holds is in no delta.
        if self._is_first_image or any(place in delta.changed_configs for place in self._own_config_places):
            self._is_first_image = False
            self._apply_dynamic_configs(image)
        self._tell_features(engine)
        self._groups.on_published(image, delta)
        self._registration.on_published()

    @property
    def _own_config_places(self) -> tuple[tuple[int, str], ...]:
        return (BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(self.config.node_id))

    def _apply_dynamic_configs(self, image: Image) -> None:
        """Values for all brokers, then those for this one, lie over the file's."""
        merged = dict(self.config.given)
        for place in self._own_config_places:
            merged |= image.configs(*place)
        self._running().set_settings(known(merged))
        if self._dynamic_listeners is None and not _has_plain_listeners(self.config, merged):
            from klamm.node.dynamic_listeners import DynamicListeners

            self._dynamic_listeners = DynamicListeners(self.config, self._running(), self.listeners)
            if self._is_serving:
                self._dynamic_listeners.serve()
        if self._dynamic_listeners is not None:
            self._dynamic_listeners.follow(merged)

    def _on_fault(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(NodeFailedError(str(error)))

    # What the node asks of itself

    def _registration_request(self) -> messages.BrokerRegistrationRequest:
        ranges = SUPPORTED_FEATURES.items()
        return messages.BrokerRegistrationRequest(
            broker_id=self.config.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=tuple(
                messages.Listener(one.name, one.host, one.port or self.listeners[one.name][1])
                for one in self.config.advertised_brokers
            ),
            features=tuple(
                messages.SupportedFeature(name, found.min_version, found.max_version) for name, found in ranges
            ),
            rack=self.config.optional_text("broker.rack"),
            log_dirs=tuple(sorted(found for path in self.config.log_dirs if (found := self._directory_ids.get(path)))),
            previous_broker_epoch=self._running().previous_broker_epoch,
        )

    async def _allocate_producer_ids(self) -> Block:
        request = messages.AllocateProducerIdsRequest(self.config.node_id, self._registration.broker_epoch)
        answer = await self.metadata.controller.allocate_producer_ids(request)
        if answer.error_code is not ErrorCode.NONE:
            raise KafkaError(answer.error_code)
        return Block(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    def _quorum_view(self) -> QuorumView:
        from klamm.node.quorum_view import QuorumView

        def own_endpoints() -> list[tuple[str, str, int]]:
            return [(name, *self.listeners[name]) for name in self.config.controller_listener_names]

        return QuorumView(self.metadata.raft, self.config.node_id, own_endpoints)

    def _create_internal_topic(self, name: str) -> None:
        from klamm.protocol.topics import CreatableTopic, CreatableTopicConfig

        config = self._groups.config
        settings = tuple(CreatableTopicConfig(*pair) for pair in config.offsets_topic_configs().items())
        topic = CreatableTopic(
            name, config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, (), settings
        )
        self._create(topic)

    def _auto_create(self, name: str) -> None:
        from klamm.protocol.topics import CreatableTopic

        if name == GROUPS_TOPIC:
            self._create_internal_topic(name)
        else:
            self._create(CreatableTopic(name, -1, -1))

    def _create(self, topic: CreatableTopic) -> None:
        """Ask the controller for a topic, unless that is under way."""
        if topic.name in self._creating:
            return
        self._creating.add(topic.name)
        task = asyncio.ensure_future(self._create_now(topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_now(self, topic: CreatableTopic) -> None:
        from klamm.protocol.topics import CreateTopicsRequest

        try:
            request = CreateTopicsRequest((topic,), self.config.integer("request.timeout.ms"))
            [result] = (await self.metadata.controller.create_topics(request)).topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                log.warning("topic %s was not created: %s", topic.name, result.error_message or result.error_code.name)
        finally:
            self._creating.discard(topic.name)

    # Stop

    async def stop(self, timeout_s: float = SHUTDOWN_S) -> None:
        """Controlled shutdown: hand over, answer what is under way, close cleanly. A second call waits for it too."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(self._running(), timeout_s))
        await asyncio.shield(self._stopping)

    async def _stop(self, engine: Engine, timeout_s: float) -> None:
        engine.stop_accepting()
        if self.config.boolean("controlled.shutdown.enable") and not self.failed.done():
            await self._registration.shut_down(timeout_s)
        self._registration.stop()
        await self._dispatcher.drain(DRAIN_S)
        await self._close(engine)

    async def _close(self, engine: Engine) -> None:
        asyncio.get_running_loop().remove_reader(engine.event_fd)
        for task in list(self._tasks):
            task.cancel()
        self._groups.close()
        self._producer_ids.close()
        self._assignments.close()
        broker_epoch = self._registration.broker_epoch
        self._engine = None
        try:
            await asyncio.to_thread(engine.shutdown, broker_epoch)
            await self.metadata.close()
        finally:
            self._locks.release()

    async def _abandon(self, booted: Booted) -> None:
        """A start that failed leaves nothing behind."""
        self._locks.release()
        engine, self._engine = booted.engine, None
        asyncio.get_running_loop().remove_reader(engine.event_fd)
        if hasattr(self, "_registration"):
            self._registration.stop()
        if hasattr(self, "_assignments"):
            self._assignments.close()
        if hasattr(self, "metadata"):
            await self.metadata.close()
        else:
            booted.log.close()
        # What was found clean is left so.
        engine.shutdown(engine.previous_broker_epoch)


def _has_plain_listeners(config: NodeConfig, values: Mapping[str, str]) -> bool:
    """Whether the listeners are the file's, with nothing of their own: then there is nothing to follow."""
    return (
        values.get("listeners") == config.given.get("listeners")
        and len(config.client_listeners) == 1
        and not any(name.startswith("listener.name.") for name in values)
    )
