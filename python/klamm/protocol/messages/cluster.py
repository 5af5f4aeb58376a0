"""Requests and answers about the cluster: its quorum and its nodes."""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

NO_OPERATIONS: Final = -(2**31)
"""`cluster_authorized_operations` when the client did not ask for them."""


class QuorumPartition(Value):
    """A partition asked about; only `__cluster_metadata` 0 has an answer."""

    partition_index: int


class QuorumTopic(Value):
    """A topic asked about."""

    topic_name: str
    partitions: tuple[QuorumPartition, ...]


class DescribeQuorumRequest(Value):
    """DescribeQuorum (55)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_QUORUM
    topics: tuple[QuorumTopic, ...]


class ReplicaState(Value):
    """A voter or observer as the leader sees it; timestamps in ms, -1 when unknown."""

    replica_id: int
    log_end_offset: int
    replica_directory_id: bytes = bytes(16)
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


class QuorumPartitionData(Value):
    """The quorum of one partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: tuple[ReplicaState, ...] = ()
    observers: tuple[ReplicaState, ...] = ()


class QuorumTopicData(Value):
    """The partitions of one topic."""

    topic_name: str
    partitions: tuple[QuorumPartitionData, ...]


class QuorumListener(Value):
    """Where a voter listens."""

    name: str
    host: str
    port: int


class QuorumNode(Value):
    """A voter's endpoints."""

    node_id: int
    listeners: tuple[QuorumListener, ...]


class DescribeQuorumResponse(Value):
    """DescribeQuorum (55)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_QUORUM
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    topics: tuple[QuorumTopicData, ...] = ()
    nodes: tuple[QuorumNode, ...] = ()


class DescribeClusterRequest(Value):
    """DescribeCluster (60); endpoint type 1 is brokers, 2 controllers (KIP-919)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_CLUSTER
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


class DescribeClusterBroker(Value):
    """A node of the answer."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


class DescribeClusterResponse(Value):
    """DescribeCluster (60)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_CLUSTER
    cluster_id: str = ""
    brokers: tuple[DescribeClusterBroker, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    endpoint_type: int = 1
    controller_id: int = -1
    cluster_authorized_operations: int = NO_OPERATIONS
    throttle_time_ms: int = 0
