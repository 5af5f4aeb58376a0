"""Requests and answers about topics: CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders.

Fields have the names of Kafka's schemas, so that `codec.read` and `codec.write` match them for every version; ids are
16 bytes, all zero for none.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, Final

from klamm.protocol.errors import ErrorCode

ZERO_ID: Final = bytes(16)
UNSET: Final = -1
"""Partitions or replication factor left to the node's defaults, or given by a manual assignment."""


class ElectionType(enum.IntEnum):
    """What an ElectLeaders request asks for (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class CreatableReplicaAssignment:
    """The brokers that shall hold one partition; the first is the preferred leader."""

    partition_index: int
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreatableTopicConfig:
    """A topic config to set at creation; a null value is refused by the controller."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    """One topic to create, by counts or by a manual assignment."""

    name: str
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """CreateTopics (19)."""

    API_KEY: ClassVar[int] = 19
    topics: tuple[CreatableTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatableTopicConfigs:
    """One effective config of a created topic (v5 and later)."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class CreatableTopicResult:
    """What became of one topic."""

    name: str
    topic_id: bytes = ZERO_ID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topic_config_error_code: int = 0
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    configs: tuple[CreatableTopicConfigs, ...] | None = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    """CreateTopics (19)."""

    API_KEY: ClassVar[int] = 19
    topics: tuple[CreatableTopicResult, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopicState:
    """A topic to delete, by name or by id, not both."""

    name: str | None = None
    topic_id: bytes = ZERO_ID


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    """DeleteTopics (20): `topic_names` up to v5, `topics` from v6."""

    API_KEY: ClassVar[int] = 20
    topics: tuple[DeleteTopicState, ...] = ()
    topic_names: tuple[str, ...] = ()
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class DeletableTopicResult:
    """What became of one topic."""

    name: str | None
    topic_id: bytes = ZERO_ID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    """DeleteTopics (20)."""

    API_KEY: ClassVar[int] = 20
    responses: tuple[DeletableTopicResult, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreatePartitionsAssignment:
    """The brokers of one new partition."""

    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreatePartitionsTopic:
    """A topic that shall have `count` partitions in all; the assignments, if any, are of the new ones."""

    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest:
    """CreatePartitions (37)."""

    API_KEY: ClassVar[int] = 37
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse:
    """CreatePartitions (37)."""

    API_KEY: ClassVar[int] = 37
    results: tuple[CreatePartitionsTopicResult, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """ElectLeaders (43); `topic_partitions` None means every partition; v0 knows only preferred elections."""

    API_KEY: ClassVar[int] = 43
    topic_partitions: tuple[TopicPartitions, ...] | None
    election_type: int = ElectionType.PREFERRED
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What became of one partition's election."""

    partition_id: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaElectionResult:
    """The elections of one topic."""

    topic: str
    partition_result: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    """ElectLeaders (43)."""

    API_KEY: ClassVar[int] = 43
    replica_election_results: tuple[ReplicaElectionResult, ...]
    error_code: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0
