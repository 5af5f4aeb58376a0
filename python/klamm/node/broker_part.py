"""The broker half of a node: its life cycle at the controller, groups, and client listeners."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klamm.broker.producer_ids import Block, ProducerIds
from klamm.config.node_config import NodeConfig
from klamm.controller.operations.nodes import ALLOCATE_PRODUCER_IDS
from klamm.node.boot import Booted
from klamm.node.controller.assignments import Assignments
from klamm.node.controller.isr_updates import IsrUpdates
from klamm.node.controller.registration import Registration, lifecycle
from klamm.node.coordinators.appends import Appends
from klamm.node.groups import NodeGroups
from klamm.node.publishing import Take
from klamm.node.share_states import NodeShareStates
from klamm.node.transactions import NodeTransactions
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import CORDONED_LOG_DIRS_LEVEL, SUPPORTED_FEATURES
from klamm.protocol.messages import registration as messages

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm._engine.metadata import Delta, Image
    from klamm.client.peer import Versions
    from klamm.node.dynamic_listeners import DynamicListeners
    from klamm.node.metadata import Metadata
    from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

CreateTopics = Callable[["CreateTopicsRequest"], "Awaitable[CreateTopicsResponse]"]

log = logging.getLogger("klamm.node")


class BrokerPart:
    """One broker, from its registration to its controlled shutdown."""

    def __init__(
        self,
        config: NodeConfig,
        booted: Booted,
        metadata: Metadata,
        *,
        incarnation_id: bytes,
        image: Callable[[], Image],
        on_fault: Callable[[Exception], None],
        conditions: Conditions | None,
    ) -> None:
        """`conditions`: those of the node of an embedded cluster."""
        self._config, self._engine, self._listeners = config, booted.engine, booted.listeners
        self._directory_ids, self._cluster_id = booted.directory_ids, booted.cluster_id
        self._controller, self._incarnation_id = metadata.active_controller, incarnation_id
        self._is_serving = False
        self._is_unfenced_in_image = asyncio.Event()
        """Set when the served image contains this incarnation of the broker, unfenced."""
        self._dynamic_listeners: DynamicListeners | None = None
        self._cordoned_log_dirs: tuple[bytes, ...] = ()
        self._creating: set[str] = set()
        self._leaving: set[int] = set()
        """Brokers in a controlled shutdown."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.appends = Appends()
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.transactions = NodeTransactions(
            config,
            booted.engine,
            image,
            self.appends,
            producer_ids=self.producer_ids,
            groups=lambda: self.groups.coordinator,
            conditions=conditions,
        )
        self.share_states = NodeShareStates(
            config, booted.engine, image, self.appends, create=self.create_internal_topic, conditions=conditions
        )
        self.groups = NodeGroups(
            config,
            booted.engine,
            image,
            self.appends,
            verify=self.transactions.verify,
            share_states=self.share_states,
        )
        self._internal_topics = {one.topic: one for one in (self.groups, self.transactions, self.share_states)}
        self._registration = self._new_registration(metadata, on_fault)
        self._controller.follow_versions(self._on_controller_versions)
        self._assignments = Assignments(
            config.node_id,
            self._controller,
            lambda: self.broker_epoch,
            booted.engine.on_directories_assigned,
        )
        self.isr_updates = IsrUpdates(booted.engine, self._controller, lambda: self.broker_epoch)

    def _new_registration(self, metadata: Metadata, on_fault: Callable[[Exception], None]) -> Registration:
        milliseconds = self._config.integer
        return Registration(
            lifecycle(
                milliseconds("broker.heartbeat.interval.ms"),
                milliseconds("broker.session.timeout.ms"),
                milliseconds("initial.broker.registration.timeout.ms"),
                milliseconds("log.dir.failure.timeout.ms"),
            ),
            self._controller,
            self._registration_request,
            lambda: metadata.applied_offset,
            on_fault,
            ask_timeout_ms=milliseconds("broker.heartbeat.interval.ms"),
            foreign_cluster=metadata.foreign_cluster,
            is_majority_down=metadata.raft.is_majority_down,
            on_pause=self._on_pause,
        )

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before it."""
        return self._registration.broker_epoch

    async def start(self) -> None:
        """Register, catch up with the metadata, wait until unfenced, and serve."""
        self._registration.start()
        await self._registration.registered.wait()
        # Assign directories before the controller elects leaders, so that it elects none in a missing directory.
        await self._assignments.start()
        self._registration.ready()
        await self._registration.running.wait()
        # The controller may be ahead of the served image, in which clients would not find this broker.
        await self._is_unfenced_in_image.wait()
        # Only now does the image say which partitions this incarnation leads.
        self._engine.open_the_rest(self._config.inter_broker_listener_name)
        for listener in self._config.client_listeners:
            self._engine.open(listener.name)
        self._is_serving = True
        if self._dynamic_listeners is not None:
            self._dynamic_listeners.serve()
        self.groups.start()
        self.transactions.start()
        self.share_states.start()

    # Events

    def _on_pause(self, pause_ms: int) -> None:
        self.groups.on_pause(pause_ms)
        self.transactions.on_pause(pause_ms)
        self.share_states.on_pause(pause_ms)

    @property
    def followers(self) -> dict[str, Take]:
        """The subscribers to the committed image after the engine serves it, by name."""
        return {
            "broker state": lambda image, _: self._check_unfenced(image),
            "group coordinator": self.groups.on_published,
            "transaction coordinator": self.transactions.on_published,
            "share coordinator": self.share_states.on_published,
            "broker registration": self._on_published,
        }

    def _on_published(self, image: Image, delta: Delta) -> None:
        for broker_id in delta.changed_brokers:
            broker = image.broker(broker_id)
            is_leaving = broker is not None and broker.in_controlled_shutdown and not broker.fenced
            (self._leaving.add if is_leaving else self._leaving.discard)(broker_id)
        is_supported = (image.metadata_version or 0) >= CORDONED_LOG_DIRS_LEVEL
        self._registration.on_cordoned(self._cordoned_log_dirs if is_supported else None)
        self._registration.on_published(is_another_leaving=bool(self._leaving - {self._config.node_id}))

    def assign(self, unassigned: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Report the replicas that `Engine.publish` found outside the directory of the image to the controller."""
        self._assignments.add(unassigned)

    def report_directories(self) -> None:
        """Report the replicas that move, or have moved, to other log directories to the controller."""
        self._assignments.add(self._engine.take_directories())

    def _check_unfenced(self, image: Image) -> None:
        own = image.broker(self._config.node_id)
        if own is not None and own.epoch == self.broker_epoch and not own.fenced:
            self._is_unfenced_in_image.set()

    def follow_configs(self, values: Mapping[str, str]) -> None:
        """Apply the node's configuration: the values of the file, and those that were set at run time."""
        entries = [entry.strip() for entry in values.get("cordoned.log.dirs", "").split(",")]
        found = (directory_id for path, directory_id in self.directories.items() if path in entries or "*" in entries)
        self._cordoned_log_dirs = tuple(sorted(directory_id for directory_id in found if directory_id))
        if self._dynamic_listeners is None and not _has_plain_listeners(self._config, values):
            from klamm.node.dynamic_listeners import DynamicListeners

            self._dynamic_listeners = DynamicListeners(self._config, self._engine, self._listeners)
            if self._is_serving:
                self._dynamic_listeners.serve()
        if self._dynamic_listeners is not None:
            self._dynamic_listeners.follow(values)

    def on_log_dir_failed(self, directory_id: bytes) -> None:
        """A log directory failed."""
        self._registration.on_log_dir_failed(directory_id)

    def _on_controller_versions(self, versions: Versions | None) -> None:
        """Announce in ApiVersions no version of a forwarded API that the active controller does not support."""
        self._engine.set_controller_apis(versions)

    @property
    def directories(self) -> dict[str, bytes | None]:
        """The log directories by absolute path, as configured, with their ids; None: it could not be read."""
        return {os.path.abspath(path): self._directory_ids.get(path) for path in self._config.partition_dirs}

    # Requests to the controller

    def _registration_request(self) -> messages.BrokerRegistrationRequest:
        directory_ids = (self._directory_ids.get(path) for path in self._config.log_dirs)
        return messages.BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=tuple(
                messages.Listener(one.name, one.host, one.port or self._listeners[one.name][1])
                for one in self._config.advertised_brokers
            ),
            features=messages.supported(SUPPORTED_FEATURES),
            rack=self._config.optional_text("broker.rack"),
            log_dirs=tuple(sorted(found for found in directory_ids if found)),
            previous_broker_epoch=self._engine.previous_broker_epoch,
        )

    async def _allocate_producer_ids(self) -> Block:
        request = messages.AllocateProducerIdsRequest(self._config.node_id, self.broker_epoch)
        answer = await self._controller.ask(ALLOCATE_PRODUCER_IDS, request)
        if answer.error_code is not ErrorCode.NONE:
            raise KafkaError(answer.error_code)
        return Block(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    def auto_create(self, name: str, create: CreateTopics) -> None:
        """Create a topic that a client asked for and that does not exist; `create` asks in that client's name."""
        from klamm.protocol.messages.topics import CreatableTopic

        if name in self._internal_topics:
            self.create_internal_topic(name)
        else:
            self._create(CreatableTopic(name, -1, -1), create)

    def create_internal_topic(self, name: str) -> None:
        """Create an internal topic, such as `__consumer_offsets`."""
        self._create(self._internal_topics[name].new_topic(), self._create_as_broker)

    async def _create_as_broker(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        from klamm.controller.operations.topics import CREATE_TOPICS

        return await self._controller.ask(CREATE_TOPICS, request)

    def _create(self, topic: CreatableTopic, create: CreateTopics) -> None:
        """Send a CreateTopics to the controller, unless one for this topic is in flight."""
        if topic.name in self._creating:
            return
        self._creating.add(topic.name)
        self.in_background(self._create_now(topic, create))

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that no request waits for, until the broker is closed."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_now(self, topic: CreatableTopic, create: CreateTopics) -> None:
        from klamm.protocol.messages.topics import CreateTopicsRequest

        try:
            [result] = (await create(CreateTopicsRequest((topic,), self._config.integer("request.timeout.ms")))).topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                log.warning("topic %s was not created: %s", topic.name, result.error_message or result.error_code.name)
        except Exception:  # no client waits for the creation; its next Metadata request starts another
            log.exception("topic %s was not created", topic.name)
        finally:
            self._creating.discard(topic.name)

    # Stop

    async def shut_down(self, timeout_s: float) -> None:
        """Controlled shutdown: wait up to `timeout_s` for the controller's permission. 0 skips it."""
        if timeout_s > 0:
            await self._registration.shut_down(timeout_s)
        self._registration.stop()

    def close(self) -> None:
        """Cancel all requests and tasks."""
        self._registration.stop()
        for task in list(self._tasks):
            task.cancel()
        self.groups.close()
        self.transactions.close()
        self.share_states.close()
        self.producer_ids.close()
        self._assignments.close()
        self.isr_updates.close()


def _has_plain_listeners(config: NodeConfig, values: Mapping[str, str]) -> bool:
    """Whether the listeners come only from the file, without settings of their own: nothing can change at run time."""
    return (
        values.get("listeners") == config.given.get("listeners")
        and len(config.client_listeners) == 1
        and not any(name.startswith("listener.name.") for name in values)
    )
