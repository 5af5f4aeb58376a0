"""Keeps the target's topics equal to the source's: creates them with as many partitions and the same configs.

What MirrorMaker 2 leaves out is left out here: configs of the broker's own file, read-only and sensitive ones, and
those of EXCLUDED. A config that the source has at its default is unset on the target, as it has it, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm.admin import configs, topics
from klamm.admin.client import Client
from klamm.admin.topics import Topic
from klamm.client import BrokerError
from klamm.protocol.errors import ErrorCode

EXCLUDED: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)
"""MirrorMaker 2's default of `config.properties.exclude`."""
_OF_ITS_FILE: Final = "server.properties"
_OF_THE_TOPIC: Final = "set on the topic"


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences of a target, by the target's names."""

    created: dict[str, Topic] = field(default_factory=dict)
    """The source's topic for each."""
    grown: dict[str, int] = field(default_factory=dict)
    """The new number of partitions of each."""


def plan(source: Collection[Topic], names: Mapping[str, str], target: Mapping[str, Topic]) -> Changes:
    """What must be created; `names`: the target's name of each source topic. Partitions are never removed."""
    changes = Changes()
    for topic in source:
        name = names[topic.name]
        there = target.get(name)
        if there is None:
            changes.created[name] = topic
        elif len(there.partitions) < len(topic.partitions):
            changes.grown[name] = len(topic.partitions)
    return changes


def make(source: Client, target: Client, changes: Changes, excluded: Collection[str], replication_factor: int) -> None:
    """Create it. Raises ClientError; topics that were created by others meanwhile are not an error."""
    for name, topic in changes.created.items():
        entries = configs.describe(source, "topic", topic.name)
        wanted = {key: value for key, value in wanted_configs(entries, excluded).items() if value is not None}
        topics.create(
            target,
            [name],
            partitions=len(topic.partitions),
            replication_factor=replication_factor,
            configs=wanted,
            if_not_exists=True,
        )
    for name, count in changes.grown.items():
        try:
            topics.add_partitions(target, name, count)
        except BrokerError as error:
            if error.error_code != ErrorCode.INVALID_PARTITIONS:
                raise


def wanted_configs(entries: Collection[configs.Entry], excluded: Collection[str]) -> dict[str, str | None]:
    """The source's configs to set on the target; None: remove it, because it is a default."""
    refused = [re.compile(pattern) for pattern in (*EXCLUDED, *excluded)]
    return {
        entry.name: None if entry.is_default else entry.value
        for entry in entries
        if not (entry.is_read_only or entry.is_sensitive or entry.source == _OF_ITS_FILE)
        and not any(pattern.fullmatch(entry.name) for pattern in refused)
    }


def differing(wanted: Mapping[str, str | None], there: Collection[configs.Entry]) -> dict[str, str | None]:
    """The differences of the target; unknown keys that are not required are ignored."""
    own = {entry.name: entry.value for entry in there if entry.source == _OF_THE_TOPIC}
    return {key: value for key, value in wanted.items() if own.get(key) != value}


def align_configs(source: Client, target: Client, names: Mapping[str, str], excluded: Collection[str]) -> list[str]:
    """Copy the configs of the source's topics to the target's. Returns the changed names. Raises ClientError."""
    changed: list[str] = []
    for topic, name in names.items():
        wanted = wanted_configs(configs.describe(source, "topic", topic), excluded)
        changes = differing(wanted, configs.describe(target, "topic", name))
        if changes:
            configs.alter(target, "topic", name, changes)
            changed.append(name)
    return changed
