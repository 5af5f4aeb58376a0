"""The committed image as group and offset handlers need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm._engine.metadata import Image
from klamm.broker.handlers.coordinators import Endpoint
from klamm.protocol.topic_info import TopicInfo

NO_LEADER: Final = -1


class ClusterView:
    """Topics of the committed image, and leaders with their endpoint on a client's listener."""

    def __init__(self, image: Callable[[], Image], create: Callable[[str], None]) -> None:
        """`create` sends a CreateTopics for an internal topic to the controller, and does not wait."""
        self._image = image
        self._create = create
        # Cached, because clients commit offsets of the same topics repeatedly, and new images are rare by comparison.
        self._infos: dict[str, TopicInfo] = {}
        self._image_of_infos: Image | None = None

    @property
    def image(self) -> Image:
        """The committed image."""
        return self._image()

    def exists(self, topic: str) -> bool:
        """Whether the topic exists."""
        return self._image().topic_id(topic) is not None

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether the partition exists."""
        return self._image().leader(topic, partition) is not None

    def create(self, topic: str) -> None:
        """Create an internal topic."""
        self._create(topic)

    def leader(self, topic: str, partition: int, listener: str) -> Endpoint | None:
        """The leader of a partition, if it is alive and has that listener."""
        image = self._image()
        leader = image.leader(topic, partition)
        broker = None if leader is None or leader == NO_LEADER else image.broker(leader)
        if broker is None or broker.fenced:
            return None
        for endpoint in broker.endpoints:
            if endpoint.name == listener:
                return Endpoint(broker.id, endpoint.host, endpoint.port)
        return None

    def by_name(self, name: str) -> TopicInfo | None:
        """The topic with this name."""
        image = self._image()
        if image is not self._image_of_infos:
            self._image_of_infos, self._infos = image, {}
        found = self._infos.get(name)
        if found is None:
            topic_id = image.topic_id(name)
            if topic_id is None:
                return None
            found = self._infos[name] = self._info(name, topic_id)
        return found

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic with this id."""
        name = self._image().topic_name(topic_id)
        return None if name is None else self._info(name, topic_id)

    def _info(self, name: str, topic_id: bytes) -> TopicInfo:
        return TopicInfo(name, topic_id, self._image().topic_partition_count(topic_id))
