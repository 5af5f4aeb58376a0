"""Requests and answers between nodes and about the cluster: registration, heartbeat, producer ids, quorum, nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from klamm.protocol.errors import ErrorCode

NO_OPERATIONS: Final = -(2**31)
"""`cluster_authorized_operations` when the client did not ask for them."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One advertised endpoint of a broker; the protocol's id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """The levels of a feature that a broker can work with."""

    name: str
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationRequest:
    """BrokerRegistration (62)."""

    API_KEY: ClassVar[int] = 62
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[bytes, ...] = ()
    previous_broker_epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerRegistrationResponse:
    """BrokerRegistration (62)."""

    API_KEY: ClassVar[int] = 62
    error_code: ErrorCode = ErrorCode.NONE
    broker_epoch: int = -1
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequest:
    """BrokerHeartbeat (63); `cordoned_log_dirs` None means unknown, and changes nothing (KIP-1066)."""

    API_KEY: ClassVar[int] = 63
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse:
    """BrokerHeartbeat (63)."""

    API_KEY: ClassVar[int] = 63
    error_code: ErrorCode = ErrorCode.NONE
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRequest:
    """UnregisterBroker (64)."""

    API_KEY: ClassVar[int] = 64
    broker_id: int


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse:
    """UnregisterBroker (64)."""

    API_KEY: ClassVar[int] = 64
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest:
    """AllocateProducerIds (67)."""

    API_KEY: ClassVar[int] = 67
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    """AllocateProducerIds (67): the ids `[producer_id_start, producer_id_start + producer_id_len)`."""

    API_KEY: ClassVar[int] = 67
    error_code: ErrorCode = ErrorCode.NONE
    producer_id_start: int = 0
    producer_id_len: int = 0
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class QuorumPartition:
    """A partition asked about; only `__cluster_metadata` 0 has an answer."""

    partition_index: int


@dataclass(frozen=True, slots=True)
class QuorumTopic:
    """A topic asked about."""

    topic_name: str
    partitions: tuple[QuorumPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """DescribeQuorum (55)."""

    API_KEY: ClassVar[int] = 55
    topics: tuple[QuorumTopic, ...]


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A voter or observer as the leader sees it; timestamps in ms, -1 when unknown."""

    replica_id: int
    log_end_offset: int
    replica_directory_id: bytes = bytes(16)
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class QuorumPartitionData:
    """The quorum of one partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: tuple[ReplicaState, ...] = ()
    observers: tuple[ReplicaState, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumTopicData:
    """The partitions of one topic."""

    topic_name: str
    partitions: tuple[QuorumPartitionData, ...]


@dataclass(frozen=True, slots=True)
class QuorumListener:
    """Where a voter listens."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """A voter's endpoints."""

    node_id: int
    listeners: tuple[QuorumListener, ...]


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    """DescribeQuorum (55)."""

    API_KEY: ClassVar[int] = 55
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topics: tuple[QuorumTopicData, ...] = ()
    nodes: tuple[QuorumNode, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeClusterRequest:
    """DescribeCluster (60); endpoint type 1 is brokers, 2 controllers (KIP-919)."""

    API_KEY: ClassVar[int] = 60
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


@dataclass(frozen=True, slots=True)
class DescribeClusterBroker:
    """A node of the answer."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class DescribeClusterResponse:
    """DescribeCluster (60)."""

    API_KEY: ClassVar[int] = 60
    cluster_id: str = ""
    brokers: tuple[DescribeClusterBroker, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    endpoint_type: int = 1
    controller_id: int = -1
    cluster_authorized_operations: int = NO_OPERATIONS
    throttle_time_ms: int = 0
