"""The group coordinator of a node, created when a request or a partition of `__consumer_offsets` first needs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

from klamm._engine.config import find_config_key
from klamm._engine.metadata import Delta, Image
from klamm._engine.node import Engine
from klamm.node.coordinators.topic_coordinator import TopicCoordinator

if TYPE_CHECKING:
    from klamm.config.node_config import NodeConfig
    from klamm.coordinator.groups.config import GroupConfig
    from klamm.coordinator.groups.driver import GroupCoordinator, VerifyTransaction
    from klamm.node.coordinators.appends import Appends
    from klamm.protocol.messages.topics import CreatableTopic

GROUPS_TOPIC: Final = "__consumer_offsets"


class NodeGroups(TopicCoordinator["GroupCoordinator"]):
    """Creates the coordinator and passes metadata changes to it: partitions that this node leads, deleted topics."""

    topic: ClassVar[str] = GROUPS_TOPIC

    def __init__(
        self,
        config: NodeConfig,
        engine: Engine,
        image: Callable[[], Image],
        appends: Appends,
        verify: VerifyTransaction,
    ) -> None:
        """`verify` asks the coordinator of a transaction before offsets become part of it."""
        super().__init__(config, engine, image, appends)
        self._verify = verify

    @cached_property
    def config(self) -> GroupConfig:
        """The configuration of the coordinator."""
        from klamm.coordinator.groups.config import GroupConfig

        names = {name: name.replace("_", ".") for name in GroupConfig.__dataclass_fields__}
        known = {name: key for name, key in names.items() if find_config_key("node", key) is not None}
        return GroupConfig(**{name: self._config.integer(key) for name, key in known.items()})

    def _make(self) -> GroupCoordinator:
        from klamm.coordinator.groups.driver import GroupCoordinator

        log = self._log(
            codec=self._config.integer("offsets.topic.compression.codec"),
            load_bytes=self._config.integer("offsets.load.buffer.size"),
        )
        return GroupCoordinator(self.config, log, self.config.offsets_topic_num_partitions, verify=self._verify)

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

    def _on_published(self, image: Image, delta: Delta) -> None:
        if delta.deleted_topics:
            self.coordinator.on_topics_deleted([(name, topic_id) for topic_id, name in delta.deleted_topics])
