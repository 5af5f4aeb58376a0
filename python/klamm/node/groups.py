"""The group coordinator of a node, created when a request or a partition of `__consumer_offsets` first needs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

from klamm._engine.config import find_config_key
from klamm._engine.metadata import Delta, Image
from klamm._engine.node import Engine

if TYPE_CHECKING:
    from klamm.config.node_config import NodeConfig
    from klamm.coordinator.groups.config import GroupConfig
    from klamm.coordinator.groups.driver import GroupCoordinator
    from klamm.node.views.coordinator_log import EngineCoordinatorLog

GROUPS_TOPIC: Final = "__consumer_offsets"


class NodeGroups:
    """Creates the coordinator and passes metadata changes to it: partitions that this node leads, deleted topics."""

    def __init__(self, config: NodeConfig, engine: Engine, image: Callable[[], Image]) -> None:
        self._config, self._engine, self._image = config, engine, image
        self._led: dict[int, int] = {}
        self._is_following = False

    @cached_property
    def config(self) -> GroupConfig:
        """The configuration of the coordinator."""
        from klamm.coordinator.groups.config import GroupConfig

        names = {name: name.replace("_", ".") for name in GroupConfig.__dataclass_fields__}
        known = {name: key for name, key in names.items() if find_config_key("node", key) is not None}
        return GroupConfig(**{name: self._config.integer(key) for name, key in known.items()})

    @cached_property
    def _log(self) -> EngineCoordinatorLog:
        from klamm.node.views.coordinator_log import EngineCoordinatorLog

        return EngineCoordinatorLog(
            self._engine,
            GROUPS_TOPIC,
            lambda: self._image().topic_id(GROUPS_TOPIC),
            codec=self._config.integer("offsets.topic.compression.codec"),
            load_bytes=self._config.integer("offsets.load.buffer.size"),
        )

    @cached_property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator, created on first use."""
        from klamm.coordinator.groups.driver import GroupCoordinator

        made = GroupCoordinator(self.config, self._log, self.config.offsets_topic_num_partitions)
        image = self._image()
        topic_id = image.topic_id(GROUPS_TOPIC)
        if topic_id is not None:
            made.use_partition_count(image.topic_partition_count(topic_id))
        return made

    @property
    def _is_made(self) -> bool:
        return "coordinator" in self.__dict__

    def counters(self) -> dict[str, int]:
        """The counters of the coordinator by name."""
        from klamm.coordinator.groups.counts import GroupCounts
        from klamm.coordinator.runtime.counts import RuntimeCounts

        groups, runtime = GroupCounts(), RuntimeCounts()
        if self._is_made:
            groups, runtime = self.coordinator.counts, self.coordinator.runtime.counts
        return groups.named() | runtime.named("klamm.coordinator:type=Groups,name=")

    def on_pause(self, pause_ms: int) -> None:
        """The process did not run for `pause_ms`."""
        if self._is_made:
            self.coordinator.on_pause(pause_ms)

    def start(self) -> None:
        """The node serves: load the partitions that it leads. Requests that arrived before are still queued."""
        self._is_following = True
        self._follow(self._image())

    def on_published(self, image: Image, delta: Delta) -> None:
        """A newer image is committed."""
        if not self._is_following:
            return
        moved = any(name == GROUPS_TOPIC for _, name, _ in delta.changed_topics)
        if moved or any(name == GROUPS_TOPIC for _, name in delta.created_topics + delta.deleted_topics):
            self._follow(image)
        if delta.deleted_topics and self._is_made:
            self.coordinator.on_topics_deleted([(name, topic_id) for topic_id, name in delta.deleted_topics])

    def _follow(self, image: Image) -> None:
        topic_id = image.topic_id(GROUPS_TOPIC)
        led: dict[int, int] = {}
        if topic_id is not None:
            led = {
                found.index: found.leader_epoch
                for found in image.partitions(topic_id)
                if found.leader == self._config.node_id
            }
            if self._is_made:
                self.coordinator.use_partition_count(image.topic_partition_count(topic_id))
        if led == self._led:
            return
        for partition in self._led.keys() - led.keys():
            self.coordinator.on_resigned(partition)
        for partition, epoch in led.items():
            if self._led.get(partition) != epoch:
                self.coordinator.on_elected(partition, epoch)
        self._led = led

    def on_acked(self, token: int, code: int | None) -> None:
        """The engine completed an append to `__consumer_offsets`; the outcome is unknown if `code` is None."""
        self._log.on_acked(token, code)

    def close(self) -> None:
        """Unload all partitions."""
        if self._is_made:
            self.coordinator.close()
