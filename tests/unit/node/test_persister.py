"""Calls of share coordinators: the broker that is asked, retries, and their order."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.waiting import until

from klamm.client import ClientError, ClientTimeoutError, ConnectionLostError, UnsupportedVersionError
from klamm.client.peer import Answer, OnDone
from klamm.node.coordinators.persister import ATTEMPTS, Persister
from klamm.protocol.backoff import ExponentialBackoff
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_state import (
    InitializedPartition,
    PartitionError,
    PartitionState,
    PartitionSummary,
    ReadPartition,
    ReadStateRequest,
    ReadStateResponse,
    ReadTopic,
    SharePartitionKey,
    TopicErrors,
    WriteStateRequest,
    WriteStateResponse,
    WrittenPartition,
    WrittenTopic,
)
from klamm.protocol.wire import codec

HERE, THERE = 1, 2
TOPIC_ID = bytes(range(16))
NONE = ErrorCode.NONE
GONE = ErrorCode.NOT_COORDINATOR


def key(partition: int, group_id: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group_id, TOPIC_ID, partition)


class Others:
    """The broker `THERE`, whose responses to writes are given by the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[WriteStateRequest, OnDone]] = []

    def peer(self, broker: int) -> Others:
        assert broker == THERE
        return self

    def send(self, api_key: int, versions: tuple[int, int], body_of: Callable[[int], bytes], on_done: OnDone) -> None:
        assert (api_key, versions) == (85, (0, 1))
        self.sent.append((codec.read(WriteStateRequest, 1, body_of(1)), on_done))

    def asked(self) -> list[tuple[int, int]]:
        """Partition and start offset of each entry in the oldest request."""
        [topic] = self.sent[0][0].topics
        return [(one.partition, one.start_offset) for one in topic.partitions]

    def answer(self, code: ErrorCode = NONE) -> None:
        request, on_done = self.sent.pop(0)
        results = tuple(
            TopicErrors(topic.topic_id, tuple(PartitionError(one.partition, code) for one in topic.partitions))
            for topic in request.topics
        )
        on_done(Answer(1, codec.write(WriteStateResponse(results), 1)))

    def fail(self, error: ClientError) -> None:
        self.sent.pop(0)[1](error)


class Room:
    """A persister; the local coordinator answers each call with the next code."""

    def __init__(self) -> None:
        self.others = Others()
        self.brokers: dict[SharePartitionKey, int | None] = {}
        self.here: list[ErrorCode] = []
        self.called: list[Any] = []
        self.topics_asked_for = 0
        self.persister = Persister(
            HERE,
            lambda one: self.brokers.get(one, THERE),
            lambda: self,  # type: ignore[arg-type, return-value]
            lambda: self.others,  # type: ignore[arg-type, return-value]
            create_topic=self._create,
            backoff=ExponentialBackoff(1, 4),
        )

    def _create(self) -> None:
        self.topics_asked_for += 1

    def write(self, partition: int, start_offset: int = 0, group_id: str = "g") -> asyncio.Task[PartitionError]:
        asked = WrittenPartition(partition, start_offset=start_offset)
        return asyncio.ensure_future(self.persister.write(key(partition, group_id), asked))

    async def initialize(self, one: SharePartitionKey, asked: InitializedPartition) -> PartitionError:
        self.called.append(("initialize", asked))
        return PartitionError(one.partition, self.here.pop(0))

    async def read(self, one: SharePartitionKey, asked: ReadPartition) -> PartitionState:
        self.called.append(("read", asked))
        return PartitionState(one.partition, self.here.pop(0), None, 3, 7)

    def submit_read(
        self, one: SharePartitionKey, asked: ReadPartition, answer: Callable[[PartitionState], None]
    ) -> None:
        self.called.append(("read", asked))
        answer(PartitionState(one.partition, self.here.pop(0), None, 3, 7))

    async def answer(self, api_key: int, body: bytes) -> tuple[ErrorCode, bytes]:
        """What the engine gets."""
        answered: asyncio.Future[tuple[ErrorCode, bytes]] = asyncio.get_running_loop().create_future()
        self.persister.answer(api_key, body, lambda code, found: answered.set_result((code, found)))
        return await answered

    async def delete(self, one: SharePartitionKey) -> PartitionError:
        self.called.append(("delete", one))
        return PartitionError(one.partition, self.here.pop(0))

    async def read_summary(self, one: SharePartitionKey) -> PartitionSummary:
        self.called.append(("summary", one))
        return PartitionSummary(one.partition, self.here.pop(0))


@pytest.fixture
async def room() -> Room:
    return Room()


class TestHere:
    async def test_each_call(self, room: Room) -> None:
        room.brokers[key(0)] = HERE
        room.here = [NONE] * 4
        initialized, read = InitializedPartition(0, 5), ReadPartition(0, 9)
        assert await room.persister.initialize(key(0), initialized) == PartitionError(0)
        assert (await room.persister.read(key(0), read)).start_offset == 7
        assert await room.persister.delete(key(0)) == PartitionError(0)
        assert await room.persister.read_summary(key(0)) == PartitionSummary(0)
        expected = [("initialize", initialized), ("read", read), ("delete", key(0)), ("summary", key(0))]
        assert room.called == expected

    async def test_retriable_errors_are_retried(self, room: Room) -> None:
        room.brokers[key(0)] = HERE
        room.here = [GONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE]
        assert (await room.persister.delete(key(0))).error_code is NONE
        assert not room.here

    async def test_the_last_error_after_all_attempts(self, room: Room) -> None:
        room.brokers[key(0)] = HERE
        room.here = [GONE] * (ATTEMPTS - 1) + [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NONE]
        assert (await room.persister.delete(key(0))).error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert room.here == [NONE]

    async def test_other_errors_are_final(self, room: Room) -> None:
        room.brokers[key(0)] = HERE
        room.here = [ErrorCode.FENCED_STATE_EPOCH, NONE]
        found = await room.persister.initialize(key(0), InitializedPartition(0, 1))
        assert found.error_code is ErrorCode.FENCED_STATE_EPOCH

    async def test_without_a_coordinator_the_topic_is_created(self, room: Room) -> None:
        room.brokers[key(0)] = None
        assert (await room.persister.delete(key(0))).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert room.topics_asked_for == ATTEMPTS


class TestThere:
    async def test_calls_share_the_next_request(self, room: Room) -> None:
        first = room.write(0)
        await until(lambda: len(room.others.sent) == 1)
        rest = [room.write(1, 1), room.write(2, 2), room.write(1, 3)]
        await asyncio.sleep(0)
        assert room.others.asked() == [(0, 0)]
        room.others.answer()
        assert await first == PartitionError(0)
        assert room.others.asked() == [(1, 1), (2, 2)], "two calls about one share partition are two requests"
        room.others.answer()
        assert room.others.asked() == [(1, 3)]
        room.others.answer()
        assert [one.error_code for one in await asyncio.gather(*rest)] == [NONE] * 3

    async def test_groups_do_not_wait_for_each_other(self, room: Room) -> None:
        calls = [room.write(0), room.write(0, group_id="h")]
        await until(lambda: len(room.others.sent) == 2)
        room.others.answer()
        room.others.answer()
        await asyncio.gather(*calls)

    @pytest.mark.parametrize("error", [ConnectionLostError("gone"), ClientTimeoutError("late")])
    async def test_a_lost_response_is_retried(self, room: Room, error: ClientError) -> None:
        call = room.write(0)
        await until(lambda: len(room.others.sent) == 1)
        room.others.fail(error)
        await until(lambda: len(room.others.sent) == 1)
        room.others.answer()
        assert await call == PartitionError(0)

    async def test_an_older_broker(self, room: Room) -> None:
        call = room.write(0)
        await until(lambda: len(room.others.sent) == 1)
        room.others.fail(UnsupportedVersionError("4.0"))
        assert (await call).error_code is ErrorCode.UNSUPPORTED_VERSION

    async def test_a_response_without_a_partition(self, room: Room) -> None:
        call = room.write(0)
        await until(lambda: len(room.others.sent) == 1)
        room.others.sent.pop(0)[1](Answer(1, codec.write(WriteStateResponse(()), 1)))
        assert (await call).error_code is ErrorCode.UNKNOWN_SERVER_ERROR

    async def test_the_coordinator_moves_here(self, room: Room) -> None:
        room.here = [NONE]
        call = asyncio.ensure_future(room.persister.write(key(0), WrittenPartition(0)))
        await until(lambda: len(room.others.sent) == 1)
        room.brokers[key(0)] = None
        room.others.answer(GONE)
        await until(lambda: room.topics_asked_for > 0)
        room.brokers[key(0)] = THERE
        await until(lambda: len(room.others.sent) == 1)
        room.others.answer()
        assert (await call).error_code is NONE

    async def test_writes_arrive_in_order_when_one_is_retried(self, room: Room) -> None:
        """Otherwise an older start offset would replace a newer one."""
        calls = [room.write(0, 10)]
        await until(lambda: len(room.others.sent) == 1)
        calls += [room.write(0, 20), room.write(0, 30)]
        await asyncio.sleep(0)
        room.others.answer(GONE)
        assert room.others.asked() == [(0, 20)], "it was sent before the first one failed"
        room.others.answer(GONE)
        room.others.answer(GONE)
        calls.append(room.write(0, 40))
        arrived = []
        while not all(call.done() for call in calls):
            await until(lambda: bool(room.others.sent) or all(call.done() for call in calls))
            if room.others.sent:
                arrived += [offset for _, offset in room.others.asked()]
                room.others.answer()
                await asyncio.sleep(0)
        assert arrived == [10, 20, 30, 40]


class TestForTheEngine:
    async def test_an_answer_is_a_response(self, room: Room) -> None:
        room.brokers[key(0)] = HERE
        room.here = [NONE]
        body = codec.write_request(ReadStateRequest("g", (ReadTopic(TOPIC_ID, (ReadPartition(0, 5),)),)), 0)
        code, answer = await room.answer(84, body)
        assert code is NONE
        [topic] = codec.read_response(ReadStateResponse, 0, answer).results
        assert topic.topic_id == TOPIC_ID
        assert [(one.partition, one.state_epoch, one.start_offset) for one in topic.partitions] == [(0, 3, 7)]
        assert room.called == [("read", ReadPartition(0, 5))]

    async def test_an_error_has_no_body(self, room: Room) -> None:
        room.brokers[key(0)] = HERE
        room.here = [ErrorCode.FENCED_LEADER_EPOCH]
        body = codec.write_request(ReadStateRequest("g", (ReadTopic(TOPIC_ID, (ReadPartition(0, 5),)),)), 0)
        assert await room.answer(84, body) == (ErrorCode.FENCED_LEADER_EPOCH, b"")

    async def test_what_may_pass_is_tried_again_in_order(self, room: Room) -> None:
        room.brokers[key(0)] = HERE
        room.here = [GONE, NONE, NONE]
        answered: list[ErrorCode] = []
        first, second = ReadPartition(0, 5), ReadPartition(0, 6)
        for asked in (first, second):
            body = codec.write_request(ReadStateRequest("g", (ReadTopic(TOPIC_ID, (asked,)),)), 0)
            room.persister.answer(84, body, lambda code, _: answered.append(code))
            await asyncio.sleep(0)
        assert not answered
        await until(lambda: answered == [NONE, NONE])
        assert room.called == [("read", first), ("read", first), ("read", second)]

    async def test_the_coordinator_is_another_broker(self, room: Room) -> None:
        asked = WrittenTopic(TOPIC_ID, (WrittenPartition(0, start_offset=10),))
        call = asyncio.ensure_future(room.answer(85, codec.write_request(WriteStateRequest("g", (asked,)), 1)))
        await until(lambda: len(room.others.sent) == 1)
        room.others.answer()
        code, body = await call
        assert code is NONE
        assert codec.read_response(WriteStateResponse, 1, body).results == (
            TopicErrors(TOPIC_ID, (PartitionError(0),)),
        )

    async def test_a_call_that_has_not_begun_ends_with_the_node(self, room: Room) -> None:
        body = codec.write_request(ReadStateRequest("g", (ReadTopic(TOPIC_ID, (ReadPartition(0, 5),)),)), 0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asked = asyncio.ensure_future(room.answer(84, body))
            await asyncio.sleep(0)
            room.persister.close()
            for _ in range(3):
                await asyncio.sleep(0)
            gc.collect()
        assert not caught, "a coroutine was never awaited"
        assert not room.others.sent
        asked.cancel()
