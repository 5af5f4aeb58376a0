"""Requests and responses between the quorum's replicas (KIP-595, KIP-630, KIP-853), field by field as on the wire."""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
NO_DIRECTORY: Final = bytes(16)
HIGH_WATERMARK_UNSUPPORTED: Final = 2**63 - 1
"""The high watermark of a fetch before version 18: nothing is answered early because of it."""


class LeaderEndpoint(Value):
    """Where a leader listens, by the listener's name."""

    name: str
    host: str
    port: int


class NodeEndpoint(Value):
    """Where the leader listens, on the listener that was asked."""

    node_id: int
    host: str
    port: int


# Vote


class VotePartition(Value):
    """One election."""

    partition_index: int
    replica_epoch: int
    replica_id: int
    last_offset_epoch: int
    last_offset: int
    replica_directory_id: bytes = NO_DIRECTORY
    voter_directory_id: bytes = NO_DIRECTORY
    pre_vote: bool = False


class VoteTopic(Value):
    """The elections of a topic."""

    topic_name: str
    partitions: tuple[VotePartition, ...]


class VoteRequest(Value):
    """Vote (52)."""

    API_KEY: ClassVar[int] = ApiKey.VOTE
    cluster_id: str | None
    topics: tuple[VoteTopic, ...]
    voter_id: int = -1


class VotePartitionData(Value):
    """The answer to one election."""

    partition_index: int
    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    vote_granted: bool


class VoteTopicData(Value):
    """The answers of a topic."""

    topic_name: str
    partitions: tuple[VotePartitionData, ...]


class VoteResponse(Value):
    """Vote (52)."""

    API_KEY: ClassVar[int] = ApiKey.VOTE
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[VoteTopicData, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


# BeginQuorumEpoch and EndQuorumEpoch, whose answers are the same


class BeginPartition(Value):
    """A new leader."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    voter_directory_id: bytes = NO_DIRECTORY


class BeginTopic(Value):
    """The new leaders of a topic."""

    topic_name: str
    partitions: tuple[BeginPartition, ...]


class BeginQuorumEpochRequest(Value):
    """BeginQuorumEpoch (53)."""

    API_KEY: ClassVar[int] = ApiKey.BEGIN_QUORUM_EPOCH
    cluster_id: str | None
    topics: tuple[BeginTopic, ...]
    voter_id: int = -1
    leader_endpoints: tuple[LeaderEndpoint, ...] = ()


class Candidate(Value):
    """A successor that the resigning leader prefers."""

    candidate_id: int
    candidate_directory_id: bytes


class EndPartition(Value):
    """A leader that resigns: its successors by id (version 0), or by id and directory."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: tuple[int, ...] = ()
    preferred_candidates: tuple[Candidate, ...] = ()


class EndTopic(Value):
    """The resigning leaders of a topic."""

    topic_name: str
    partitions: tuple[EndPartition, ...]


class EndQuorumEpochRequest(Value):
    """EndQuorumEpoch (54)."""

    API_KEY: ClassVar[int] = ApiKey.END_QUORUM_EPOCH
    cluster_id: str | None
    topics: tuple[EndTopic, ...]
    leader_endpoints: tuple[LeaderEndpoint, ...] = ()


class EpochPartitionData(Value):
    """The leader that the receiver knows."""

    partition_index: int
    error_code: ErrorCode
    leader_id: int
    leader_epoch: int


class EpochTopicData(Value):
    """The leaders of a topic that the receiver knows."""

    topic_name: str
    partitions: tuple[EpochPartitionData, ...]


class BeginQuorumEpochResponse(Value):
    """BeginQuorumEpoch (53)."""

    API_KEY: ClassVar[int] = ApiKey.BEGIN_QUORUM_EPOCH
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[EpochTopicData, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


class EndQuorumEpochResponse(Value):
    """EndQuorumEpoch (54)."""

    API_KEY: ClassVar[int] = ApiKey.END_QUORUM_EPOCH
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[EpochTopicData, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


# Fetch


class FetchingReplica(Value):
    """The fetching replica; the epoch is a broker's."""

    replica_id: int = -1
    replica_epoch: int = -1


class FetchPartition(Value):
    """From where a partition is fetched."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: bytes = NO_DIRECTORY
    high_watermark: int = HIGH_WATERMARK_UNSUPPORTED


class FetchTopic(Value):
    """The partitions of a topic: named up to version 12, then by id."""

    partitions: tuple[FetchPartition, ...]
    topic_id: bytes = bytes(16)
    topic: str = ""


class ForgottenTopic(Value):
    """The partitions to remove from a fetch session; the quorum has no sessions."""

    partitions: tuple[int, ...]
    topic_id: bytes = bytes(16)
    topic: str = ""


class FetchRequest(Value):
    """Fetch (1), of the quorum's log."""

    API_KEY: ClassVar[int] = ApiKey.FETCH
    max_wait_ms: int
    topics: tuple[FetchTopic, ...]
    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: FetchingReplica = FetchingReplica()
    min_bytes: int = 0
    max_bytes: int = 2**31 - 1
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()
    rack_id: str = ""


class EpochEndOffset(Value):
    """Where the logs part: the epoch that both have, and where it ends at the leader."""

    epoch: int = -1
    end_offset: int = -1


NO_END_OFFSET: Final = EpochEndOffset()


class LeaderIdAndEpoch(Value):
    """The leader of an epoch, -1 while there is none."""

    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(Value):
    """Where a snapshot ends."""

    end_offset: int = -1
    epoch: int = -1


NO_SNAPSHOT: Final = SnapshotId()


class AbortedTransaction(Value):
    """An aborted transaction of a fetched range; the quorum's log has none."""

    producer_id: int
    first_offset: int


class FetchPartitionData(Value):
    """The fetched data of a partition."""

    partition_index: int
    error_code: ErrorCode
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = NO_END_OFFSET
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    snapshot_id: SnapshotId = NO_SNAPSHOT
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    preferred_read_replica: int = -1
    records: bytes | None = b""


class FetchTopicData(Value):
    """The fetched data of a topic, identified by name up to version 12, then by id."""

    partitions: tuple[FetchPartitionData, ...]
    topic_id: bytes = bytes(16)
    topic: str = ""


class FetchNodeEndpoint(Value):
    """Where a leader listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class FetchResponse(Value):
    """Fetch (1), of the quorum's log."""

    API_KEY: ClassVar[int] = ApiKey.FETCH
    error_code: ErrorCode = ErrorCode.NONE
    responses: tuple[FetchTopicData, ...] = ()
    node_endpoints: tuple[FetchNodeEndpoint, ...] = ()
    session_id: int = 0
    throttle_time_ms: int = 0


# FetchSnapshot


class SnapshotPartition(Value):
    """From where a snapshot is fetched: a position in its file."""

    partition: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    replica_directory_id: bytes = NO_DIRECTORY


class SnapshotTopic(Value):
    """The snapshots of a topic."""

    name: str
    partitions: tuple[SnapshotPartition, ...]


class FetchSnapshotRequest(Value):
    """FetchSnapshot (59)."""

    API_KEY: ClassVar[int] = ApiKey.FETCH_SNAPSHOT
    topics: tuple[SnapshotTopic, ...]
    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2**31 - 1


class SnapshotPartitionData(Value):
    """A slice of a snapshot's file, which may cut a batch; `size` is the whole file's."""

    index: int
    error_code: ErrorCode
    snapshot_id: SnapshotId = SnapshotId()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    size: int = 0
    position: int = 0
    unaligned_records: bytes = b""


class SnapshotTopicData(Value):
    """The slices of a topic's snapshots."""

    name: str
    partitions: tuple[SnapshotPartitionData, ...]


class FetchSnapshotResponse(Value):
    """FetchSnapshot (59)."""

    API_KEY: ClassVar[int] = ApiKey.FETCH_SNAPSHOT
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[SnapshotTopicData, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
    throttle_time_ms: int = 0
