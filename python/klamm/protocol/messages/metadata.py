"""Metadata: the brokers, the controller, and the topics with their leaders.

Fields have the names of Kafka's schemas, so that `codec.read` and `codec.write` match them for every version; ids are
16 bytes, all zero for none.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

ZERO_ID: Final = bytes(16)
AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)


class MetadataRequestTopic(Value):
    """A topic, by name or, from version 10, by id."""

    name: str | None
    topic_id: bytes = ZERO_ID


class MetadataRequest(Value):
    """Metadata (3); `topics` None asks for all of them."""

    API_KEY: ClassVar[int] = ApiKey.METADATA
    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataBroker(Value):
    """A broker, with the address of the listener that was asked."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataPartition(Value):
    """A partition; without a leader, `leader_id` is -1 and the error is LEADER_NOT_AVAILABLE."""

    partition_index: int
    leader_id: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class MetadataTopic(Value):
    """A topic; the name is None if it was asked for by an id that does not exist."""

    name: str | None
    error_code: ErrorCode = ErrorCode.NONE
    topic_id: bytes = ZERO_ID
    is_internal: bool = False
    partitions: tuple[MetadataPartition, ...] = ()
    topic_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


class MetadataResponse(Value):
    """Metadata (3)."""

    API_KEY: ClassVar[int] = ApiKey.METADATA
    brokers: tuple[MetadataBroker, ...] = ()
    topics: tuple[MetadataTopic, ...] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    cluster_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED
    error_code: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0
