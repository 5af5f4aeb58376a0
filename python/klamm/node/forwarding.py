"""What clients ask of a broker and the active controller answers: handed on with who asked and from where (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

from klamm.broker.request import Handler, RequestContext
from klamm.controller.driver import ControllerDriver
from klamm.controller.refusals import refuse
from klamm.node.active_controller import FORWARD_TIMEOUT_MS, ActiveController
from klamm.protocol import codec, configs, feature_updates, registration, topics
from klamm.protocol.client import Address
from klamm.protocol.cluster import DescribeQuorumRequest, DescribeQuorumResponse
from klamm.protocol.errors import ErrorCode, KafkaError, MalformedRequest
from klamm.protocol.forwarding import Enveloped, EnvelopeResponse, answer_body, enclose
from klamm.protocol.voter_messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

T = TypeVar("T")

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


class Forwarder:
    """Gives clients' requests to the active controller, in this process or another."""

    def __init__(self, active: ActiveController, handler_here: Callable[[int], Handler | None]) -> None:
        """`handler_here` finds what answers an API where the controller of this process is the active one."""
        self._active, self._handler_here = active, handler_here

    async def forward(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The body of the answer. Raises MalformedRequest where the client is to be disconnected."""

        async def here(controller: ControllerDriver) -> bytes | None:
            handler = self._handler_here(context.api_key)
            assert handler is not None, f"API {context.api_key} is a controller's"
            return await answer_while_active(controller, handler, context, version, body)

        async def elsewhere(address: Address, timeout_ms: int) -> bytes | None:
            request = Enveloped(context.api_key, version, context.client_id, context.peer, body)
            ask = self._active.client.ask
            return self._open(
                request, await ask(address, enclose(request), EnvelopeResponse, ENVELOPE_VERSIONS, timeout_ms)
            )

        answer = await self._active.until_answered(here, elsewhere, FORWARD_TIMEOUT_MS)
        if answer is not None:
            return answer
        text = f"No active controller answered within {FORWARD_TIMEOUT_MS} ms."
        return _refused(context.api_key, version, body, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    async def ask(self, context: RequestContext, version: int, request: Any, answer: type[T]) -> T:
        """The same for a request of which this broker has answered a part."""
        body = await self.forward(context, version, codec.write_request(request, version))
        return codec.read_response(answer, version, body)

    def _open(self, request: Enveloped, envelope: EnvelopeResponse) -> bytes | None:
        match envelope.error_code:
            case ErrorCode.NONE:
                return answer_body(request, envelope.response_data or b"")
            case ErrorCode.NOT_CONTROLLER:
                return None
            case ErrorCode.UNSUPPORTED_VERSION:
                # The client learns anew what is spoken when it connects again.
                text = f"the active controller has no version {request.api_version} of API {request.api_key}"
                raise MalformedRequest(text)
            case code:
                text = f"The controller refused what this broker handed on: {code.name}"
                error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
                return _refused(request.api_key, request.api_version, request.body, error)


def _refused(api_key: int, version: int, body: bytes, error: KafkaError) -> bytes:
    request = codec.read(REQUESTS[api_key], version, body)
    if api_key in QUORUM_ANSWERS:
        return codec.write(QUORUM_ANSWERS[api_key](error.code, error.message), version)
    return codec.write(refuse(request, error), version)


async def answer_while_active(
    controller: ControllerDriver, handler: Handler, context: RequestContext, version: int, body: bytes
) -> bytes | None:
    """What the handler answers; None where that says that this controller is not the active one, or not any more."""
    epoch = controller.epoch
    if epoch is None:
        return None
    answer = await handler(context, version, body)
    if controller.epoch != epoch and _names(codec.decode_response(context.api_key, version, answer), _of(context)):
        return None
    return answer


def _of(context: RequestContext) -> ErrorCode:
    """The code by which an answer says so."""
    is_quorums = context.api_key in QUORUM_ANSWERS
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_quorums else ErrorCode.NOT_CONTROLLER


def _names(answer: object, code: ErrorCode) -> bool:
    """Whether an error code anywhere in a message is this one."""
    if isinstance(answer, tuple):
        return any(_names(item, code) for item in answer)
    if not is_dataclass(answer):
        return False
    values = ((field.name, getattr(answer, field.name)) for field in fields(answer))
    return any(value == code if name == "error_code" else _names(value, code) for name, value in values)
