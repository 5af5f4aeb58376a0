"""The raft requests and responses as values, and their error codes (KIP-595, KIP-630, KIP-853).

A message names one partition only, so that its shape cannot be wrong here: the wire's topics and partitions are checked
and stripped where it is decoded. Bulk bytes are not in an outgoing message: see `effects.ReadRange`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from klamm.protocol.value import Value
from klamm.raft.log.metadata_log import NOTHING, OffsetAndEpoch
from klamm.raft.voters.quorum import UNKNOWN_OFFSET
from klamm.raft.voters.voter_set import KRAFT_VERSION_MAX, KRAFT_VERSION_MIN, Endpoint, ReplicaKey


class Error(IntEnum):
    """The Kafka error codes that raft itself answers with or acts on."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INCONSISTENT_CLUSTER_ID = 104
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


# These two fill the error field at the top of a response: the sender learns nothing of the receiver's epoch.
TOP_LEVEL_ERRORS = frozenset({Error.INCONSISTENT_CLUSTER_ID, Error.UNSUPPORTED_VERSION})

# Errors that a FetchSnapshot response may carry instead of a slice.
SNAPSHOT_ERRORS = frozenset({Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE})


class VoteRequest(Value):
    """A nominee asks for a vote, or before that whether it would get one (`pre_vote`, KIP-996)."""

    cluster_id: str | None
    voter: ReplicaKey | None  # the intended receiver; None if the sender's version does not name it
    candidate: ReplicaKey
    epoch: int
    log_end: OffsetAndEpoch
    pre_vote: bool


class VoteResponse(Value):
    """The answer, with the leader and epoch that the voter knows."""

    error: Error
    epoch: int
    leader_id: int | None
    granted: bool
    leader_endpoints: tuple[Endpoint, ...] = ()


class BeginQuorumEpochRequest(Value):
    """A new leader notifies a voter."""

    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: int
    epoch: int
    leader_endpoints: tuple[Endpoint, ...] = ()


class EndQuorumEpochRequest(Value):
    """A leader resigns and names its successors, the most advanced log first."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoints: tuple[Endpoint, ...] = ()


class BeginQuorumEpochResponse(Value):
    """The answer to BeginQuorumEpoch."""

    error: Error
    epoch: int
    leader_id: int | None
    leader_endpoints: tuple[Endpoint, ...] = ()


class EndQuorumEpochResponse(Value):
    """The answer to EndQuorumEpoch."""

    error: Error
    epoch: int
    leader_id: int | None
    leader_endpoints: tuple[Endpoint, ...] = ()


class FetchRequest(Value):
    """A replica asks for what follows its own log; its position is also its acknowledgement."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int  # as the replica knows it; a larger one here is answered at once (KIP-1166)
    max_wait_ms: int
    max_bytes: int


class FetchResponse(Value):
    """Batches, or where the logs diverge, or which snapshot to fetch; and the leader's high watermark."""

    error: Error
    epoch: int
    leader_id: int | None
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes = b""
    leader_endpoints: tuple[Endpoint, ...] = ()


class FetchSnapshotRequest(Value):
    """A replica asks for the bytes of a snapshot from `position` on, which is how many it has (KIP-630)."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class FetchSnapshotResponse(Value):
    """A slice of the snapshot, which ends anywhere in a batch, and how many bytes the whole snapshot has."""

    error: Error
    epoch: int
    leader_id: int | None
    snapshot_id: OffsetAndEpoch = NOTHING
    size: int = 0
    position: int = 0
    unaligned_records: bytes = b""
    leader_endpoints: tuple[Endpoint, ...] = ()


class AddVoterRequest(Value):
    """An operator, or a controller that joins by itself, asks the leader for a further voter (KIP-853, KIP-1186)."""

    cluster_id: str | None
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    ack_when_committed: bool = True  # else it is answered once appended
    timeout_ms: int = 0  # as Kafka's leader, this one goes by its own time-out


class AddVoterResponse(Value):
    """Whether the voter is in the set, and why not in words."""

    error: Error
    message: str | None = None


class RemoveVoterRequest(Value):
    """An operator, or a controller whose disk was replaced, requests the removal of a voter.

    Without a directory id it is the voter of that node id, of which there is at most one (KAFKA-18775).
    """

    cluster_id: str | None
    voter: ReplicaKey


class RemoveVoterResponse(Value):
    """Whether the voter was removed, or the reason why not."""

    error: Error
    message: str | None = None


class UpdateVoterRequest(Value):
    """A voter reports its endpoints and supported kraft.versions to the leader."""

    cluster_id: str | None
    epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_version_min: int = KRAFT_VERSION_MIN
    kraft_version_max: int = KRAFT_VERSION_MAX


class UpdateVoterResponse(Value):
    """The answer to UpdateRaftVoter."""

    error: Error
    epoch: int
    leader_id: int | None
    leader_endpoints: tuple[Endpoint, ...] = ()


class ApiVersionsRequest(Value):
    """The leader requests the kraft.versions of a new voter. Only sent; the listener answers it."""


class ApiVersionsResponse(Value):
    """The supported range of kraft.version; None if the node does not know this feature."""

    error: Error
    kraft_versions: tuple[int, int] | None = None


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ApiVersionsRequest
)
# Those about the one partition.
PartitionResponse = (
    VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
)
# Responses that carry the epoch and the leader known to their sender.
EpochResponse = PartitionResponse | UpdateVoterResponse
Response = EpochResponse | AddVoterResponse | RemoveVoterResponse | ApiVersionsResponse

# Requests whose responses contain an epoch.
RESPONSE_OF: Final[dict[type[Request], type[EpochResponse]]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
    UpdateVoterRequest: UpdateVoterResponse,
}
