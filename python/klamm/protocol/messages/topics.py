"""Requests and answers about topics: CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders.

Fields have the names of Kafka's schemas, so that `codec.read` and `codec.write` match them for every version; ids are
16 bytes, all zero for none.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

ZERO_ID: Final = bytes(16)
UNSET: Final = -1
"""Partitions or replication factor left to the node's defaults, or given by a manual assignment."""


class ElectionType(enum.IntEnum):
    """What an ElectLeaders request asks for (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class CreatableReplicaAssignment(Value):
    """The brokers that shall hold one partition; the first is the preferred leader."""

    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopicConfig(Value):
    """A topic config to set at creation; a null value is refused by the controller."""

    name: str
    value: str | None


class CreatableTopic(Value):
    """One topic to create, by counts or by a manual assignment."""

    name: str
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Value):
    """CreateTopics (19)."""

    API_KEY: ClassVar[int] = ApiKey.CREATE_TOPICS
    topics: tuple[CreatableTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


class CreatableTopicConfigs(Value):
    """One effective config of a created topic (v5 and later)."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreatableTopicResult(Value):
    """The result for one topic."""

    name: str
    topic_id: bytes = ZERO_ID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topic_config_error_code: int = 0
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    configs: tuple[CreatableTopicConfigs, ...] | None = ()


class CreateTopicsResponse(Value):
    """CreateTopics (19)."""

    API_KEY: ClassVar[int] = ApiKey.CREATE_TOPICS
    topics: tuple[CreatableTopicResult, ...]
    throttle_time_ms: int = 0


class DeleteTopicState(Value):
    """A topic to delete, by name or by id, not both."""

    name: str | None = None
    topic_id: bytes = ZERO_ID


class DeleteTopicsRequest(Value):
    """DeleteTopics (20): `topic_names` up to v5, `topics` from v6."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_TOPICS
    topics: tuple[DeleteTopicState, ...] = ()
    topic_names: tuple[str, ...] = ()
    timeout_ms: int = 60_000


class DeletableTopicResult(Value):
    """The result for one topic."""

    name: str | None
    topic_id: bytes = ZERO_ID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class DeleteTopicsResponse(Value):
    """DeleteTopics (20)."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_TOPICS
    responses: tuple[DeletableTopicResult, ...]
    throttle_time_ms: int = 0


class CreatePartitionsAssignment(Value):
    """The brokers of one new partition."""

    broker_ids: tuple[int, ...]


class CreatePartitionsTopic(Value):
    """A topic that shall have `count` partitions in all; the assignments, if any, are of the new ones."""

    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


class CreatePartitionsRequest(Value):
    """CreatePartitions (37)."""

    API_KEY: ClassVar[int] = ApiKey.CREATE_PARTITIONS
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


class CreatePartitionsTopicResult(Value):
    """The result for one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class CreatePartitionsResponse(Value):
    """CreatePartitions (37)."""

    API_KEY: ClassVar[int] = ApiKey.CREATE_PARTITIONS
    results: tuple[CreatePartitionsTopicResult, ...]
    throttle_time_ms: int = 0


class TopicPartitions(Value):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest(Value):
    """ElectLeaders (43); `topic_partitions` None means every partition; v0 knows only preferred elections."""

    API_KEY: ClassVar[int] = ApiKey.ELECT_LEADERS
    topic_partitions: tuple[TopicPartitions, ...] | None
    election_type: int = ElectionType.PREFERRED
    timeout_ms: int = 60_000


class PartitionResult(Value):
    """The result of one partition's election."""

    partition_id: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class ReplicaElectionResult(Value):
    """The elections of one topic."""

    topic: str
    partition_result: tuple[PartitionResult, ...]


class ElectLeadersResponse(Value):
    """ElectLeaders (43)."""

    API_KEY: ClassVar[int] = ApiKey.ELECT_LEADERS
    replica_election_results: tuple[ReplicaElectionResult, ...]
    error_code: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0
