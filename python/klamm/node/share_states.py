"""The share coordinator of a node, created when a request or a partition of `__share_group_state` first needs it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

from klamm._engine.metadata import Delta, Image
from klamm.node.coordinators.topic_coordinator import TopicCoordinator

if TYPE_CHECKING:
    from klamm.coordinator.share.config import ShareConfig
    from klamm.coordinator.share.driver import ShareCoordinator
    from klamm.protocol.messages.topics import CreatableTopic

SHARE_STATES_TOPIC: Final = "__share_group_state"
FEATURE: Final = "share.version"


class NodeShareStates(TopicCoordinator["ShareCoordinator"]):
    """Creates the coordinator and passes metadata changes to it: partitions that this node leads, deleted topics."""

    topic: ClassVar[str] = SHARE_STATES_TOPIC

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
        return self._image().features().get(FEATURE, 0) >= 1

    def _make(self) -> ShareCoordinator:
        from klamm.coordinator.share.driver import ShareCoordinator

        integer = self._config.integer
        return ShareCoordinator(
            self.config,
            self._log(
                codec=integer("share.coordinator.state.topic.compression.codec"),
                load_bytes=integer("share.coordinator.load.buffer.size"),
            ),
            integer("share.coordinator.state.topic.num.partitions"),
            has_partition=self._has_partition,
            is_enabled=lambda: self.is_enabled,
        )

    def _has_partition(self, topic_id: bytes, partition: int) -> bool:
        return self._image().partition(topic_id, partition) is not None

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

        runtime = self.coordinator.runtime.counts if self._is_made else RuntimeCounts()
        return runtime.named("klamm.coordinator:type=ShareStates,name=")

    def _on_published(self, image: Image, delta: Delta) -> None:
        if delta.deleted_topics:
            self.coordinator.on_topics_deleted([topic_id for topic_id, _ in delta.deleted_topics])
