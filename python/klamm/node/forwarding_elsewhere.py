"""Forwarding to an active controller in another process, by envelopes (KIP-590); imported when there is one."""

from __future__ import annotations

from typing import Any, Final

from klamm.broker.request import RequestContext
from klamm.controller.refusals import refuse
from klamm.protocol import codec, configs, feature_updates, registration, topics
from klamm.protocol.client import Peer
from klamm.protocol.cluster import DescribeQuorumRequest, DescribeQuorumResponse
from klamm.protocol.errors import ErrorCode, KafkaError, MalformedRequest
from klamm.protocol.forwarding import Enveloped, EnvelopeResponse, answer_body, enclose
from klamm.protocol.voter_messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

ENVELOPE_VERSIONS: Final = (0, 0)
QUORUM_ANSWERS: Final[dict[int, type[Any]]] = {
    55: DescribeQuorumResponse,
    80: AddRaftVoterResponse,
    81: RemoveRaftVoterResponse,
}
"""The answers of those that raft gives, with their codes."""
REQUESTS: Final[dict[int, type[Any]]] = {
    each.API_KEY: each
    for each in (
        topics.CreateTopicsRequest,
        topics.DeleteTopicsRequest,
        topics.CreatePartitionsRequest,
        topics.ElectLeadersRequest,
        configs.AlterConfigsRequest,
        configs.IncrementalAlterConfigsRequest,
        feature_updates.UpdateFeaturesRequest,
        registration.UnregisterBrokerRequest,
        DescribeQuorumRequest,
        AddRaftVoterRequest,
        RemoveRaftVoterRequest,
    )
}
"""What may be forwarded, of what there is yet (facts 6.3)."""


async def forward_to(peer: Peer, context: RequestContext, version: int, body: bytes, timeout_ms: int) -> bytes | None:
    """The body of that controller's answer; None when it is not the active one. Raises PeerError, MalformedRequest."""
    request = Enveloped(context.api_key, version, context.client_id, context.peer, body)
    envelope = await peer.ask(enclose(request), EnvelopeResponse, ENVELOPE_VERSIONS, timeout_ms)
    match envelope.error_code:
        case ErrorCode.NONE:
            return answer_body(request, envelope.response_data or b"")
        case ErrorCode.NOT_CONTROLLER:
            return None
        case ErrorCode.UNSUPPORTED_VERSION:
            # The client learns anew what is spoken when it connects again.
            raise MalformedRequest(f"the active controller has no version {version} of API {context.api_key}")
        case code:
            text = f"The controller refused what this broker handed on: {code.name}"
            return refused(context.api_key, version, body, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text))


def refused(api_key: int, version: int, body: bytes, error: KafkaError) -> bytes:
    """The answer to a request that fails as a whole. Raises MalformedRequest."""
    request = codec.read(REQUESTS[api_key], version, body)
    if api_key in QUORUM_ANSWERS:
        return codec.write(QUORUM_ANSWERS[api_key](error.code, error.message), version)
    return codec.write(refuse(request, error), version)
