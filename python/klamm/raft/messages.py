"""The raft requests and responses as values, and their error codes (facts 2.1 to 2.3).

A message names one partition only, so that its shape cannot be wrong here: the wire's topics and partitions are checked
and stripped where it is decoded. Bulk bytes are not in an outgoing message: see `effects.ReadRange`.
"""

from enum import IntEnum
from typing import NamedTuple

from klamm.raft.log import NOTHING, OffsetAndEpoch
from klamm.raft.quorum import UNKNOWN_OFFSET
from klamm.raft.voters import Endpoint, ReplicaKey


class Error(IntEnum):
    """The Kafka error codes that raft itself answers with or acts on."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    NOT_LEADER_OR_FOLLOWER = 6
    BROKER_NOT_AVAILABLE = 8
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INCONSISTENT_CLUSTER_ID = 104
    INVALID_VOTER_KEY = 125


# These two fill the error field at the top of a response: the sender learns nothing of the receiver's epoch.
TOP_LEVEL_ERRORS = frozenset({Error.INCONSISTENT_CLUSTER_ID, Error.UNSUPPORTED_VERSION})


class VoteRequest(NamedTuple):
    """A nominee asks for a vote, or before that whether it would get one (`pre_vote`, KIP-996)."""

    cluster_id: str | None
    voter: ReplicaKey | None  # whom it is meant for; None when the sender's version cannot say
    candidate: ReplicaKey
    epoch: int
    log_end: OffsetAndEpoch
    pre_vote: bool


class VoteResponse(NamedTuple):
    """The answer, with the leader and epoch that the voter knows."""

    error: Error
    epoch: int
    leader_id: int | None
    granted: bool
    leader_endpoints: tuple[Endpoint, ...] = ()


class BeginQuorumEpochRequest(NamedTuple):
    """A new leader makes itself known to a voter."""

    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: int
    epoch: int
    leader_endpoints: tuple[Endpoint, ...] = ()


class EndQuorumEpochRequest(NamedTuple):
    """A leader resigns and names its successors, the most advanced log first."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoints: tuple[Endpoint, ...] = ()


class BeginQuorumEpochResponse(NamedTuple):
    """The answer to BeginQuorumEpoch."""

    error: Error
    epoch: int
    leader_id: int | None
    leader_endpoints: tuple[Endpoint, ...] = ()


class EndQuorumEpochResponse(NamedTuple):
    """The answer to EndQuorumEpoch."""

    error: Error
    epoch: int
    leader_id: int | None
    leader_endpoints: tuple[Endpoint, ...] = ()


class FetchRequest(NamedTuple):
    """A replica asks for what follows its own log; its position is also its acknowledgement."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int  # as the replica knows it; a larger one here is answered at once (KIP-1166)
    max_wait_ms: int
    max_bytes: int


class FetchResponse(NamedTuple):
    """Batches, or where the logs part, or which snapshot to begin with; and the leader's high watermark."""

    error: Error
    epoch: int
    leader_id: int | None
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes = b""
    leader_endpoints: tuple[Endpoint, ...] = ()


class FetchSnapshotRequest(NamedTuple):
    """A replica asks for the bytes of a snapshot from `position` on, which is how many it has (KIP-630)."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class FetchSnapshotResponse(NamedTuple):
    """A slice of the snapshot, which ends anywhere in a batch, and how many bytes the whole snapshot has."""

    error: Error
    epoch: int
    leader_id: int | None
    snapshot_id: OffsetAndEpoch = NOTHING
    size: int = 0
    position: int = 0
    unaligned_records: bytes = b""
    leader_endpoints: tuple[Endpoint, ...] = ()


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Response = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
