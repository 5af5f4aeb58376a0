"""Responses between the core and the wire."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, assert_never

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import quorum_messages as wire
from klamm.protocol.messages import voter_messages
from klamm.protocol.wire import codec
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    TOP_LEVEL_ERRORS,
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Request,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.voters.voter_set import Endpoint
from klamm.raft.wire import voters
from klamm.raft.wire.requests import PARTITION, Received, only_partition

WireResponse = (
    wire.VoteResponse
    | wire.BeginQuorumEpochResponse
    | wire.EndQuorumEpochResponse
    | wire.FetchResponse
    | wire.FetchSnapshotResponse
    | voters.WireResponse
)
E = TypeVar("E", wire.BeginQuorumEpochResponse, wire.EndQuorumEpochResponse)

RESPONSE_CARRIERS: Final[Mapping[int, type[Any]]] = {
    1: wire.FetchResponse,
    52: wire.VoteResponse,
    53: wire.BeginQuorumEpochResponse,
    54: wire.EndQuorumEpochResponse,
    59: wire.FetchSnapshotResponse,
    80: voter_messages.AddRaftVoterResponse,
    81: voter_messages.RemoveRaftVoterResponse,
    82: voter_messages.UpdateRaftVoterResponse,
}


class RefusedError(Exception):
    """A peer's response without quorum information: a top-level error, or an error of another partition."""


def encode_response(response: Response, version: int, listener: str) -> bytes:
    """The body of a response to a request that arrived on that listener."""
    return codec.write(_to_wire(response, listener), version)


def encode_refusal(api_key: int, version: int, error: ErrorCode) -> bytes:
    """The body of an answer with nothing but an error of the whole request."""
    return codec.write(RESPONSE_CARRIERS[api_key](error), version)


def encode_shape_refusal(api_key: int, version: int, received: Received) -> bytes:
    """The body of the response to a request that is not about the quorum's one partition (KIP-595)."""
    snapshot = received.snapshot
    if snapshot is None or len(snapshot.topics) != 1 or len(snapshot.topics[0].partitions) != 1:
        return encode_refusal(api_key, version, ErrorCode.INVALID_REQUEST)
    [topic] = snapshot.topics
    unknown = wire.SnapshotPartitionData(
        topic.partitions[0].partition,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        wire.SnapshotId(0, 0),
        wire.LeaderIdAndEpoch(0, 0),
    )
    return codec.write(wire.FetchSnapshotResponse(topics=(wire.SnapshotTopicData(topic.name, (unknown,)),)), version)


def decode_response(request: Request, version: int, body: bytes, listener: str) -> Response:
    """The response to a request of this side. Endpoints count as those of `listener`, the request's destination.

    Raises MalformedRequest when the bytes follow no schema, RefusedError if it is no response of the quorum.
    """
    match request:
        case FetchRequest():
            return _fetch_from_wire(codec.read_response(wire.FetchResponse, version, body), listener)
        case VoteRequest():
            return _vote_from_wire(codec.read_response(wire.VoteResponse, version, body), listener)
        case BeginQuorumEpochRequest():
            begun = codec.read_response(wire.BeginQuorumEpochResponse, version, body)
            return BeginQuorumEpochResponse(*_epoch_from_wire(begun, listener))
        case EndQuorumEpochRequest():
            ended = codec.read_response(wire.EndQuorumEpochResponse, version, body)
            return EndQuorumEpochResponse(*_epoch_from_wire(ended, listener))
        case FetchSnapshotRequest():
            return _snapshot_from_wire(codec.read_response(wire.FetchSnapshotResponse, version, body), listener)
        case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | ApiVersionsRequest():
            return voters.decode_response(request, version, body, listener)
        case _:
            assert_never(request)


# To the wire


def _to_wire(response: Response, listener: str) -> WireResponse:
    if isinstance(response, FetchResponse):  # nearly all are, and each change waits for some of them
        return _fetch_to_wire(response, listener)
    if isinstance(response, AddVoterResponse | RemoveVoterResponse | UpdateVoterResponse | ApiVersionsResponse):
        return voters.response_to_wire(response, listener)
    if response.error in TOP_LEVEL_ERRORS:
        return _top_level(response)
    match response:
        case VoteResponse():
            voted = wire.VotePartitionData(*_leader_part(response), response.granted)
            return wire.VoteResponse(
                topics=(wire.VoteTopicData(wire.METADATA_TOPIC, (voted,)),), node_endpoints=_nodes(response, listener)
            )
        case BeginQuorumEpochResponse():
            return _epoch_to_wire(wire.BeginQuorumEpochResponse, response, listener)
        case EndQuorumEpochResponse():
            return _epoch_to_wire(wire.EndQuorumEpochResponse, response, listener)
        case FetchSnapshotResponse():
            return _snapshot_to_wire(response, listener)
        case _:
            assert_never(response)


def _top_level(
    response: VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchSnapshotResponse,
) -> WireResponse:
    error = ErrorCode(response.error)
    match response:
        case VoteResponse():
            return wire.VoteResponse(error)
        case BeginQuorumEpochResponse():
            return wire.BeginQuorumEpochResponse(error)
        case EndQuorumEpochResponse():
            return wire.EndQuorumEpochResponse(error)
        case FetchSnapshotResponse():
            return wire.FetchSnapshotResponse(error)
        case _:
            assert_never(response)


def _epoch_to_wire(make: type[E], response: PartitionResponse, listener: str) -> E:
    topics = (wire.EpochTopicData(wire.METADATA_TOPIC, (wire.EpochPartitionData(*_leader_part(response)),)),)
    return make(topics=topics, node_endpoints=_nodes(response, listener))


def _fetch_to_wire(response: FetchResponse, listener: str) -> wire.FetchResponse:
    error = ErrorCode.NONE if response.error is Error.NONE else ErrorCode(response.error)
    if response.error in TOP_LEVEL_ERRORS:
        return wire.FetchResponse(error)
    diverging, snapshot_id = response.diverging, response.snapshot_id
    partition = wire.FetchPartitionData(
        PARTITION,
        error,
        response.high_watermark,
        log_start_offset=response.log_start_offset,
        diverging_epoch=wire.EpochEndOffset(diverging.epoch, diverging.offset) if diverging else wire.NO_END_OFFSET,
        current_leader=_leader(response),
        snapshot_id=wire.SnapshotId(snapshot_id.offset, snapshot_id.epoch) if snapshot_id else wire.NO_SNAPSHOT,
        records=response.records,
    )
    return wire.FetchResponse(
        responses=(wire.FetchTopicData((partition,), wire.METADATA_TOPIC_ID),),
        node_endpoints=_fetch_nodes(response.leader_id, response.leader_endpoints, listener),
    )


@lru_cache(maxsize=16)
def _fetch_nodes(
    leader_id: int | None, endpoints: tuple[Endpoint, ...], listener: str
) -> tuple[wire.FetchNodeEndpoint, ...]:
    found = [one for one in endpoints if one.listener == listener]
    return () if leader_id is None else tuple(wire.FetchNodeEndpoint(leader_id, *one[1:]) for one in found[:1])


def _snapshot_to_wire(response: FetchSnapshotResponse, listener: str) -> wire.FetchSnapshotResponse:
    partition = wire.SnapshotPartitionData(
        PARTITION,
        ErrorCode(response.error),
        wire.SnapshotId(response.snapshot_id.offset, response.snapshot_id.epoch),
        _leader(response),
        response.size,
        response.position,
        response.unaligned_records,
    )
    return wire.FetchSnapshotResponse(
        topics=(wire.SnapshotTopicData(wire.METADATA_TOPIC, (partition,)),), node_endpoints=_nodes(response, listener)
    )


def _leader_part(response: PartitionResponse) -> tuple[int, ErrorCode, int, int]:
    leader = _leader(response)
    return PARTITION, ErrorCode(response.error), leader.leader_id, leader.leader_epoch


def _leader(response: PartitionResponse) -> wire.LeaderIdAndEpoch:
    return wire.LeaderIdAndEpoch(-1 if response.leader_id is None else response.leader_id, response.epoch)


def _nodes(response: PartitionResponse, listener: str) -> tuple[wire.NodeEndpoint, ...]:
    """The leader's endpoint for the listener on which the request arrived (KIP-853, NodeEndpoints)."""
    if response.leader_id is None:
        return ()
    found = [endpoint for endpoint in response.leader_endpoints if endpoint.listener == listener]
    return tuple(wire.NodeEndpoint(response.leader_id, one.host, one.port) for one in found[:1])


# From the wire


def _vote_from_wire(found: wire.VoteResponse, listener: str) -> VoteResponse:
    if (error := _top_error(found)) is not None:
        return VoteResponse(error, 0, None, False)
    partition = _only(found.topics)
    leader = _leader_of(partition.leader_id, found.node_endpoints, listener)
    return VoteResponse(_error(partition), partition.leader_epoch, leader[0], partition.vote_granted, leader[1])


def _epoch_from_wire(
    found: wire.BeginQuorumEpochResponse | wire.EndQuorumEpochResponse, listener: str
) -> tuple[Error, int, int | None, tuple[Endpoint, ...]]:
    if (error := _top_error(found)) is not None:
        return error, 0, None, ()
    partition = _only(found.topics)
    leader = _leader_of(partition.leader_id, found.node_endpoints, listener)
    return _error(partition), partition.leader_epoch, *leader


def _fetch_from_wire(found: wire.FetchResponse, listener: str) -> FetchResponse:
    if (error := _top_error(found)) is not None:
        return FetchResponse(error, 0, None)
    if (
        len(found.responses) != 1
        or found.responses[0].topic_id != wire.METADATA_TOPIC_ID
        or len(found.responses[0].partitions) != 1
        or found.responses[0].partitions[0].partition_index != PARTITION
    ):
        raise RefusedError("an answer about another partition than the quorum's")
    [partition] = found.responses[0].partitions
    leader_id, endpoints = _leader_of(partition.current_leader.leader_id, found.node_endpoints, listener)
    diverging, snapshot_id = partition.diverging_epoch, partition.snapshot_id
    return FetchResponse(
        _error(partition),
        partition.current_leader.leader_epoch,
        leader_id,
        partition.high_watermark,
        partition.log_start_offset,
        _offset_and_epoch(diverging.end_offset, diverging.epoch),
        _offset_and_epoch(snapshot_id.end_offset, snapshot_id.epoch),
        partition.records or b"",
        endpoints,
    )


def _snapshot_from_wire(found: wire.FetchSnapshotResponse, listener: str) -> FetchSnapshotResponse:
    if (error := _top_error(found)) is not None:
        return FetchSnapshotResponse(error, 0, None)
    if (
        len(found.topics) != 1
        or found.topics[0].name != wire.METADATA_TOPIC
        or len(found.topics[0].partitions) != 1
        or found.topics[0].partitions[0].index != PARTITION
    ):
        raise RefusedError("an answer about another partition than the quorum's")
    [partition] = found.topics[0].partitions
    leader_id, endpoints = _leader_of(partition.current_leader.leader_id, found.node_endpoints, listener)
    return FetchSnapshotResponse(
        _error(partition),
        partition.current_leader.leader_epoch,
        leader_id,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.size,
        partition.position,
        partition.unaligned_records,
        endpoints,
    )


def _top_error(found: WireResponse) -> Error | None:
    """The errors of a whole request that the core acts on. Raises RefusedError for any other."""
    code = int(found.error_code)
    if code == ErrorCode.NONE:
        return None
    if code in {int(error) for error in TOP_LEVEL_ERRORS}:
        return Error(code)
    raise RefusedError(f"the request was refused: {found.error_code!r}")


def _error(partition: Any) -> Error:
    if partition.error_code is ErrorCode.NONE:
        return Error.NONE
    try:
        return Error(partition.error_code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR


def _only(topics: Any) -> Any:
    partition = only_partition(topics)
    if partition is None:
        raise RefusedError("an answer about another partition than the quorum's")
    return partition


def _leader_of(leader_id: int, nodes: Any, listener: str) -> tuple[int | None, tuple[Endpoint, ...]]:
    if leader_id < 0:
        return None, ()
    found = [Endpoint(listener, node.host, node.port) for node in nodes if node.node_id == leader_id]
    return leader_id, tuple(found[:1])


def _offset_and_epoch(offset: int, epoch: int) -> OffsetAndEpoch | None:
    return OffsetAndEpoch(offset, epoch) if offset >= 0 and epoch >= 0 else None
