"""The share coordinator of a node, created when a request or a partition of `__share_group_state` first needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Final

from klamm._engine.metadata import Delta, Image
from klamm._engine.node import Engine, ShareStateEvent
from klamm.node.coordinators.topic_coordinator import TopicCoordinator
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm.config.node_config import NodeConfig
    from klamm.coordinator.share.config import ShareConfig
    from klamm.coordinator.share.driver import ShareCoordinator
    from klamm.node.coordinators.appends import Appends
    from klamm.node.coordinators.end_offsets import EndOffsets
    from klamm.node.coordinators.other_brokers import OtherBrokers
    from klamm.node.coordinators.persister import Persister
    from klamm.protocol.messages.share_state import SharePartitionKey
    from klamm.protocol.messages.topics import CreatableTopic

log = logging.getLogger(__name__)

SHARE_STATES_TOPIC: Final = "__share_group_state"
FEATURE: Final = "share.version"
PRUNED: Final = (
    "kafka.server:type=share-coordinator-metrics,name=last-pruned-offset,topic={topic},partition={partition}"
)


class NodeShareStates(TopicCoordinator["ShareCoordinator"]):
    """Creates the coordinator and passes metadata changes to it: partitions that this node leads, deleted topics."""

    topic: ClassVar[str] = SHARE_STATES_TOPIC

    def __init__(
        self,
        config: NodeConfig,
        engine: Engine,
        image: Callable[[], Image],
        appends: Appends,
        *,
        create: Callable[[str], None],
        conditions: Conditions | None,
    ) -> None:
        """`create` sends a CreateTopics for an internal topic, and does not wait.

        `conditions`: those of the node of an embedded cluster.
        """
        super().__init__(config, engine, image, appends)
        self._create, self._conditions = create, conditions
        self._answers: list[tuple[int, int, bytes]] = []
        """The results of this turn of the loop, for the engine."""

    @cached_property
    def config(self) -> ShareConfig:
        """The configuration of the coordinator."""
        from klamm.coordinator.share.config import ShareConfig

        integer = self._config.integer
        return ShareConfig(
            updates_per_snapshot=integer("share.coordinator.snapshot.update.records.per.snapshot"),
            prune_interval_ms=integer("share.coordinator.state.topic.prune.interval.ms"),
            cold_snapshot_interval_ms=integer("share.coordinator.cold.partition.snapshot.interval.ms"),
            write_timeout_ms=integer("share.coordinator.write.timeout.ms"),
        )

    @property
    def is_enabled(self) -> bool:
        """Whether share.version is at least 1."""
        return self._image().feature(FEATURE) >= 1

    def _make(self) -> ShareCoordinator:
        from klamm.coordinator.share.driver import ShareCoordinator

        integer = self._config.integer
        return ShareCoordinator(
            self.config,
            self._log(
                codec=integer("share.coordinator.state.topic.compression.codec"),
                load_bytes=integer("share.coordinator.load.buffer.size"),
                is_compacted=False,
            ),
            integer("share.coordinator.state.topic.num.partitions"),
            has_partition=self._has_partition,
            is_enabled=lambda: self.is_enabled,
        )

    def _has_partition(self, topic_id: bytes, partition: int) -> bool:
        return self._image().partition(topic_id, partition) is not None

    # The states of other partitions

    @cached_property
    def persister(self) -> Persister:
        """Calls the share coordinators of share partitions, wherever they are."""
        from klamm.node.coordinators.persister import Persister

        return Persister(
            self._config.node_id,
            self._broker_of,
            lambda: self.coordinator,
            lambda: self._others,
            create_topic=self._create_topic,
        )

    def on_call(self, event: ShareStateEvent) -> None:
        """A share partition of this node reads or writes its state."""
        try:
            self.persister.answer(event.api_key, event.body, partial(self._answer, event.request_id))
        except Exception:  # the share partition must not wait forever
            log.exception("the state of a share partition could not be read or written")
            self._answer(event.request_id, ErrorCode.UNKNOWN_SERVER_ERROR, b"")

    def _answer(self, request_id: int, code: ErrorCode, answer: bytes) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._pass_answers)
        self._answers.append((request_id, code, answer))

    def _pass_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._engine.share_states_answered(answers)

    @cached_property
    def end_offsets(self) -> EndOffsets:
        """Asks the leaders of partitions for their end offsets, for the lag of share groups."""
        from klamm.node.coordinators.end_offsets import EndOffsets

        return EndOffsets(self._config.node_id, self._engine, self._image, lambda: self._others)

    @cached_property
    def _others(self) -> OtherBrokers:
        from klamm.node.coordinators.other_brokers import OtherBrokers

        return OtherBrokers(self._config, self._image, self._conditions)

    def _broker_of(self, key: SharePartitionKey) -> int | None:
        leader = self._image().leader(self.topic, self.partition_for(key.coordinator_key()))
        is_here = leader == self._config.node_id
        return leader if leader is None or is_here or self._others.is_reachable(leader) else None

    def _create_topic(self) -> None:
        if self._image().topic_id(self.topic) is None:
            self._create(self.topic)

    def on_published(self, image: Image, delta: Delta) -> None:
        """A newer image is committed."""
        super().on_published(image, delta)
        if delta.changed_brokers and "_others" in self.__dict__:
            self._others.on_published(image)

    def close(self) -> None:
        """Unload all partitions, and close the connections to other brokers."""
        super().close()
        if "persister" in self.__dict__:
            self.persister.close()
        if "_others" in self.__dict__:
            self._others.close()

    def partition_for_key(self, key: str) -> int:
        """The partition for the key of a FindCoordinator. Raises ValueError for a key that is none."""
        from klamm.protocol.messages.share_state import SharePartitionKey

        return self.partition_for(SharePartitionKey.parse(key).coordinator_key())

    def new_topic(self) -> CreatableTopic:
        """`__share_group_state`."""
        from klamm.protocol.messages.topics import CreatableTopic, CreatableTopicConfig

        integer = self._config.integer
        settings = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": str(integer("share.coordinator.state.topic.segment.bytes")),
            "min.insync.replicas": str(integer("share.coordinator.state.topic.min.isr")),
            "retention.ms": "-1",
        }
        return CreatableTopic(
            self.topic,
            integer("share.coordinator.state.topic.num.partitions"),
            integer("share.coordinator.state.topic.replication.factor"),
            (),
            tuple(CreatableTopicConfig(*pair) for pair in settings.items()),
        )

    def counters(self) -> dict[str, int]:
        """The counters of the coordinator by name."""
        from klamm.coordinator.runtime.counts import RuntimeCounts
        from klamm.coordinator.share.counts import ShareCounts

        counts, runtime = ShareCounts(), RuntimeCounts()
        if self._is_made:
            counts, runtime = self.coordinator.counts, self.coordinator.runtime.counts
        return counts.named() | runtime.named("klamm.coordinator:type=ShareStates,name=")

    def gauges(self) -> dict[str, int]:
        """The numbers of the moment by name: partitions by state, and how far each was pruned that this node leads."""
        from klamm.coordinator.runtime.counts import partition_gauges

        hosted = self.coordinator.runtime.shards.all() if self._is_made else ()
        pruned = self.coordinator.last_pruned_offsets if self._is_made else {}
        names = {PRUNED.format(topic=self.topic, partition=partition): offset for partition, offset in pruned.items()}
        return names | partition_gauges("share-coordinator-metrics", (one.state for one in hosted))

    def _on_published(self, image: Image, delta: Delta) -> None:
        if delta.deleted_topics:
            self.coordinator.on_topics_deleted([topic_id for topic_id, _ in delta.deleted_topics])
