"""Changes of the voter set between the core and the wire: these messages name no topics (KIP-853)."""

from __future__ import annotations

from typing import Any, assert_never

from klamm._engine import __version__
from klamm.protocol.errors import ErrorCode
from klamm.protocol.features import KRAFT_VERSION
from klamm.protocol.messages import voter_messages as wire
from klamm.protocol.messages.quorum_messages import NO_DIRECTORY
from klamm.protocol.wire import codec
from klamm.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Error,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey

VoterRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | ApiVersionsRequest
VoterResponse = AddVoterResponse | RemoveVoterResponse | UpdateVoterResponse | ApiVersionsResponse
WireResponse = (
    wire.AddRaftVoterResponse | wire.RemoveRaftVoterResponse | wire.UpdateRaftVoterResponse | wire.ApiVersionsResponse
)


def api_key_of(request: VoterRequest) -> int:
    """The API of a request."""
    match request:
        case AddVoterRequest():
            return wire.AddRaftVoterRequest.API_KEY
        case RemoveVoterRequest():
            return wire.RemoveRaftVoterRequest.API_KEY
        case UpdateVoterRequest():
            return wire.UpdateRaftVoterRequest.API_KEY
        case ApiVersionsRequest():
            return wire.ApiVersionsRequest.API_KEY
        case _:
            assert_never(request)


# Requests


def request_to_wire(request: VoterRequest) -> Any:
    """The wire's own type of a request."""
    match request:
        case AddVoterRequest():
            return wire.AddRaftVoterRequest(
                request.cluster_id,
                request.timeout_ms,
                request.voter.id,
                request.voter.directory_id or NO_DIRECTORY,
                _listeners_to_wire(request.endpoints),
                request.ack_when_committed,
            )
        case RemoveVoterRequest():
            directory_id = request.voter.directory_id or NO_DIRECTORY
            return wire.RemoveRaftVoterRequest(request.cluster_id, request.voter.id, directory_id)
        case UpdateVoterRequest():
            return wire.UpdateRaftVoterRequest(
                request.cluster_id,
                request.epoch,
                request.voter.id,
                request.voter.directory_id or NO_DIRECTORY,
                _listeners_to_wire(request.endpoints),
                wire.KRaftVersionFeature(request.kraft_version_min, request.kraft_version_max),
            )
        case ApiVersionsRequest():
            return wire.ApiVersionsRequest("klamm", __version__)
        case _:
            assert_never(request)


def add_from_wire(found: wire.AddRaftVoterRequest) -> AddVoterRequest:
    """A voter to add."""
    return AddVoterRequest(
        found.cluster_id,
        _key_from_wire(found.voter_id, found.voter_directory_id),
        _listeners_from_wire(found.listeners),
        found.ack_when_committed,
        found.timeout_ms,
    )


def remove_from_wire(found: wire.RemoveRaftVoterRequest) -> RemoveVoterRequest:
    """A voter to remove."""
    return RemoveVoterRequest(found.cluster_id, _key_from_wire(found.voter_id, found.voter_directory_id))


def update_from_wire(found: wire.UpdateRaftVoterRequest) -> UpdateVoterRequest:
    """A voter's own entry."""
    versions = found.k_raft_version_feature
    return UpdateVoterRequest(
        found.cluster_id,
        found.current_leader_epoch,
        _key_from_wire(found.voter_id, found.voter_directory_id),
        _listeners_from_wire(found.listeners),
        versions.min_supported_version,
        versions.max_supported_version,
    )


# Responses


def response_to_wire(response: VoterResponse, listener: str) -> WireResponse:
    """The protocol's type of a response to a request that arrived on that listener."""
    code = ErrorCode(response.error)
    match response:
        case AddVoterResponse():
            return wire.AddRaftVoterResponse(code, response.message)
        case RemoveVoterResponse():
            return wire.RemoveRaftVoterResponse(code, response.message)
        case UpdateVoterResponse():
            return wire.UpdateRaftVoterResponse(code, _leader_to_wire(response, listener))
        case ApiVersionsResponse():
            return wire.ApiVersionsResponse(code, supported_features=_features(response))
        case _:
            assert_never(response)


def decode_response(request: VoterRequest, version: int, body: bytes, listener: str) -> VoterResponse:
    """The answer to a request of this side. Raises MalformedRequest."""
    match request:
        case AddVoterRequest():
            added = codec.read_response(wire.AddRaftVoterResponse, version, body)
            return AddVoterResponse(_error(added.error_code), added.error_message)
        case RemoveVoterRequest():
            removed = codec.read_response(wire.RemoveRaftVoterResponse, version, body)
            return RemoveVoterResponse(_error(removed.error_code), removed.error_message)
        case UpdateVoterRequest():
            return _updated(codec.read_response(wire.UpdateRaftVoterResponse, version, body), listener)
        case ApiVersionsRequest():
            found = codec.read_response(wire.ApiVersionsResponse, version, body)
            ranges = [
                (one.min_version, one.max_version) for one in found.supported_features if one.name == KRAFT_VERSION
            ]
            return ApiVersionsResponse(_error(found.error_code), ranges[0] if ranges else None)
        case _:
            assert_never(request)


def _updated(found: wire.UpdateRaftVoterResponse, listener: str) -> UpdateVoterResponse:
    leader = found.current_leader
    endpoints = (Endpoint(listener, leader.host, leader.port),) if leader.leader_id >= 0 and leader.host else ()
    leader_id = leader.leader_id if leader.leader_id >= 0 else None
    return UpdateVoterResponse(_error(found.error_code), leader.leader_epoch, leader_id, endpoints)


# Parts


def _features(response: ApiVersionsResponse) -> tuple[wire.FeatureRange, ...]:
    return () if response.kraft_versions is None else (wire.FeatureRange(KRAFT_VERSION, *response.kraft_versions),)


def _leader_to_wire(response: UpdateVoterResponse, listener: str) -> wire.CurrentLeader:
    if response.leader_id is None:
        return wire.CurrentLeader(-1, response.epoch)
    found = next((one for one in response.leader_endpoints if one.listener == listener), None)
    where = (found.host, found.port) if found is not None else ("", 0)
    return wire.CurrentLeader(response.leader_id, response.epoch, *where)


def _error(code: int) -> Error:
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR


def _key_from_wire(node_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(node_id, None if directory_id == NO_DIRECTORY else directory_id)


def _listeners_to_wire(endpoints: tuple[Endpoint, ...]) -> tuple[wire.VoterListener, ...]:
    return tuple(wire.VoterListener(one.listener, one.host, one.port) for one in endpoints)


def _listeners_from_wire(listeners: tuple[wire.VoterListener, ...]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in listeners)
