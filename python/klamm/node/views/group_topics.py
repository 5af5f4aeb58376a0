"""The committed image as the group coordinator needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from klamm._engine.groups import TopicPattern, topic_hash
from klamm._engine.metadata import Image
from klamm.coordinator.groups.topics import GroupConfigs
from klamm.protocol.topic_info import TopicInfo

GROUP_RESOURCE: Final = 32
BROKER_RESOURCE: Final = 4
DYNAMIC_DEFAULTS: Final = {
    "consumer.assignment.interval.ms": "group.consumer.assignment.interval.ms",
    "streams.assignment.interval.ms": "group.streams.assignment.interval.ms",
}
"""Settings of groups whose default may be changed for the whole cluster while the broker runs."""


class GroupTopics:
    """Topics of the committed image. The hashes of topics are kept until `forget`."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image
        self._hashes: dict[str, int] = {}

    @property
    def version(self) -> int:
        """The offset of the image."""
        return self._image().last_offset

    def find(self, name: str) -> TopicInfo | None:
        """The topic with this name."""
        image = self._image()
        topic_id = image.topic_id(name)
        return None if topic_id is None else TopicInfo(name, topic_id, image.topic_partition_count(topic_id))

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        return self._image().topic_name(topic_id)

    def hash_of(self, name: str) -> int | None:
        """The metadata hash of a topic."""
        found = self._hashes.get(name)
        if found is None:
            found = topic_hash(self._image(), name)
            if found is not None:
                self._hashes[name] = found
        return found

    def matching(self, pattern: TopicPattern) -> Sequence[str]:
        """The names that match, sorted."""
        return pattern.matching(self._image())

    def forget(self, names: Iterable[str]) -> None:
        """These topics were created, changed or deleted."""
        for name in names:
            self._hashes.pop(name, None)


def group_configs(image: Callable[[], Image]) -> GroupConfigs:
    """Gives a group's config, or a default for the cluster that was set while the brokers run."""

    def find(group_id: str, key: str) -> str | None:
        newest = image()
        value = newest.config(GROUP_RESOURCE, group_id, key)
        if value is None and key in DYNAMIC_DEFAULTS:
            value = newest.config(BROKER_RESOURCE, "", DYNAMIC_DEFAULTS[key])
        return value

    return find
