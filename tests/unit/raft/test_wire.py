"""The core's messages on the wire: a version loses only fields that it lacks, and the core gets no invalid value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages import quorum_messages as wire
from klamm.protocol.wire import codec
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey
from klamm.raft.wire.requests import READ_BYTES_MAX, api_key_of, decode_request, encode_request, versions_of
from klamm.raft.wire.responses import (
    RefusedError,
    decode_response,
    encode_refusal,
    encode_response,
    encode_shape_refusal,
)

INT32, INT64 = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
CLUSTERS = st.none() | st.text(max_size=4)
KEYS = st.builds(ReplicaKey, INT32, st.none() | st.binary(min_size=16, max_size=16).filter(any))
ENDS = st.builds(OffsetAndEpoch, INT64, INT32)
ENDPOINTS = st.lists(
    st.builds(Endpoint, st.just("CONTROLLER"), st.text(max_size=3), st.integers(0, 65535)), max_size=1
).map(tuple)
REQUESTS = (
    st.builds(VoteRequest, CLUSTERS, st.none() | KEYS, KEYS, INT32, ENDS, st.booleans())
    | st.builds(BeginQuorumEpochRequest, CLUSTERS, st.none() | KEYS, INT32, INT32, ENDPOINTS)
    | st.builds(EndQuorumEpochRequest, CLUSTERS, INT32, INT32, st.lists(KEYS, max_size=3).map(tuple), ENDPOINTS)
    | st.builds(FetchRequest, CLUSTERS, KEYS, INT32, INT64, INT32, INT64, INT32, st.integers(0, READ_BYTES_MAX))
    | st.builds(FetchSnapshotRequest, CLUSTERS, KEYS, INT32, ENDS, INT64, st.integers(0, READ_BYTES_MAX))
)
ERRORS = st.sampled_from([error for error in Error if error not in (104, 35)])
RESPONSES = (
    st.builds(VoteResponse, ERRORS, INT32, INT32, st.booleans(), ENDPOINTS)
    | st.builds(BeginQuorumEpochResponse, ERRORS, INT32, INT32, ENDPOINTS)
    | st.builds(EndQuorumEpochResponse, ERRORS, INT32, INT32, ENDPOINTS)
    | st.builds(
        FetchResponse, ERRORS, INT32, INT32, INT64, INT64, st.none() | ENDS, st.none() | ENDS, st.binary(), ENDPOINTS
    )
    | st.builds(FetchSnapshotResponse, ERRORS, INT32, INT32, ENDS, INT64, INT64, st.binary(), ENDPOINTS)
)
KEY = ReplicaKey(1, b"d" * 16)
SAMPLES: dict[type[Any], Request] = {
    type(request): request
    for request in (
        VoteRequest("c", KEY, KEY, 1, OffsetAndEpoch(0, 0), False),
        BeginQuorumEpochRequest("c", KEY, 1, 1),
        EndQuorumEpochRequest("c", 1, 1, (KEY,)),
        FetchRequest("c", KEY, 1, 0, 0, -1, 500, 1024),
        FetchSnapshotRequest("c", KEY, 1, OffsetAndEpoch(5, 1), 0, 1024),
    )
}
ASKED: dict[type[Any], Request] = {
    VoteResponse: SAMPLES[VoteRequest],
    BeginQuorumEpochResponse: SAMPLES[BeginQuorumEpochRequest],
    EndQuorumEpochResponse: SAMPLES[EndQuorumEpochRequest],
    FetchResponse: SAMPLES[FetchRequest],
    FetchSnapshotResponse: SAMPLES[FetchSnapshotRequest],
}


def as_said(request: Any, version: int) -> Any:
    """The part of a request that a version can express."""
    match request:
        case VoteRequest() if version == 0:
            return replace(request, voter=None, candidate=ReplicaKey(request.candidate.id))
        case BeginQuorumEpochRequest() if version == 0:
            return replace(request, voter=None, leader_endpoints=())
        case EndQuorumEpochRequest() if version == 0:
            ids = tuple(ReplicaKey(key.id) for key in request.preferred_candidates)
            return replace(request, preferred_candidates=ids, leader_endpoints=())
        case FetchRequest():
            replica = request.replica if version >= 17 else ReplicaKey(request.replica.id)
            high_watermark = request.high_watermark if version >= 18 else wire.HIGH_WATERMARK_UNSUPPORTED
            return replace(request, replica=replica, high_watermark=high_watermark)
        case FetchSnapshotRequest() if version == 0:
            return replace(request, replica=ReplicaKey(request.replica.id))
    return request


@given(REQUESTS)
@settings(max_examples=150, deadline=None)
def test_a_request_round_trips_within_its_version(request: Request) -> None:
    low, high = versions_of(request)
    for version in range(low, high + 1):
        received = decode_request(api_key_of(request), version, encode_request(request, version))
        assert received.message == as_said(request, version)
        assert received.cluster_id == request.cluster_id


@given(RESPONSES)
@settings(max_examples=150, deadline=None)
def test_a_response_round_trips(response: Response) -> None:
    asked = ASKED[type(response)]
    low, high = versions_of(asked)
    for version in range(low, high + 1):
        body = encode_response(response, version, "CONTROLLER")
        knows_endpoints = version >= (16 if isinstance(response, FetchResponse) else 1)
        expected = response if knows_endpoints else replace(response, leader_endpoints=())
        assert decode_response(asked, version, body, "CONTROLLER") == expected


def test_a_leader_is_returned_with_its_endpoint_for_the_requested_listener() -> None:
    endpoints = (Endpoint("A", "a", 1), Endpoint("B", "b", 2))
    response = VoteResponse(Error.NONE, 3, 1, False, endpoints)
    [node] = codec.read_response(wire.VoteResponse, 2, encode_response(response, 2, "B")).node_endpoints
    assert (node.node_id, node.host, node.port) == (1, "b", 2)
    assert codec.read_response(wire.VoteResponse, 2, encode_response(response, 2, "C")).node_endpoints == ()


@pytest.mark.parametrize("response", [VoteResponse, FetchResponse], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("error", [Error.INCONSISTENT_CLUSTER_ID, Error.UNSUPPORTED_VERSION])
def test_a_top_level_error_contains_nothing_of_the_quorum(response: Any, error: Error) -> None:
    made = VoteResponse(error, 7, 1, False) if response is VoteResponse else FetchResponse(error, 7, 1)
    asked = ASKED[response]
    version = versions_of(asked)[1]
    found = decode_response(asked, version, encode_response(made, version, "CONTROLLER"), "CONTROLLER")
    assert (found.error, found.epoch, found.leader_id) == (error, 0, None)


@pytest.mark.parametrize("cls", SAMPLES, ids=lambda cls: cls.__name__)
def test_other_topics_and_partitions_never_reach_the_core(cls: type[Any]) -> None:
    request = SAMPLES[cls]
    api_key, version = api_key_of(request), versions_of(request)[1]
    carriers = {
        VoteRequest: wire.VoteRequest,
        BeginQuorumEpochRequest: wire.BeginQuorumEpochRequest,
        EndQuorumEpochRequest: wire.EndQuorumEpochRequest,
        FetchRequest: wire.FetchRequest,
        FetchSnapshotRequest: wire.FetchSnapshotRequest,
    }
    carrier: Any = carriers[cls]
    found = codec.read(carrier, version, encode_request(request, version))
    for topics in wrong_shapes(found.topics[0]):
        asked = carrier(**{name: getattr(found, name) for name in found.__slots__} | {"topics": topics})
        received = decode_request(api_key, version, codec.write_request(asked, version))
        assert received.message is None, topics
        body = encode_shape_refusal(api_key, version, received)
        if cls is FetchSnapshotRequest and len(topics) == 1 and len(topics[0].partitions) == 1:
            answer = codec.read_response(wire.FetchSnapshotResponse, version, body)
            assert answer.topics[0].name == topics[0].name
            assert answer.topics[0].partitions[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert body == encode_refusal(api_key, version, ErrorCode.INVALID_REQUEST)
            with pytest.raises(RefusedError, match="INVALID_REQUEST"):
                decode_response(request, version, body, "CONTROLLER")


def wrong_shapes(topic: Any) -> list[tuple[Any, ...]]:
    def changed(value: Any, **fields: object) -> Any:
        return type(value)(**{name: getattr(value, name) for name in value.__slots__} | fields)

    [partition] = topic.partitions
    named = next(name for name in ("topic_name", "name", "topic_id") if name in topic.__slots__)
    numbered = "partition_index" if "partition_index" in partition.__slots__ else "partition"
    another: Any = b"t" * 16 if named == "topic_id" else "t"
    return [
        (),
        (topic, topic),
        (changed(topic, **{named: another}),),
        (changed(topic, partitions=()),),
        (changed(topic, partitions=(partition, partition)),),
        (changed(topic, partitions=(changed(partition, **{numbered: 1}),)),),
    ]


def test_an_unknown_error_is_accepted_and_an_empty_response_is_rejected() -> None:
    vote = SAMPLES[VoteRequest]
    partition = wire.VotePartitionData(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, 3, False)
    response = wire.VoteResponse(topics=(wire.VoteTopicData(wire.METADATA_TOPIC, (partition,)),))
    found = decode_response(vote, 2, codec.write(response, 2), "CONTROLLER")
    assert found == VoteResponse(Error.UNKNOWN_SERVER_ERROR, 3, None, False)
    for request in SAMPLES.values():
        version = versions_of(request)[1]
        with pytest.raises(RefusedError):
            decode_response(request, version, encode_refusal(api_key_of(request), version, ErrorCode.NONE), "C")


@pytest.mark.parametrize("cls", SAMPLES, ids=lambda cls: cls.__name__)
def test_truncated_bytes_are_malformed(cls: type[Any]) -> None:
    request = SAMPLES[cls]
    api_key, version = api_key_of(request), versions_of(request)[1]
    body = encode_request(request, version)
    for size in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_request(api_key, version, body[:size])


def test_a_pre_vote_is_sent_in_no_version_that_would_make_it_a_vote() -> None:
    vote = SAMPLES[VoteRequest]
    assert isinstance(vote, VoteRequest)
    assert versions_of(vote) == (0, 2)
    assert versions_of(replace(vote, pre_vote=True)) == (2, 2)


def test_a_fetch_response_is_limited_by_memory() -> None:
    fetch = replace(SAMPLES[FetchRequest], max_bytes=2**31 - 1)
    received = decode_request(1, 18, encode_request(fetch, 18)).message
    assert isinstance(received, FetchRequest)
    assert received.max_bytes == READ_BYTES_MAX
