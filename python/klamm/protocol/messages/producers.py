"""DescribeProducers: which producers a partition knows. Field names are the schemas' own."""

from __future__ import annotations

from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value


class ProducersTopic(Value):
    """Partitions of a topic."""

    name: str
    partition_indexes: tuple[int, ...]


class DescribeProducersRequest(Value):
    """API 61."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_PRODUCERS
    topics: tuple[ProducersTopic, ...]


class ActiveProducer(Value):
    """A producer; unknown values are -1, like the start of a transaction when none is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class PartitionProducers(Value):
    """The producers of a partition."""

    partition_index: int
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    active_producers: tuple[ActiveProducer, ...] = ()


class TopicProducers(Value):
    """The producers of a topic's partitions."""

    name: str
    partitions: tuple[PartitionProducers, ...]


class DescribeProducersResponse(Value):
    """Answer 61."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_PRODUCERS
    topics: tuple[TopicProducers, ...] = ()
    throttle_time_ms: int = 0
