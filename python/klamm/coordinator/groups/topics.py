"""Queries of the group coordinator to the cluster's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from klamm._engine.groups import TopicPattern
from klamm.protocol.topic_info import TopicInfo


class Topics(Protocol):
    """Topics of the newest metadata that the broker has. An absent topic gives None."""

    @property
    def version(self) -> int:
        """The offset in the metadata log up to which the metadata is known."""
        ...

    def find(self, name: str) -> TopicInfo | None:
        """The topic with this name."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id (16 bytes)."""
        ...

    def hash_of(self, name: str) -> int | None:
        """The topic's metadata hash (Kafka's `Utils.computeTopicHash`), an int64."""
        ...

    def matching(self, pattern: TopicPattern) -> Sequence[str]:
        """The names that match, sorted. May be called from any thread."""
        ...


class GroupConfigs(Protocol):
    """The configs of groups (resource type 32), as they are stored."""

    def __call__(self, group_id: str, key: str) -> str | None:
        """The value that is set for the group; None if there is none."""
        ...


class NoTopics:
    """The metadata of a cluster without topics."""

    version = 0

    def find(self, name: str) -> TopicInfo | None:
        """None."""
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """None."""
        return None

    def hash_of(self, name: str) -> int | None:
        """None."""
        return None

    def matching(self, pattern: TopicPattern) -> Sequence[str]:
        """Nothing."""
        return ()


def no_group_configs(group_id: str, key: str) -> str | None:
    """No group has a config."""
    return None
