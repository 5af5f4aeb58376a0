"""From requests to responses: one each, or the connection is closed; the responses of a loop turn are sent together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.support.request_contexts import request_context

from klamm._engine.groups import CommitRequest
from klamm._engine.panics import panic_with
from klamm.broker.authorization import AllowAll, Authorizer
from klamm.broker.request import Answer, Handler, InlineHandler, RequestContext
from klamm.node.requests.dispatch import Dispatcher
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError, MalformedRequest
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class

TASK, DIRECT, LATER, MALFORMED, BROKEN, BROKEN_WRITE, UNKNOWN = range(100, 107)


class Engine:
    """Records the calls."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, bytes | None]]] = []
        self.is_request_time_limited = self.is_measuring_requests = False
        self.handler_times: dict[int, int] = {}
        self.refused: list[bytes] = []
        """Bodies with which a call panics."""

    def note_handler_time(self, handle: int, ns: int) -> None:
        assert handle not in self.answers, "the limit is reached before the answer"
        self.handler_times[handle] = ns

    def answer(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        for _, body in answers:
            if body in self.refused:
                panic_with("injected for the test")
        self.calls.append(list(answers))

    @property
    def answers(self) -> dict[int, bytes | None]:
        return {handle: body for call in self.calls for handle, body in call}


class Handlers:
    """One handler of each kind."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[bytes], None]] = []
        self.is_free = asyncio.Event()

    def find(self, api_key: int, *, on_controller: bool) -> Handler | InlineHandler | None:
        found: dict[int, Handler | InlineHandler] = {
            TASK: self.task,
            DIRECT: InlineHandler(lambda context, version, body, answer: answer.give(body)),
            LATER: InlineHandler(self.later),
            ApiKey.FETCH: InlineHandler(self.later),
            ApiKey.VOTE: InlineHandler(self.later),
            MALFORMED: InlineHandler(self.malformed),
            BROKEN: InlineHandler(self.broken),
            BROKEN_WRITE: InlineHandler(self.broken_write),
            ApiKey.OFFSET_COMMIT: InlineHandler(self.broken, self.broken_commit),
            ApiKey.HEARTBEAT: InlineHandler(self.broken),
            ApiKey.LEAVE_GROUP: InlineHandler(self.broken_write),
            ApiKey.DELETE_GROUPS: self.broken_task,
            ApiKey.LIST_GROUPS: self.refusing_task,
        }
        return found.get(api_key)

    def task(self, context: RequestContext, version: int, body: bytes) -> Awaitable[bytes]:
        async def answer() -> bytes:
            await self.is_free.wait()
            return body

        return answer()

    def later(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        self.waiting.append(answer.written(lambda value: value + body))

    def malformed(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        raise MalformedRequest("too short")

    def broken(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        raise ZeroDivisionError

    def broken_commit(self, request: CommitRequest, answer: Callable[[int], None]) -> None:
        raise ZeroDivisionError

    async def broken_task(self, context: RequestContext, version: int, body: bytes) -> bytes:
        raise ZeroDivisionError

    async def refusing_task(self, context: RequestContext, version: int, body: bytes) -> bytes:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def broken_write(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        def write(value: int) -> bytes:
            raise ZeroDivisionError

        answer.written(write)(1)


class Bench:
    """A dispatcher between engine and handlers."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self.engine, self.handlers = Engine(), Handlers()
        self.dispatcher = Dispatcher(self.engine, self.handlers, authorizer or AllowAll())

    def ask(self, handle: int, api_key: int, *, on_controller: bool = False, body: bytes = b"body") -> None:
        self.dispatcher.dispatch(handle, request_context(api_key, on_controller=on_controller), body)


async def test_the_responses_of_one_turn_are_sent_together() -> None:
    bench = Bench()
    bench.handlers.is_free.set()
    for handle in range(5):
        bench.ask(handle, DIRECT)
    bench.ask(5, LATER)
    bench.handlers.waiting.pop()(b"some ")
    await asyncio.sleep(0)
    assert bench.engine.calls == [[*((handle, b"body") for handle in range(5)), (5, b"some body")]]
    bench.ask(6, TASK)
    await bench.dispatcher.drain(30)
    assert bench.engine.answers[6] == b"body"


@pytest.mark.parametrize("api_key", [MALFORMED, BROKEN, BROKEN_WRITE, UNKNOWN])
async def test_a_request_without_a_response_closes_its_connection(
    caplog: pytest.LogCaptureFixture, api_key: int
) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING, "klamm.node.dispatch"):
        bench.ask(1, api_key)
        bench.ask(2, DIRECT)
    await asyncio.sleep(0)
    assert bench.engine.answers == {1: None, 2: b"body"}
    assert "closing" in caplog.text


@pytest.mark.parametrize("api_key", [ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.DELETE_GROUPS])
async def test_a_raising_handler_gets_an_error_response(caplog: pytest.LogCaptureFixture, api_key: int) -> None:
    bench = Bench()
    values: dict[int, dict[str, object]] = {ApiKey.DELETE_GROUPS: {"groups_names": ["g", "h"]}}
    request = build(request_class(api_key, 0), **values.get(api_key, {}))
    bench.ask(1, api_key, body=encode(request))
    await bench.dispatcher.drain(30)
    answer = bench.engine.answers[1]
    assert answer is not None, "the connection stays open"
    found = decode_response(api_key, 0, answer)
    codes = [each.error_code for each in found.results] if api_key == ApiKey.DELETE_GROUPS else [found.error_code]
    assert set(map(int, codes)) == {int(ErrorCode.UNKNOWN_SERVER_ERROR)}
    [record] = caplog.records
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError
    assert "UNKNOWN_SERVER_ERROR" in record.message


async def test_a_kafka_error_is_answered_with_its_code(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.ask(1, ApiKey.LIST_GROUPS, body=encode(build(request_class(ApiKey.LIST_GROUPS, 0))))
    await bench.dispatcher.drain(30)
    answer = decode_response(ApiKey.LIST_GROUPS, 0, bench.engine.answers[1] or b"")
    assert int(answer.error_code) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert caplog.records == [], "the node has no fault"


async def test_an_unauthorized_request_does_not_reach_its_handler() -> None:
    class DenyAll:
        def allows(self, context: RequestContext, operation: str, resource: str, name: str) -> bool:
            return False

    bench = Bench(DenyAll())
    body = encode(build(request_class(ApiKey.VOTE, 0), cluster_id="c", topics=()))
    bench.ask(1, ApiKey.VOTE, on_controller=True, body=body)
    await bench.dispatcher.drain(30)
    answer = decode_response(ApiKey.VOTE, 0, bench.engine.answers[1] or b"")
    assert int(answer.error_code) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert bench.handlers.waiting == []


async def test_a_raising_commit_gets_an_error_response(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.dispatcher.commit(1, "127.0.0.1", CommitRequest("g", [("t", bytes(16), [(0, 7, -1, None)])], version=8))
    await bench.dispatcher.drain(30)
    answer = bench.engine.answers[1]
    assert answer is not None
    [topic] = decode_response(8, 8, answer).topics
    assert [int(each.error_code) for each in topic.partitions] == [int(ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert len(caplog.records) == 1


async def test_the_time_of_handlers_is_recorded_while_a_quota_limits_it() -> None:
    bench = Bench()
    bench.handlers.is_free.set()
    bench.ask(1, DIRECT)
    bench.engine.is_request_time_limited = True
    commit = CommitRequest("g", [("t", bytes(16), [(0, 7, -1, None)])], version=8)
    for handle, ask in enumerate([DIRECT, TASK, BROKEN, LATER], 2):
        bench.ask(handle, ask)
    bench.dispatcher.commit(6, "127.0.0.1", commit)
    bench.handlers.waiting.pop()(b"")
    await bench.dispatcher.drain(30)
    assert sorted(bench.engine.handler_times) == [2, 3, 4, 5, 6]
    assert all(ns > 0 for ns in bench.engine.handler_times.values())


async def test_a_stop_waits_for_pending_requests() -> None:
    bench = Bench()
    bench.ask(1, TASK)
    bench.ask(2, LATER)
    draining = asyncio.ensure_future(bench.dispatcher.drain(30))
    await asyncio.sleep(0)
    bench.handlers.is_free.set()
    await asyncio.sleep(0)
    assert not draining.done()
    bench.handlers.waiting.pop()(b"late ")
    await draining
    assert bench.engine.answers == {1: b"body", 2: b"late body"}


async def test_a_stop_does_not_wait_forever(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.ask(1, TASK)
    bench.ask(2, LATER)
    await bench.dispatcher.drain(0)
    assert bench.engine.answers == {}
    assert caplog.messages == ["2 requests were not answered within 0 s: their connections are closed"]
    # The task is cancelled and closes its connection; the engine closes the others.
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.engine.answers == {1: None}


async def test_a_stop_does_not_wait_for_requests_of_replicas() -> None:
    bench = Bench()
    bench.ask(1, ApiKey.FETCH, on_controller=True)
    bench.ask(2, ApiKey.VOTE, on_controller=True)
    bench.handlers.waiting.pop()(b"my vote, ")
    await asyncio.wait_for(bench.dispatcher.drain(3600), 30)
    bench.dispatcher.refuse_replicas()
    assert bench.engine.answers == {1: None, 2: b"my vote, body"}


async def test_a_clients_request_of_the_same_number_is_waited_for() -> None:
    bench = Bench()
    bench.ask(1, ApiKey.FETCH)
    draining = asyncio.ensure_future(bench.dispatcher.drain(30))
    await asyncio.sleep(0)
    assert not draining.done()
    bench.handlers.waiting.pop()(b"")
    await draining


async def test_a_response_that_the_engine_does_not_take_closes_its_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.engine.refused.append(b"refused")
    for handle, body in enumerate((b"first", b"refused", b"last")):
        bench.ask(handle, DIRECT, body=body)
    await asyncio.sleep(0)
    assert bench.engine.answers == {0: b"first", 1: None, 2: b"last"}
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
