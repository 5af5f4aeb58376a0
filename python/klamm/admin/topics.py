"""Topics over the wire: list, create, describe, alter, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klamm.admin.client import Client, check
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.metadata import ZERO_ID
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from klamm.protocol.uuids import uuid_text

TIMEOUT_MS: Final = 30_000
CREATE_TOPICS_VERSION_MAX: Final = 7
CREATE_PARTITIONS_VERSION_MAX: Final = 3
DELETE_TOPICS_VERSION_MAX: Final = 5
"""Later versions name topics in another field."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; a leader of -1 means that it has none."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic with its partitions by number."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0

    def under_replicated(self) -> Topic:
        """The topic with only the partitions of which a replica is not in sync."""
        return replace(self, partitions=tuple(one for one in self.partitions if len(one.isr) < len(one.replicas)))


def topics(client: Client, names: Sequence[str] | None = None) -> list[Topic]:
    """The named topics, or all, sorted. Raises ClientError for a name that does not exist."""
    found: list[Topic] = []
    for entry in client.metadata(names).topics:
        check(entry.error_code, f"topic {entry.name}")
        partitions = tuple(
            Partition(one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes)
            for one in sorted(entry.partitions, key=lambda one: one.partition_index)
        )
        topic_id = None if entry.topic_id == ZERO_ID else uuid_text(entry.topic_id)
        found.append(Topic(entry.name or "", topic_id, entry.is_internal, partitions))
    return sorted(found, key=lambda topic: topic.name)


def create(
    client: Client,
    names: Iterable[str],
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
    if_not_exists: bool = False,
) -> list[str]:
    """Create topics; -1 uses the broker's default.

    Returns their names. Raises ClientError for the first one refused.
    """
    given = tuple(CreatableTopicConfig(*entry) for entry in (configs or {}).items())
    wanted = tuple(CreatableTopic(name, partitions, replication_factor, configs=given) for name in names)
    request = CreateTopicsRequest(wanted, TIMEOUT_MS, validate_only)
    answer = client.any.ask(request, CreateTopicsResponse, CREATE_TOPICS_VERSION_MAX)
    created: list[str] = []
    for result in answer.topics:
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
            continue
        check(result.error_code, f"topic {result.name}", result.error_message)
        created.append(result.name)
    return created


def delete(client: Client, names: Sequence[str]) -> None:
    """Delete topics. Raises ClientError for the first one that is refused."""
    request = DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=TIMEOUT_MS)
    answer = client.any.ask(request, DeleteTopicsResponse, DELETE_TOPICS_VERSION_MAX)
    for result in answer.responses:
        check(result.error_code, f"topic {result.name}", result.error_message)


def add_partitions(client: Client, name: str, count: int) -> None:
    """Increase the partitions of a topic to `count`. Raises ClientError."""
    request = CreatePartitionsRequest((CreatePartitionsTopic(name, count),), TIMEOUT_MS)
    answer = client.any.ask(request, CreatePartitionsResponse, CREATE_PARTITIONS_VERSION_MAX)
    for result in answer.results:
        check(result.error_code, f"topic {result.name}", result.error_message)
