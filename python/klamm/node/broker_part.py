"""What a broker has besides the metadata that every node follows: its life at the controller, groups, listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klamm.broker.producer_ids import Block, ProducerIds
from klamm.config.node_config import NodeConfig
from klamm.controller.operations.nodes import ALLOCATE_PRODUCER_IDS
from klamm.node.boot import Booted
from klamm.node.controller.assignments import Assignments
from klamm.node.controller.registration import Registration, lifecycle
from klamm.node.groups import GROUPS_TOPIC, NodeGroups
from klamm.node.publishing import Take
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.messages import registration as messages

if TYPE_CHECKING:
    from klamm._engine import Image
    from klamm.client.peer import Versions
    from klamm.node.dynamic_listeners import DynamicListeners
    from klamm.node.metadata import Metadata
    from klamm.protocol.messages.topics import CreatableTopic

log = logging.getLogger("klamm.node")


class BrokerPart:
    """One broker: from its registration to its controlled shutdown."""

    def __init__(
        self,
        config: NodeConfig,
        booted: Booted,
        metadata: Metadata,
        *,
        incarnation_id: bytes,
        image: Callable[[], Image],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._config, self._engine, self._listeners = config, booted.engine, booted.listeners
        self._directory_ids, self._cluster_id = booted.directory_ids, booted.cluster_id
        self._controller, self._incarnation_id = metadata.active_controller, incarnation_id
        self._is_serving = False
        self._is_shown = asyncio.Event()
        """The image that is served has this run of the broker, unfenced."""
        self._dynamic_listeners: DynamicListeners | None = None
        self._creating: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.groups = NodeGroups(config, booted.engine, image)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self._registration = Registration(
            lifecycle(
                config.integer("broker.heartbeat.interval.ms"),
                config.integer("broker.session.timeout.ms"),
                config.integer("initial.broker.registration.timeout.ms"),
            ),
            self._controller,
            self._registration_request,
            lambda: metadata.applied_offset,
            on_fault,
            ask_timeout_ms=config.integer("broker.heartbeat.interval.ms"),
            log_dir_failure_timeout_ms=config.integer("log.dir.failure.timeout.ms"),
            foreign_cluster=metadata.foreign_cluster,
            is_majority_gone=metadata.raft.is_majority_gone,
            on_pause=self.groups.on_pause,
        )
        self._controller.follow_versions(self._on_controller_versions)
        self._assignments = Assignments(config.node_id, self._controller, lambda: self.broker_epoch)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before there is one."""
        return self._registration.broker_epoch

    async def start(self) -> None:
        """Register, catch up, be unfenced, and serve."""
        self._registration.start()
        await self._registration.registered.wait()
        # Before the controller elects: a replica in a directory that is no longer there gets no leader.
        await self._assignments.start()
        self._registration.ready()
        await self._registration.running.wait()
        # The controller may be ahead of this image, with which clients would see no broker.
        await self._is_shown.wait()
        # Not before the image says what this run of the broker leads.
        self._engine.open_the_rest()
        for listener in self._config.client_listeners:
            self._engine.open(listener.name)
        self._is_serving = True
        if self._dynamic_listeners is not None:
            self._dynamic_listeners.serve()
        self.groups.start()

    # What happens

    @property
    def followers(self) -> dict[str, Take]:
        """What follows the committed image once the engine serves it, by name."""
        return {
            "broker state": lambda image, _: self._see_itself(image),
            "group coordinator": self.groups.on_published,
            "broker registration": lambda *_: self._registration.on_published(),
        }

    def assign(self, unassigned: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Tell the controller what lies elsewhere than the image says, as `Engine.publish` gave it."""
        self._assignments.add(unassigned)

    def _see_itself(self, image: Image) -> None:
        own = image.broker(self._config.node_id)
        if own is not None and own.epoch == self.broker_epoch and not own.fenced:
            self._is_shown.set()

    def follow_configs(self, values: Mapping[str, str]) -> None:
        """Take the node's values: the file's, and what was set while it ran."""
        if self._dynamic_listeners is None and not _has_plain_listeners(self._config, values):
            from klamm.node.dynamic_listeners import DynamicListeners

            self._dynamic_listeners = DynamicListeners(self._config, self._engine, self._listeners)
            if self._is_serving:
                self._dynamic_listeners.serve()
        if self._dynamic_listeners is not None:
            self._dynamic_listeners.follow(values)

    def on_log_dir_failed(self, directory_id: bytes) -> None:
        """A log directory is out of use."""
        self._registration.on_log_dir_failed(directory_id)

    def _on_controller_versions(self, versions: Versions | None) -> None:
        """ApiVersions announces no version of a forwarded request that the active controller would refuse."""
        self._engine.set_controller_apis(versions)

    # What the broker asks of the controller

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

    def auto_create(self, names: Iterable[str]) -> None:
        """Clients asked for topics that are not there."""
        from klamm.protocol.messages.topics import CreatableTopic

        for name in names:
            if name == GROUPS_TOPIC:
                self.create_internal_topic(name)
            else:
                self._create(CreatableTopic(name, -1, -1))

    def create_internal_topic(self, name: str) -> None:
        """Ask for the topic of the committed offsets."""
        from klamm.protocol.messages.topics import CreatableTopic, CreatableTopicConfig

        config = self.groups.config
        settings = tuple(CreatableTopicConfig(*pair) for pair in config.offsets_topic_configs().items())
        topic = CreatableTopic(
            name, config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, (), settings
        )
        self._create(topic)

    def _create(self, topic: CreatableTopic) -> None:
        """Ask the controller for a topic, unless that is under way."""
        if topic.name in self._creating:
            return
        self._creating.add(topic.name)
        task = asyncio.ensure_future(self._create_now(topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_now(self, topic: CreatableTopic) -> None:
        from klamm.controller.operations.topics import CREATE_TOPICS
        from klamm.protocol.messages.topics import CreateTopicsRequest

        try:
            request = CreateTopicsRequest((topic,), self._config.integer("request.timeout.ms"))
            [result] = (await self._controller.ask(CREATE_TOPICS, request)).topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                log.warning("topic %s was not created: %s", topic.name, result.error_message or result.error_code.name)
        except Exception:
            log.exception("topic %s was not created", topic.name)
        finally:
            self._creating.discard(topic.name)

    # Stop

    async def shut_down(self, timeout_s: float) -> None:
        """Ask the controller for leave, for `timeout_s` at most; not at all for 0."""
        if timeout_s > 0:
            await self._registration.shut_down(timeout_s)
        self._registration.stop()

    def close(self) -> None:
        """End all that is under way."""
        self._registration.stop()
        for task in list(self._tasks):
            task.cancel()
        self.groups.close()
        self.producer_ids.close()
        self._assignments.close()


def _has_plain_listeners(config: NodeConfig, values: Mapping[str, str]) -> bool:
    """Whether the listeners are the file's, with nothing of their own: then there is nothing to follow."""
    return (
        values.get("listeners") == config.given.get("listeners")
        and len(config.client_listeners) == 1
        and not any(name.startswith("listener.name.") for name in values)
    )
