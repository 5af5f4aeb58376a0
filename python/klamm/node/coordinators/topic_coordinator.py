"""Common to a node's coordinators: an internal topic, whose partitions are loaded if this node leads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from klamm._engine.metadata import Delta, Image
from klamm._engine.node import Engine

if TYPE_CHECKING:
    from klamm.config.node_config import NodeConfig
    from klamm.node.coordinators.appends import Appends
    from klamm.node.views.coordinator_log import EngineCoordinatorLog
    from klamm.protocol.messages.topics import CreatableTopic


class Coordinator(Protocol):
    """A coordinator as `TopicCoordinator` needs it."""

    def partition_for(self, key: str, /) -> int:
        """The partition that a key, such as a group id, belongs to."""
        ...

    def use_partition_count(self, partition_count: int) -> None:
        """The internal topic has this many partitions."""
        ...

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node became leader of the partition: load it."""
        ...

    def on_resigned(self, partition: int) -> None:
        """This node lost the leadership of the partition."""
        ...

    def on_pause(self, pause_ms: int) -> None:
        """The process did not run for `pause_ms`."""
        ...

    def close(self) -> None:
        """Unload all partitions."""
        ...


C = TypeVar("C", bound=Coordinator)


class TopicCoordinator(ABC, Generic[C]):
    """Creates the coordinator on first use and passes metadata changes to it: the partitions that this node leads."""

    topic: ClassVar[str]

    def __init__(self, config: NodeConfig, engine: Engine, image: Callable[[], Image], appends: Appends) -> None:
        self._config, self._engine, self._image, self._appends = config, engine, image, appends
        self._led: dict[tuple[bytes, int], int] = {}
        """The leader epochs of partitions; a topic that is created again has another id."""
        self._is_following = False

    @abstractmethod
    def _make(self) -> C: ...

    @abstractmethod
    def new_topic(self) -> CreatableTopic:
        """The internal topic, as it is created at its first use."""

    @cached_property
    def coordinator(self) -> C:
        """The coordinator, created on first use."""
        made = self._make()
        image = self._image()
        topic_id = image.topic_id(self.topic)
        if topic_id is not None:
            made.use_partition_count(image.topic_partition_count(topic_id))
        return made

    def partition_for(self, key: str) -> int:
        """The partition of the internal topic that a key, such as a group id, belongs to."""
        return self.coordinator.partition_for(key)

    @property
    def _is_made(self) -> bool:
        return "coordinator" in self.__dict__

    def _log(self, *, codec: int, load_bytes: int, is_compacted: bool = True) -> EngineCoordinatorLog:
        from klamm.node.views.coordinator_log import EngineCoordinatorLog

        return EngineCoordinatorLog(
            self._engine,
            self.topic,
            lambda: self._image().topic_id(self.topic),
            self._appends,
            codec=codec,
            load_bytes=load_bytes,
            is_compacted=is_compacted,
        )

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
        # Few clusters use all of the internal topics, and a change may have thousands of others.
        if not self._is_made and not self._led and image.topic_id(self.topic) is None:
            return
        moved = any(name == self.topic for _, name, _ in delta.changed_topics)
        if moved or any(name == self.topic for _, name in delta.created_topics + delta.deleted_topics):
            self._follow(image)
        if self._is_made:
            self._on_published(image, delta)

    def _on_published(self, image: Image, delta: Delta) -> None:
        """Apply other changes of a newer image."""

    def _follow(self, image: Image) -> None:
        topic_id = image.topic_id(self.topic)
        led: dict[tuple[bytes, int], int] = {}
        if topic_id is not None:
            led = {
                (topic_id, found.index): found.leader_epoch
                for found in image.partitions(topic_id)
                if found.leader == self._config.node_id
            }
        for _, partition in self._led.keys() - led.keys():
            self.coordinator.on_resigned(partition)
        if topic_id is not None and self._is_made:
            self.coordinator.use_partition_count(image.topic_partition_count(topic_id))
        for key, epoch in led.items():
            if self._led.get(key) != epoch:
                self.coordinator.on_elected(key[1], epoch)
        self._led = led

    def close(self) -> None:
        """Unload all partitions."""
        if self._is_made:
            self.coordinator.close()
