"""A broker forwards client requests to the active controller of another process at once, or retries them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.injection import injected, injected_into
from tests.support.request_contexts import REQUEST_TIMEOUT_MS, request_context

from klamm.broker.authorization import AllowAll
from klamm.broker.request import InlineHandler
from klamm.client import ClientError, ConnectRefusedError
from klamm.client.peer import Answer, OnDone, Outcome
from klamm.node.requests.dispatch import Dispatcher
from klamm.node.requests.forwarding import Forwarder
from klamm.node.requests.remote_forwarding import ForwardedRequest
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.forwarding import EnvelopeRequest, EnvelopeResponse, open_envelope, seal
from klamm.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from klamm.protocol.principal import Principal
from klamm.protocol.wire.codec import read, read_response, write, write_request

VERSION = 7
ALICE = Principal(name="alice")
REQUEST = write_request(CreateTopicsRequest(()), VERSION)
BODY = write(CreateTopicsResponse(()), VERSION)
ADDRESS = ("host", 9003)


def answered(code: ErrorCode = ErrorCode.NONE) -> Answer:
    return Answer(0, write(EnvelopeResponse(error_code=code), 0))


class Peer:
    """Keeps each request until the test provides its outcome."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, OnDone]] = []

    def send(
        self, api_key: int, versions: tuple[int, int], body_of: Callable[[int], bytes], on_done: OnDone, *_: object
    ) -> None:
        assert (api_key, versions) == (EnvelopeRequest.API_KEY, (0, 0))
        self.sent.append((body_of(0), on_done))


class Active:
    """The part of `ActiveController` that forwarding uses."""

    def __init__(self, elsewhere: tuple[str, int] | None = ADDRESS) -> None:
        self.remote_address, self.peer = elsewhere, Peer()
        self.client = SimpleNamespace(idlest_peer=lambda address, most: self.peer)
        self.watched: list[Callable[[], None]] = []
        self.asked_again_within: list[int] = []

    def watch(self, address: tuple[str, int], on_other: Callable[[], None]) -> Callable[[], None]:
        assert address == ADDRESS
        self.watched.append(on_other)
        return lambda: self.watched.remove(on_other)

    async def until_answered(self, here: object, elsewhere: object, timeout_ms: int) -> bytes:
        self.asked_again_within.append(timeout_ms)
        return b"asked again"


class Bench:
    """A forwarder and its dispatcher."""

    def __init__(self, elsewhere: tuple[str, int] | None = ADDRESS) -> None:
        self.answers: dict[int, bytes | None] = {}
        self.is_answered = asyncio.Event()
        self.active: Any = Active(elsewhere)
        handler = InlineHandler(Forwarder(self.active, lambda context: None).forward_inline)
        engine: Any = SimpleNamespace(answer=self._answer, is_request_time_limited=False, is_measuring_requests=False)
        handlers: Any = SimpleNamespace(find=lambda api_key, on_controller: handler)
        self.dispatcher = Dispatcher(engine, handlers, AllowAll())
        context = request_context(ApiKey.CREATE_TOPICS, VERSION, principal=ALICE, address="10.0.0.7")
        self.dispatcher.dispatch(1, context, REQUEST)

    def _answer(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        self.answers |= dict(answers)
        if self.answers:
            self.is_answered.set()

    async def response_to(self, outcome: Outcome) -> bytes | None:
        self.active.peer.sent[0][1](outcome)
        return await self.answer()

    async def answer(self) -> bytes | None:
        async with asyncio.timeout(30):
            await self.is_answered.wait()
        assert self.active.watched == []
        return self.answers[1]


async def test_the_active_controllers_response_is_the_clients() -> None:
    bench = Bench()
    [(data, _)] = bench.active.peer.sent
    request = open_envelope(read(EnvelopeRequest, 0, data))
    assert (request.api_key, request.client_id, request.address) == (ApiKey.CREATE_TOPICS, "client", "10.0.0.7")
    assert request.principal == ALICE
    assert request.body == REQUEST
    assert await bench.response_to(Answer(0, write(seal(request, BODY), 0))) == BODY
    assert bench.active.asked_again_within == []


@pytest.mark.parametrize(
    "outcome",
    [answered(ErrorCode.NOT_CONTROLLER), ClientError("broken"), ConnectRefusedError("nobody"), Answer(0, b"short")],
)
async def test_a_request_is_retried_after_not_controller_or_a_failure(outcome: Outcome) -> None:
    bench = Bench()
    assert await bench.response_to(outcome) == b"asked again"
    [within_ms] = bench.active.asked_again_within
    assert 0 < within_ms <= REQUEST_TIMEOUT_MS


async def test_a_new_leader_is_asked_and_a_late_response_is_ignored() -> None:
    bench = Bench()
    [on_other] = bench.active.watched
    on_other()
    assert await bench.answer() == b"asked again"
    assert await bench.response_to(answered()) == b"asked again"


async def test_a_version_that_the_active_controller_lacks_closes_the_connection() -> None:
    assert await Bench().response_to(answered(ErrorCode.UNSUPPORTED_VERSION)) is None


async def test_a_rejected_envelope_is_an_unknown_server_error() -> None:
    answer = await Bench().response_to(answered(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE))
    assert answer is not None
    assert read_response(CreateTopicsResponse, VERSION, answer) == CreateTopicsResponse(())


async def test_an_unreadable_response_is_an_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the client's connection would wait for it, and for later responses."""
    with injected_into(ForwardedRequest._take):
        answer = await Bench().response_to(answered())
    assert answer is not None
    assert read_response(CreateTopicsResponse, VERSION, answer) == CreateTopicsResponse(())
    assert len(injected(caplog)) == 1


async def test_an_unknown_active_controller_is_awaited_in_a_task() -> None:
    bench = Bench(elsewhere=None)
    assert await bench.answer() == b"asked again"
    [within_ms] = bench.active.asked_again_within
    assert 0 < within_ms <= REQUEST_TIMEOUT_MS
    assert bench.active.peer.sent == []


async def test_after_a_stop_nothing_is_retried() -> None:
    bench = Bench()
    await bench.dispatcher.drain(0)
    bench.active.peer.sent[0][1](ClientError("closed"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.active.asked_again_within == []
