"""The group coordinator of a node, created when a request or a partition of `__consumer_offsets` first needs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from klamm._engine.config import find_config_key
from klamm._engine.metadata import Delta, Image
from klamm._engine.node import Engine
from klamm.node.coordinators.topic_coordinator import TopicCoordinator
from klamm.protocol.features import GROUP_VERSION, STREAMS_VERSION

if TYPE_CHECKING:
    from klamm.config.node_config import NodeConfig
    from klamm.coordinator.groups.config import GroupConfig
    from klamm.coordinator.groups.driver import GroupCoordinator, VerifyTransaction
    from klamm.node.coordinators.appends import Appends
    from klamm.node.share_states import NodeShareStates
    from klamm.node.views.group_topics import GroupTopics
    from klamm.protocol.messages.topics import CreatableTopic

GROUPS_TOPIC: Final = "__consumer_offsets"
CONSUMER_GROUPS_LEVEL: Final = 1
"""The level of group.version from which on there are consumer groups (KIP-848)."""
STREAMS_GROUPS_LEVEL: Final = 1
"""The level of streams.version from which on there are streams groups (KIP-1071)."""


class NodeGroups(TopicCoordinator["GroupCoordinator"]):
    """Creates the coordinator and passes metadata changes to it: partitions that this node leads, deleted topics."""

    topic: ClassVar[str] = GROUPS_TOPIC

    def __init__(
        self,
        config: NodeConfig,
        engine: Engine,
        image: Callable[[], Image],
        appends: Appends,
        *,
        verify: VerifyTransaction,
        share_states: NodeShareStates,
    ) -> None:
        """`verify` asks the coordinator of a transaction before offsets become part of it.

        `share_states` has what calls the share coordinators.
        """
        super().__init__(config, engine, image, appends)
        self._verify, self._share_states = verify, share_states

    @cached_property
    def config(self) -> GroupConfig:
        """The configuration of the coordinator."""
        from klamm.coordinator.groups.config import GroupConfig

        texts: dict[str, Any] = {
            "group_consumer_assignors": tuple(map(_assignor, self._config.entries("group.consumer.assignors"))),
            "group_share_assignors": tuple(map(_assignor, self._config.entries("group.share.assignors"))),
            "group_consumer_migration_policy": self._config.text("group.consumer.migration.policy").lower(),
        }
        names = {name: name.replace("_", ".") for name in GroupConfig.__dataclass_fields__ if name not in texts}
        known = {name: key for name, key in names.items() if find_config_key("node", key) is not None}
        numbers: dict[str, Any] = {name: self._config.integer(key) for name, key in known.items()}
        return GroupConfig(**numbers, **texts)

    def _make(self) -> GroupCoordinator:
        from klamm.coordinator.groups.driver import GroupCoordinator
        from klamm.node.views.group_topics import group_configs

        log = self._log(
            codec=self._config.integer("offsets.topic.compression.codec"),
            load_bytes=self._config.integer("offsets.load.buffer.size"),
        )
        return GroupCoordinator(
            self.config,
            log,
            self.config.offsets_topic_num_partitions,
            draw_uuid=self._draw_uuid,
            verify=self._verify,
            topics=self._topics,
            group_configs=group_configs(self._image),
            persister=self._share_states.persister,
            end_offsets=self._share_states.end_offsets,
        )

    @property
    def _draw_uuid(self) -> Callable[[], str]:
        from klamm.coordinator.groups.driver import draw_uuid

        return draw_uuid

    @cached_property
    def _topics(self) -> GroupTopics:
        from klamm.node.views.group_topics import GroupTopics

        return GroupTopics(self._image)

    @cached_property
    def _protocols(self) -> frozenset[str]:
        """Each heartbeat asks for one."""
        return frozenset(self._config.entries("group.coordinator.rebalance.protocols"))

    def has_consumer_groups(self) -> bool:
        """Whether consumer groups are enabled: by group.version, and on this broker."""
        return "consumer" in self._protocols and self._image().feature(GROUP_VERSION) >= CONSUMER_GROUPS_LEVEL

    def has_streams_groups(self) -> bool:
        """Whether streams groups are enabled: by streams.version, and on this broker."""
        return "streams" in self._protocols and self._image().feature(STREAMS_VERSION) >= STREAMS_GROUPS_LEVEL

    def new_topic(self) -> CreatableTopic:
        """`__consumer_offsets`."""
        from klamm.protocol.messages.topics import CreatableTopic, CreatableTopicConfig

        config = self.config
        settings = tuple(CreatableTopicConfig(*pair) for pair in config.offsets_topic_configs().items())
        return CreatableTopic(
            self.topic, config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, (), settings
        )

    def counters(self) -> dict[str, int]:
        """The counters of the coordinator by name."""
        from klamm.coordinator.groups.counts import GroupCounts
        from klamm.coordinator.runtime.counts import RuntimeCounts

        groups, runtime = GroupCounts(), RuntimeCounts()
        if self._is_made:
            groups, runtime = self.coordinator.counts, self.coordinator.runtime.counts
        return groups.named() | runtime.named("klamm.coordinator:type=Groups,name=")

    def gauges(self) -> dict[str, int]:
        """The numbers of the moment by name: groups by kind and state, committed offsets, and partitions by state."""
        from klamm.coordinator.groups.counts import group_gauges
        from klamm.coordinator.runtime.counts import partition_gauges

        groups = self.coordinator.gauges() if self._is_made else group_gauges((), 0)
        hosted = self.coordinator.runtime.shards.all() if self._is_made else ()
        return groups | partition_gauges("group-coordinator-metrics", (one.state for one in hosted))

    def _on_published(self, image: Image, delta: Delta) -> None:
        created = [name for _, name in delta.created_topics]
        changed = {name for _, name, _ in delta.changed_topics}.union(
            created, (name for _, name in delta.deleted_topics)
        )
        if changed:
            self._topics.forget(changed)
            self.coordinator.on_metadata(changed, created=bool(created))
        if delta.deleted_topics:
            self.coordinator.on_topics_deleted([(name, topic_id) for topic_id, name in delta.deleted_topics])


ASSIGNOR_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple",
}


def _assignor(name: str) -> str:
    """The name of an assignor that is configured by its name or by Kafka's class."""
    return ASSIGNOR_CLASSES.get(name, name)
