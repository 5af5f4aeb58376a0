"""Requests of clients to partition leaders besides Fetch: Produce and ListOffsets.

Fields have the names of Kafka's schemas, so that `codec.read` and `codec.write` match them for every version.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

ZERO_ID: Final = bytes(16)
ALL_IN_SYNC_REPLICAS: Final = -1
"""`acks` of a Produce that is answered when all replicas in sync have the records."""


class PartitionProduceData(Value):
    """The batches for one partition."""

    index: int
    records: bytes | None


class TopicProduceData(Value):
    """The batches for a topic: named up to version 12, then by id."""

    name: str = ""
    topic_id: bytes = ZERO_ID
    partition_data: tuple[PartitionProduceData, ...] = ()


class ProduceRequest(Value):
    """Produce (0)."""

    API_KEY: ClassVar[int] = ApiKey.PRODUCE
    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]
    transactional_id: str | None = None


class BatchIndexAndErrorMessage(Value):
    """A record because of which a batch was refused."""

    batch_index: int
    batch_index_error_message: str | None = None


class ProduceLeader(Value):
    """The leader of an epoch, -1 if it is not known."""

    leader_id: int = -1
    leader_epoch: int = -1


class PartitionProduceResponse(Value):
    """The result of the batches for one partition."""

    index: int
    error_code: ErrorCode
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()
    error_message: str | None = None
    current_leader: ProduceLeader = ProduceLeader()


class TopicProduceResponse(Value):
    """The results of the batches for a topic."""

    name: str = ""
    topic_id: bytes = ZERO_ID
    partition_responses: tuple[PartitionProduceResponse, ...] = ()


class ProduceEndpoint(Value):
    """Where a leader listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class ProduceResponse(Value):
    """Produce (0)."""

    API_KEY: ClassVar[int] = ApiKey.PRODUCE
    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: int = 0
    node_endpoints: tuple[ProduceEndpoint, ...] = ()


class ListOffsetsPartition(Value):
    """A partition, and a time in ms or a special one (`ListOffsetsRequest` of Apache Kafka)."""

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsTopic(Value):
    """The partitions of a topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest(Value):
    """ListOffsets (2)."""

    API_KEY: ClassVar[int] = ApiKey.LIST_OFFSETS
    topics: tuple[ListOffsetsTopic, ...]
    replica_id: int = -1
    isolation_level: int = 0
    timeout_ms: int = 0


class ListedOffset(Value):
    """The first offset of a partition at or after the time; -1 if there is none."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListedTopic(Value):
    """The offsets of a topic."""

    name: str
    partitions: tuple[ListedOffset, ...]


class ListOffsetsResponse(Value):
    """ListOffsets (2)."""

    API_KEY: ClassVar[int] = ApiKey.LIST_OFFSETS
    topics: tuple[ListedTopic, ...]
    throttle_time_ms: int = 0
