"""Requests between the core and the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

from klamm.protocol.api_key import ApiKey
from klamm.protocol.messages import quorum_messages as wire
from klamm.protocol.messages import voter_messages
from klamm.protocol.wire import codec
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Request,
    UpdateVoterRequest,
    VoteRequest,
)
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey
from klamm.raft.wire import voters

_VOTERS: Final[Mapping[int, tuple[int, int]]] = {
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0),
    ApiKey.API_VERSIONS: (3, 4),
}
VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    ApiKey.FETCH: (13, 18),
    ApiKey.VOTE: (0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
    **_VOTERS,
}
"""Lowest and highest version that a request is sent in; a fetch that knows the topic only by name is none."""

PARTITION: Final = 0
# A slice of the log or of a snapshot is in memory as a whole.
READ_BYTES_MAX: Final = 8 << 20


class Received(NamedTuple):
    """A request of a peer. `message` is None if its topics are not the quorum's only topic."""

    cluster_id: str | None
    message: Request | None
    snapshot: wire.FetchSnapshotRequest | None = None
    """The request as received: an error response echoes its fields."""


def api_key_of(request: Request) -> int:
    """The API of a request."""
    match request:
        case FetchRequest():
            return wire.FetchRequest.API_KEY
        case VoteRequest():
            return wire.VoteRequest.API_KEY
        case BeginQuorumEpochRequest():
            return wire.BeginQuorumEpochRequest.API_KEY
        case EndQuorumEpochRequest():
            return wire.EndQuorumEpochRequest.API_KEY
        case FetchSnapshotRequest():
            return wire.FetchSnapshotRequest.API_KEY
        case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | ApiVersionsRequest():
            return voters.api_key_of(request)
        case _:
            assert_never(request)


def versions_of(request: Request) -> tuple[int, int]:
    """The versions that can express the request: before version 2 a vote is no pre-vote (KIP-996), and before 1 an

    added voter is always acknowledged when committed.
    """
    low, high = VERSIONS[api_key_of(request)]
    if isinstance(request, AddVoterRequest) and not request.ack_when_committed:
        return 1, high
    return (2, high) if isinstance(request, VoteRequest) and request.pre_vote else (low, high)


def encode_request(request: Request, version: int) -> bytes:
    """The body of a request."""
    return codec.write_request(_to_wire(request), version)


def decode_request(api_key: int, version: int, body: bytes) -> Received:
    """A request from its body. Raises MalformedRequest when the bytes follow no schema."""
    carrier, take = DECODERS[api_key]
    found = codec.read(carrier, version, body)
    message = take(found)
    return Received(found.cluster_id, message, found if isinstance(found, wire.FetchSnapshotRequest) else None)


# To the wire


def _to_wire(request: Request) -> Any:
    match request:
        case FetchRequest():
            return _fetch_to_wire(request)
        case VoteRequest():
            return _vote_to_wire(request)
        case BeginQuorumEpochRequest():
            return _begin_to_wire(request)
        case EndQuorumEpochRequest():
            return _end_to_wire(request)
        case FetchSnapshotRequest():
            return _snapshot_to_wire(request)
        case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | ApiVersionsRequest():
            return voters.request_to_wire(request)
        case _:
            assert_never(request)


def _vote_to_wire(request: VoteRequest) -> wire.VoteRequest:
    partition = wire.VotePartition(
        PARTITION,
        request.epoch,
        request.candidate.id,
        request.log_end.epoch,
        request.log_end.offset,
        directory_to_wire(request.candidate),
        directory_to_wire(request.voter),
        request.pre_vote,
    )
    topics = (wire.VoteTopic(wire.METADATA_TOPIC, (partition,)),)
    return wire.VoteRequest(request.cluster_id, topics, _id_of(request.voter))


def _begin_to_wire(request: BeginQuorumEpochRequest) -> wire.BeginQuorumEpochRequest:
    partition = wire.BeginPartition(PARTITION, request.leader_id, request.epoch, directory_to_wire(request.voter))
    topics = (wire.BeginTopic(wire.METADATA_TOPIC, (partition,)),)
    endpoints = _endpoints_to_wire(request.leader_endpoints)
    return wire.BeginQuorumEpochRequest(request.cluster_id, topics, _id_of(request.voter), endpoints)


def _end_to_wire(request: EndQuorumEpochRequest) -> wire.EndQuorumEpochRequest:
    ids = tuple(candidate.id for candidate in request.preferred_candidates)
    keys = tuple(wire.Candidate(key.id, directory_to_wire(key)) for key in request.preferred_candidates)
    partition = wire.EndPartition(PARTITION, request.leader_id, request.epoch, ids, keys)
    topics = (wire.EndTopic(wire.METADATA_TOPIC, (partition,)),)
    return wire.EndQuorumEpochRequest(request.cluster_id, topics, _endpoints_to_wire(request.leader_endpoints))


def _fetch_to_wire(request: FetchRequest) -> wire.FetchRequest:
    partition = wire.FetchPartition(
        PARTITION,
        request.fetch_offset,
        current_leader_epoch=request.epoch,
        last_fetched_epoch=request.last_fetched_epoch,
        replica_directory_id=directory_to_wire(request.replica),
        high_watermark=request.high_watermark,
    )
    return wire.FetchRequest(
        request.max_wait_ms,
        (wire.FetchTopic((partition,), wire.METADATA_TOPIC_ID),),
        request.cluster_id,
        replica_id=request.replica.id,
        replica_state=wire.FetchingReplica(request.replica.id),
        max_bytes=request.max_bytes,
    )


def _snapshot_to_wire(request: FetchSnapshotRequest) -> wire.FetchSnapshotRequest:
    partition = wire.SnapshotPartition(
        PARTITION,
        request.epoch,
        wire.SnapshotId(request.snapshot_id.offset, request.snapshot_id.epoch),
        request.position,
        directory_to_wire(request.replica),
    )
    topics = (wire.SnapshotTopic(wire.METADATA_TOPIC, (partition,)),)
    return wire.FetchSnapshotRequest(topics, request.cluster_id, request.replica.id, request.max_bytes)


# From the wire


def _vote_from_wire(found: wire.VoteRequest) -> VoteRequest | None:
    partition: wire.VotePartition | None = only_partition(found.topics)
    if partition is None:
        return None
    return VoteRequest(
        found.cluster_id,
        _receiver(found.voter_id, partition.voter_directory_id),
        key_from_wire(partition.replica_id, partition.replica_directory_id),
        partition.replica_epoch,
        OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        partition.pre_vote,
    )


def _begin_from_wire(found: wire.BeginQuorumEpochRequest) -> BeginQuorumEpochRequest | None:
    partition: wire.BeginPartition | None = only_partition(found.topics)
    if partition is None:
        return None
    voter = _receiver(found.voter_id, partition.voter_directory_id)
    endpoints = _endpoints_from_wire(found.leader_endpoints)
    return BeginQuorumEpochRequest(found.cluster_id, voter, partition.leader_id, partition.leader_epoch, endpoints)


def _end_from_wire(found: wire.EndQuorumEpochRequest) -> EndQuorumEpochRequest | None:
    partition: wire.EndPartition | None = only_partition(found.topics)
    if partition is None:
        return None
    keys = [key_from_wire(one.candidate_id, one.candidate_directory_id) for one in partition.preferred_candidates]
    candidates = tuple(keys) or tuple(map(ReplicaKey, partition.preferred_successors))
    endpoints = _endpoints_from_wire(found.leader_endpoints)
    return EndQuorumEpochRequest(found.cluster_id, partition.leader_id, partition.leader_epoch, candidates, endpoints)


def _fetch_from_wire(found: wire.FetchRequest) -> FetchRequest | None:
    topic = found.topics[0] if len(found.topics) == 1 else None
    if topic is None or topic.topic_id != wire.METADATA_TOPIC_ID or len(topic.partitions) != 1:
        return None
    [partition] = topic.partitions
    if partition.partition != PARTITION:
        return None
    replica_id = found.replica_id if found.replica_id >= 0 else found.replica_state.replica_id
    return FetchRequest(
        found.cluster_id,
        key_from_wire(replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
        found.max_wait_ms,
        _bounded(found.max_bytes),
    )


def _snapshot_from_wire(found: wire.FetchSnapshotRequest) -> FetchSnapshotRequest | None:
    topic = found.topics[0] if len(found.topics) == 1 else None
    if topic is None or topic.name != wire.METADATA_TOPIC or len(topic.partitions) != 1:
        return None
    [partition] = topic.partitions
    if partition.partition != PARTITION:
        return None
    return FetchSnapshotRequest(
        found.cluster_id,
        key_from_wire(found.replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        _bounded(found.max_bytes),
    )


DECODERS: Final[Mapping[int, tuple[Any, Callable[[Any], Request | None]]]] = {
    1: (wire.FetchRequest, _fetch_from_wire),
    52: (wire.VoteRequest, _vote_from_wire),
    53: (wire.BeginQuorumEpochRequest, _begin_from_wire),
    54: (wire.EndQuorumEpochRequest, _end_from_wire),
    59: (wire.FetchSnapshotRequest, _snapshot_from_wire),
    80: (voter_messages.AddRaftVoterRequest, voters.add_from_wire),
    81: (voter_messages.RemoveRaftVoterRequest, voters.remove_from_wire),
    82: (voter_messages.UpdateRaftVoterRequest, voters.update_from_wire),
}


# Parts of both


def only_partition(topics: Sequence[Any]) -> Any:
    """The partition of messages that name topics; None when it is not the only one, or not the quorum's."""
    if len(topics) != 1 or topics[0].topic_name != wire.METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    [partition] = topics[0].partitions
    return partition if partition.partition_index == PARTITION else None


def key_from_wire(node_id: int, directory_id: bytes) -> ReplicaKey:
    """A replica; its directory id is zero while unknown."""
    return ReplicaKey(node_id, None if directory_id == wire.NO_DIRECTORY else directory_id)


def directory_to_wire(key: ReplicaKey | None) -> bytes:
    """The 16 bytes of a replica's directory id."""
    return (key.directory_id if key is not None else None) or wire.NO_DIRECTORY


def _receiver(node_id: int, directory_id: bytes) -> ReplicaKey | None:
    return key_from_wire(node_id, directory_id) if node_id >= 0 else None


def _id_of(key: ReplicaKey | None) -> int:
    return -1 if key is None else key.id


def _bounded(max_bytes: int) -> int:
    return min(max_bytes, READ_BYTES_MAX)


def _endpoints_to_wire(endpoints: tuple[Endpoint, ...]) -> tuple[wire.LeaderEndpoint, ...]:
    return tuple(wire.LeaderEndpoint(one.listener, one.host, one.port) for one in endpoints)


def _endpoints_from_wire(endpoints: tuple[wire.LeaderEndpoint, ...]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in endpoints)
