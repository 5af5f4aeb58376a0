"""Voter changes between core and wire round-trip (KIP-853)."""

from dataclasses import replace

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import voter_messages as wire
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
from klamm.raft.wire.requests import api_key_of, decode_request, encode_request, versions_of
from klamm.raft.wire.responses import decode_response, encode_response

KEY = ReplicaKey(3, b"d" * 16)
WHERE = (Endpoint("CONTROLLER", "there", 9093), Endpoint("OTHER", "::1", 65535))
ADD, REMOVE = AddVoterRequest("c", KEY, WHERE, True, 500), RemoveVoterRequest("c", KEY)
UPDATE = UpdateVoterRequest("c", 7, KEY, WHERE, 0, 1)


@pytest.mark.parametrize("request_", [ADD, REMOVE, UPDATE, RemoveVoterRequest(None, ReplicaKey(3))])
def test_a_request_round_trips_in_every_version(request_):
    key, (low, high) = api_key_of(request_), versions_of(request_)
    for version in range(low, high + 1):
        assert decode_request(key, version, encode_request(request_, version)).message == request_


def test_only_version_1_can_request_a_response_before_the_commit():
    request = replace(ADD, ack_when_committed=False)
    assert versions_of(request) == (1, 1)
    assert decode_request(80, 1, encode_request(request, 1)).message == request


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (ADD, AddVoterResponse(Error.DUPLICATE_VOTER, "it is one")),
        (REMOVE, RemoveVoterResponse(Error.VOTER_NOT_FOUND, "it is none")),
        (UPDATE, UpdateVoterResponse(Error.NONE, 7, 1, (Endpoint("CONTROLLER", "here", 1),))),
        (UPDATE, UpdateVoterResponse(Error.FENCED_LEADER_EPOCH, 8, None)),
    ],
)
def test_a_response_round_trips(request_, response):
    assert decode_response(request_, 0, encode_response(response, 0, "CONTROLLER"), "CONTROLLER") == response


def test_the_kraft_versions_of_a_new_voter():
    features = (wire.FeatureRange("metadata.version", 7, 30), wire.FeatureRange("kraft.version", 0, 1))
    for supported, expected in ((features, (0, 1)), (features[:1], None)):
        body = codec.write(wire.ApiVersionsResponse(ErrorCode.NONE, supported_features=supported), 4)
        assert decode_response(ApiVersionsRequest(), 4, body, "CONTROLLER") == ApiVersionsResponse(Error.NONE, expected)
