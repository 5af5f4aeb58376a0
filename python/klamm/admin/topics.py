"""Topics over the wire: list, create, describe, alter, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Client, check
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode

TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; a leader of -1 means none."""

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
        """Replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def topics(client: Client, names: Sequence[str] | None = None) -> list[Topic]:
    """The topics of those names, or all, sorted. Raises ClientError for a name that does not exist."""
    found: list[Topic] = []
    for entry in client.metadata(names).topics:
        check(entry.error_code, f"topic {entry.name}")
        partitions = tuple(
            Partition(one.partition_index, one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes))
            for one in sorted(entry.partitions, key=lambda one: one.partition_index)
        )
        topic_id = getattr(entry, "topic_id", None)
        found.append(Topic(entry.name, _uuid_text(topic_id), entry.is_internal, partitions))
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
    """Create topics; -1 leaves a number to the broker. The names created. Raises ClientError for the first refused."""
    entry = {
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    answer = client.any.request(
        ApiKey.CREATE_TOPICS,
        7,
        topics=[{"name": name, **entry} for name in names],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )
    created: list[str] = []
    for result in answer.topics:
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
            continue
        check(result.error_code, f"topic {result.name}", result.error_message)
        created.append(result.name)
    return created


def delete(client: Client, names: Sequence[str]) -> None:
    """Delete topics. Raises ClientError for the first refused."""
    answer = client.any.request(ApiKey.DELETE_TOPICS, 5, topic_names=list(names), timeout_ms=TIMEOUT_MS)
    for result in answer.responses:
        check(result.error_code, f"topic {result.name}", getattr(result, "error_message", None))


def add_partitions(client: Client, name: str, count: int) -> None:
    """Give a topic `count` partitions in all. Raises ClientError."""
    wanted = {"name": name, "count": count, "assignments": None}
    answer = client.any.request(
        ApiKey.CREATE_PARTITIONS, 3, topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False
    )
    for result in answer.results:
        check(result.error_code, f"topic {result.name}", result.error_message)


def _uuid_text(topic_id: object) -> str | None:
    import base64
    import uuid

    if not isinstance(topic_id, uuid.UUID):
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
