"""The handlers of streams groups: the feature, topics that a topology may not name, and missing internal topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import pytest
from tests.support.request_contexts import request_context

from klamm.broker.handlers.groups import ALL_GROUP_OPERATIONS
from klamm.broker.handlers.streams_groups import StreamsGroupHandlers
from klamm.broker.request import RequestContext
from klamm.node.coordinators.internal_topics import FAILURES_MAX, InternalTopicCreation
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import AUTHORIZED_OPERATIONS_OMITTED, Caller
from klamm.protocol.messages.streams_messages import (
    MISSING_INTERNAL_TOPICS,
    DescribedStreamsGroup,
    HeartbeatResult,
    InternalTopic,
    KeyValue,
    Status,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm.protocol.wire.codec import read_response, write_request

LOG = InternalTopic("log", 3, 0, (KeyValue("cleanup.policy", "compact"),))
MISSING = Status(MISSING_INTERNAL_TOPICS, "Internal topics are missing: log")


class Groups:
    """A coordinator that knows one group, whose topic "log" is missing."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    def heartbeat(
        self, caller: Caller, request: StreamsGroupHeartbeatRequest, answer: Callable[[HeartbeatResult], None]
    ) -> None:
        self.callers.append(caller)
        answer(HeartbeatResult(StreamsGroupHeartbeatResponse(status=(MISSING,)), (LOG,), 5_000))

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedStreamsGroup]:
        codes = {"g": ErrorCode.NONE}
        return [DescribedStreamsGroup(one, codes.get(one, ErrorCode.GROUP_ID_NOT_FOUND)) for one in group_ids]


class Creation:
    """Records the topics to create."""

    def __init__(self, **failures: str) -> None:
        self.created: list[tuple[Sequence[InternalTopic], int]] = []
        self._failures = failures

    def create(self, context: RequestContext, topics: Sequence[InternalTopic], retry_ms: int) -> None:
        self.created.append((topics, retry_ms))

    def failures(self, topics: Iterable[InternalTopic]) -> Mapping[str, str]:
        return self._failures


class Answered:
    """The response of a handler."""

    def __init__(self) -> None:
        self.body = b""

    def give(self, body: bytes) -> None:
        self.body = body

    def written(self, write: Callable[[Any], bytes]) -> Callable[[Any], None]:
        return lambda value: self.give(write(value))

    def fail(self, error: Exception) -> None:
        raise error

    def leave_to(self, handler: Any) -> None:
        raise AssertionError(handler)


def heartbeat(
    request: StreamsGroupHeartbeatRequest, creation: Creation, *, is_enabled: bool = True
) -> StreamsGroupHeartbeatResponse:
    answered = Answered()
    handlers = StreamsGroupHandlers(Groups(), creation, lambda: is_enabled)
    handlers.heartbeat(request_context(ApiKey.STREAMS_GROUP_HEARTBEAT), 0, write_request(request, 0), answered)
    return read_response(StreamsGroupHeartbeatResponse, 0, answered.body)


def join(*source_topics: str) -> StreamsGroupHeartbeatRequest:
    topology = Topology(0, (Subtopology("0", source_topics),))
    return StreamsGroupHeartbeatRequest("g", "m", 0, topology=topology)


def test_without_streams_version_there_are_no_streams_groups() -> None:
    creation = Creation()
    assert heartbeat(join("t"), creation, is_enabled=False).error_code is ErrorCode.UNSUPPORTED_VERSION
    assert not creation.created


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state", "a/b", "", ".."])
def test_topics_that_a_topology_may_not_name(name: str) -> None:
    assert heartbeat(join("t", name), Creation()).error_code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_missing_internal_topics_are_created() -> None:
    creation = Creation()
    assert heartbeat(join("t"), creation).status == (MISSING,)
    assert creation.created == [((LOG,), 10_000)]


def test_failures_are_shown_to_the_member() -> None:
    failures = {"log": "no broker", "b": "2", "c": "3", "d": "4", "e": "5"}
    [status] = heartbeat(join("t"), Creation(**failures)).status or ()
    detail = "; Creation failed: log (no broker), b (2), c (3) and 2 more."
    assert status.status_detail == MISSING.status_detail + detail


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_describe(is_enabled: bool) -> None:
    handlers = StreamsGroupHandlers(Groups(), Creation(), lambda: is_enabled)
    body = write_request(StreamsGroupDescribeRequest(("g", "h"), True), 0)
    answer = await handlers.describe(request_context(ApiKey.STREAMS_GROUP_DESCRIBE), 0, body)
    groups = read_response(StreamsGroupDescribeResponse, 0, answer).groups
    found = [(group.error_code, group.authorized_operations) for group in groups]
    if is_enabled:
        refused = (ErrorCode.GROUP_ID_NOT_FOUND, AUTHORIZED_OPERATIONS_OMITTED)
        assert found == [(ErrorCode.NONE, ALL_GROUP_OPERATIONS), refused]
    else:
        assert found == [(ErrorCode.UNSUPPORTED_VERSION, AUTHORIZED_OPERATIONS_OMITTED)] * 2


class Controller:
    """Creates topics, and rejects those in `refuses`; runs background tasks only on request."""

    def __init__(self, **refuses: str) -> None:
        self.refuses = refuses
        self.requests: list[tuple[RequestContext, CreateTopicsRequest]] = []
        self.error: Exception | None = None
        self.work: list[Coroutine[Any, Any, None]] = []
        self.now_ms = 0

    def creation(self) -> InternalTopicCreation:
        return InternalTopicCreation(self.create, self.work.append, 30_000, lambda: self.now_ms)

    def create(self, context: RequestContext, request: CreateTopicsRequest) -> Awaitable[CreateTopicsResponse]:
        self.requests.append((context, request))
        return self._answer(request)

    async def _answer(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        if self.error is not None:
            raise self.error
        code = ErrorCode.INVALID_REPLICATION_FACTOR
        return CreateTopicsResponse(
            tuple(
                CreatableTopicResult(topic.name, error_code=code, error_message=self.refuses[topic.name])
                if topic.name in self.refuses
                else CreatableTopicResult(topic.name)
                for topic in request.topics
            )
        )

    async def run(self) -> None:
        while self.work:
            await self.work.pop()


async def test_topics_are_created_with_the_clients_principal() -> None:
    controller = Controller()
    creation = controller.creation()
    caller = request_context(ApiKey.STREAMS_GROUP_HEARTBEAT, client_id="app")
    creation.create(caller, (LOG,), 1_000)
    creation.create(caller, (LOG,), 1_000)
    await controller.run()
    [(context, request)] = controller.requests
    assert (context.client_id, context.principal, context.api_key) == ("app", caller.principal, ApiKey.CREATE_TOPICS)
    assert request.topics == (CreatableTopic("log", 3, -1, (), (CreatableTopicConfig("cleanup.policy", "compact"),)),)
    assert not creation.failures((LOG,))


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_failed_topic_is_not_retried_at_once(is_lost: bool) -> None:
    controller = Controller(log="no broker")
    controller.error = ValueError("no broker") if is_lost else None
    creation = controller.creation()
    creation.create(request_context(), (LOG,), 1_000)
    await controller.run()
    assert creation.failures((LOG,)) == {"log": "no broker"}
    controller.now_ms = 999
    creation.create(request_context(), (LOG,), 1_000)
    assert not controller.work
    controller.now_ms = 1_000
    assert not creation.failures((LOG,))
    controller.error, controller.refuses = None, {}
    creation.create(request_context(), (LOG,), 1_000)
    await controller.run()
    assert len(controller.requests) == 2
    assert not creation.failures((LOG,))


async def test_failures_are_bounded() -> None:
    topics = [InternalTopic(f"t{at}", 1) for at in range(FAILURES_MAX + 5)]
    controller = Controller(**{topic.name: "no" for topic in topics})
    creation = controller.creation()
    for at, topic in enumerate(topics):
        creation.create(request_context(), (topic,), 10_000 + at)
        await controller.run()
    assert list(creation.failures(topics)) == [topic.name for topic in topics[5:]]
