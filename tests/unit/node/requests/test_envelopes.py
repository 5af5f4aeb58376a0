"""A controller opens brokers' envelopes: the active one responds, any other answers NOT_CONTROLLER."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.request_contexts import request_context

from klamm.broker.request import Handler, RequestContext
from klamm.controller.operations import MODULES
from klamm.node.requests.envelopes import EnvelopeHandlers
from klamm.node.requests.forwarding import QUORUM_APIS
from klamm.node.requests.handlers import FORWARDED
from klamm.node.requests.remote_forwarding import QUORUM_MESSAGES
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.cluster import DescribeQuorumResponse, QuorumPartitionData, QuorumTopicData
from klamm.protocol.messages.forwarding import Enveloped, EnvelopeResponse, answer_body, enclose
from klamm.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from klamm.protocol.principal import Principal
from klamm.protocol.wire.codec import read_response, write, write_request

BROKER = request_context(
    ApiKey.ENVELOPE, client_id="broker-1", listener="CONTROLLER", address="10.0.0.1", on_controller=True
)
ALICE = Principal(name="alice")
REQUEST = Enveloped(ApiKey.CREATE_TOPICS, 7, "client", "10.9.9.9", b"body", ALICE, 3)


class Controller:
    """The epoch of a controller."""

    def __init__(self, epoch: int | None) -> None:
        self.epoch = epoch


async def ask(
    request: Enveloped, answer: object, *, epoch: int | None = 1, epoch_after: int | None = 1
) -> tuple[EnvelopeResponse, list[RequestContext]]:
    """The response for this result of the handler, and the arguments with which it was called."""
    controller: Any = Controller(epoch)
    asked: list[RequestContext] = []

    async def handle(context: RequestContext, version: int, body: bytes) -> bytes:
        asked.append(context)
        assert (version, body) == (request.api_version, request.body)
        controller.epoch = epoch_after
        if isinstance(answer, Exception):
            raise answer
        return write(answer, version)

    def find(context: RequestContext) -> Handler | None:
        found = (ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_QUORUM, ApiKey.BROKER_REGISTRATION)
        return handle if context.api_key in found else None

    handlers = EnvelopeHandlers(controller, find)
    body = await handlers.envelope(BROKER, 0, write_request(enclose(request), 0))
    return read_response(EnvelopeResponse, 0, body), asked


def created(code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse((CreatableTopicResult("t", error_code=code),))


async def test_the_client_is_the_one_in_the_envelope() -> None:
    sealed, [context] = await ask(REQUEST, created(ErrorCode.NONE))
    assert sealed.error_code is ErrorCode.NONE
    assert answer_body(REQUEST, sealed.response_data or b"") == write(created(ErrorCode.NONE), 7)
    assert context == BROKER._replace(
        api_key=ApiKey.CREATE_TOPICS, api_version=7, client_id="client", principal=ALICE, address="10.9.9.9"
    )


async def test_an_inactive_controller_does_not_run_the_request() -> None:
    sealed, asked = await ask(REQUEST, created(ErrorCode.NONE), epoch=None)
    assert sealed == EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    assert asked == []


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (REQUEST, created(ErrorCode.NOT_CONTROLLER)),
        (
            Enveloped(ApiKey.DESCRIBE_QUORUM, 2, None, "10.9.9.9", b"", ALICE, 3),
            DescribeQuorumResponse(
                topics=(QuorumTopicData("t", (QuorumPartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER),)),)
            ),
        ),
    ],
)
async def test_a_controller_that_lost_its_epoch_answers_not_controller(request_: Enveloped, answer: object) -> None:
    sealed, _ = await ask(request_, answer, epoch_after=None)
    assert sealed == EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)


async def test_a_committed_result_is_returned_after_leadership_has_ended() -> None:
    sealed, _ = await ask(REQUEST, created(ErrorCode.NONE), epoch_after=2)
    assert sealed.error_code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("request_", "answer", "code"),
    [
        (
            REQUEST._replace(api_key=ApiKey.BROKER_REGISTRATION, api_version=4),
            created(ErrorCode.NONE),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            REQUEST._replace(api_key=ApiKey.CREATE_PARTITIONS, api_version=3),
            created(ErrorCode.NONE),
            ErrorCode.INVALID_REQUEST,
        ),
        (REQUEST, MalformedRequest("not a body"), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_apis_that_are_not_forwarded_and_unreadable_requests(
    request_: Enveloped, answer: object, code: ErrorCode
) -> None:
    sealed, _ = await ask(request_, answer)
    assert sealed == EnvelopeResponse(error_code=code)


def test_apis_of_raft_are_distinguished_in_one_way() -> None:
    assert set(QUORUM_APIS) == QUORUM_MESSAGES.keys()
    # A broker forwards requests that it does not check first without decoding them.
    forwarded = {key for key, api in APIS.items() if api.is_forwarded and api.on_broker == "python"}
    assert {*FORWARDED, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS} == forwarded
    operations = {key for keys in MODULES.values() for key in keys}
    assert forwarded <= {*operations, *QUORUM_APIS}
