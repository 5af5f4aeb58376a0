"""Forwards requests to an active controller in another process in envelopes (KIP-590); imported on first use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from klamm.broker.request import Answer, Handler, RequestContext
from klamm.client import ClientError
from klamm.client.peer import Outcome, Peer
from klamm.controller.operations import operation_of
from klamm.node.controller.active_controller import ATTEMPT_TIMEOUT_MS
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError, MalformedRequest
from klamm.protocol.messages.cluster import DescribeQuorumRequest, DescribeQuorumResponse
from klamm.protocol.messages.forwarding import Enveloped, EnvelopeRequest, EnvelopeResponse, answer_body, enclose
from klamm.protocol.messages.voter_messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from klamm.protocol.wire import codec

ENVELOPE_VERSIONS: Final = (0, 0)
QUORUM_MESSAGES: Final[dict[int, tuple[type[Any], type[Any]]]] = {
    ApiKey.DESCRIBE_QUORUM: (DescribeQuorumRequest, DescribeQuorumResponse),
    ApiKey.ADD_RAFT_VOTER: (AddRaftVoterRequest, AddRaftVoterResponse),
    ApiKey.REMOVE_RAFT_VOTER: (RemoveRaftVoterRequest, RemoveRaftVoterResponse),
}
"""Request and response types of the APIs that raft answers, with its own code for a node that is not the leader."""

log = logging.getLogger("klamm.node.controller")


class ForwardedRequest:
    """A request in flight to another process's controller, which needs no task in the usual case.

    If that controller is not the active one or does not answer, `forward` repeats the request.
    """

    def __init__(self, context: RequestContext, version: int, body: bytes, answer: Answer, forward: Handler) -> None:
        self._request = _enveloped(context, version, body)
        self._answer, self._forward = answer, forward
        self._is_over = False
        self._end_watch: Callable[[], None] = lambda: None

    def ask(self, peer: Peer, watch: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
        """Send it.

        `watch` calls its argument when another node becomes leader, and returns the function that stops that.
        """
        data = enclose(self._request)
        peer.send(
            EnvelopeRequest.API_KEY,
            ENVELOPE_VERSIONS,
            lambda version: codec.write_request(data, version),
            self._on_outcome,
            ATTEMPT_TIMEOUT_MS,
        )
        self._end_watch = watch(self._ask_again)

    def _on_outcome(self, outcome: Outcome) -> None:
        if self._is_over:
            return
        try:
            self._take(outcome)
        except Exception as error:  # no one else answers the client
            self._end()
            self._answer.fail(error)

    def _take(self, outcome: Outcome) -> None:
        try:
            if isinstance(outcome, ClientError):
                raise outcome
            envelope = codec.read_response(EnvelopeResponse, outcome.api_version, outcome.body)
        except (ClientError, MalformedRequest) as error:
            log.debug("repeating the request: %s", error)
            self._ask_again()
            return
        if envelope.error_code is ErrorCode.NOT_CONTROLLER:
            self._ask_again()
            return
        self._end()
        self._answer.written(partial(_opened, self._request))(envelope)

    def _ask_again(self) -> None:
        self._end()
        self._answer.leave_to(self._forward)

    def _end(self) -> None:
        self._is_over = True
        self._end_watch()


async def forward_to(peer: Peer, context: RequestContext, version: int, body: bytes, timeout_ms: int) -> bytes | None:
    """The body of that controller's response; None if it is not the active one.

    Raises ClientError, MalformedRequest.
    """
    request = _enveloped(context, version, body)
    envelope = await peer.ask(enclose(request), EnvelopeResponse, ENVELOPE_VERSIONS, timeout_ms)
    return None if envelope.error_code is ErrorCode.NOT_CONTROLLER else _opened(request, envelope)


def _enveloped(context: RequestContext, version: int, body: bytes) -> Enveloped:
    return Enveloped(context.api_key, version, context.client_id, context.address, body, context.principal)


def _opened(request: Enveloped, envelope: EnvelopeResponse) -> bytes:
    """The response of an active controller. Raises MalformedRequest."""
    version = request.api_version
    match envelope.error_code:
        case ErrorCode.NONE:
            return answer_body(request, envelope.response_data or b"")
        case ErrorCode.UNSUPPORTED_VERSION:
            # The client requests the versions again when it reconnects.
            raise MalformedRequest(f"the active controller does not support version {version} of API {request.api_key}")
        case code:
            text = f"The controller refused the forwarded request: {code.name}"
            return refused(request.api_key, version, request.body, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text))


def refused(api_key: int, version: int, body: bytes, error: KafkaError) -> bytes:
    """The response to a request that fails as a whole. Raises MalformedRequest."""
    if api_key in QUORUM_MESSAGES:
        request_type, response_type = QUORUM_MESSAGES[api_key]
        codec.read(request_type, version, body)
        return codec.write(response_type(error.code, error.message), version)
    operation = operation_of(api_key)
    assert operation is not None, f"API {api_key} is forwarded, so it is an operation of the controller"
    request = codec.read(operation.request, version, body)
    return codec.write(operation.refuse(request, error.code, error.message), version)
