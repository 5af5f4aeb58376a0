"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): moving replicas (KIP-455, KIP-860)."""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

DEFAULT_TIMEOUT_MS: Final = 60_000


class ReassignablePartition(Value):
    """The replicas that a partition shall have, the preferred leader first; None cancels its reassignment."""

    partition_index: int
    replicas: tuple[int, ...] | None = None


class ReassignableTopic(Value):
    """Partitions of a topic."""

    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest(Value):
    """AlterPartitionReassignments (45)."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    topics: tuple[ReassignableTopic, ...]
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    allow_replication_factor_change: bool = True


class ReassignablePartitionResponse(Value):
    """Whether the reassignment of a partition has begun or is cancelled."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class ReassignableTopicResponse(Value):
    """Partitions of a topic."""

    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


class AlterPartitionReassignmentsResponse(Value):
    """AlterPartitionReassignments (45)."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    responses: tuple[ReassignableTopicResponse, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    allow_replication_factor_change: bool = True
    throttle_time_ms: int = 0


class ListPartitionReassignmentsTopics(Value):
    """Partitions of a topic."""

    name: str
    partition_indexes: tuple[int, ...]


class ListPartitionReassignmentsRequest(Value):
    """ListPartitionReassignments (46); None lists the reassignments of all topics."""

    API_KEY: ClassVar[int] = ApiKey.LIST_PARTITION_REASSIGNMENTS
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None
    timeout_ms: int = DEFAULT_TIMEOUT_MS


class OngoingPartitionReassignment(Value):
    """The replicas of a partition that is reassigned; those to add and to remove are among them."""

    partition_index: int
    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


class OngoingTopicReassignment(Value):
    """Partitions of a topic."""

    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]


class ListPartitionReassignmentsResponse(Value):
    """ListPartitionReassignments (46)."""

    API_KEY: ClassVar[int] = ApiKey.LIST_PARTITION_REASSIGNMENTS
    topics: tuple[OngoingTopicReassignment, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0
