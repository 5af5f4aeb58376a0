"""Requests to a cluster about its topics and groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from klamm.admin import configs as config_admin
from klamm.admin import groups as group_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.pipelines.archive.manifest import Topic
from klamm.pipelines.errors import PipelineError


def cluster_id(admin: Client) -> str | None:
    """The id of the cluster."""
    return admin.metadata().cluster_id


def choose_topics(admin: Client, names: Sequence[str], pattern: str | None) -> list[Topic]:
    """The named topics, and those whose whole name matches; internal ones only by name. Raises PipelineError."""
    if not names and pattern is None:
        raise PipelineError("no topic to archive: name topics, or say --pattern REGEX")
    wanted = set(names)
    if pattern is not None:
        try:
            matching = re.compile(pattern)
        except re.error as error:
            raise PipelineError(f"'{pattern}' is no regular expression: {error}") from None
        here = [topic.name for topic in topic_admin.topics(admin) if not topic.is_internal]
        found = {name for name in here if matching.fullmatch(name)}
        if not found and not wanted:
            raise PipelineError(f"'{pattern}' matches none of the {len(here)} topics: `klamm topics list` shows them")
        wanted |= found
    return [describe(admin, topic) for topic in topic_admin.topics(admin, sorted(wanted))]


def describe(admin: Client, topic: topic_admin.Topic) -> Topic:
    """A topic with the configs that are set on it."""
    entries = config_admin.describe(admin, "topic", topic.name)
    own = {one.name: one.value for one in entries if one.source == config_admin.SET_ON_TOPIC and one.value is not None}
    return Topic(topic.name, topic.topic_id, len(topic.partitions), own)


def committed(admin: Client, topics: Collection[str]) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """The committed offsets of groups for these topics: by group, topic and partition."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for group in group_admin.groups(admin):
        for (topic, partition), offset in sorted(group_admin.committed_offsets(admin, group.name).items()):
            if topic in topics:
                found.setdefault(group.name, {}).setdefault(topic, {})[str(partition)] = offset
    return found
