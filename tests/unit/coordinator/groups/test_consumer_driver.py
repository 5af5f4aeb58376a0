"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through handlers, driver and shard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.coordinator.memory_log import MemoryLog

from klamm.broker.handlers.consumer_groups import ConsumerGroupHandlers
from klamm.broker.handlers.groups import ALL_GROUP_OPERATIONS
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.driver import GroupCoordinator
from klamm.node.views.group_topics import GroupTopics, group_configs
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.wire.codec import read_response, write_request

from .consumer_room import T
from .images import image_of

CALLER = Caller(1, "client", "/127.0.0.1")
JOIN = ConsumerGroupHeartbeatRequest(
    "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), topic_partitions=()
)


async def coordinator(log: MemoryLog | None = None) -> GroupCoordinator:
    image = image_of(T)
    groups = GroupCoordinator(
        GroupConfig(),
        log or MemoryLog(),
        4,
        topics=GroupTopics(lambda: image),
        group_configs=group_configs(lambda: image),
    )
    for partition in range(4):
        groups.on_elected(partition, 0)
    await groups.loaded()
    return groups


async def heartbeat(groups: GroupCoordinator, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    answered: asyncio.Future[ConsumerGroupHeartbeatResponse] = asyncio.get_running_loop().create_future()
    groups.consumer_group_heartbeat(CALLER, request, answered.set_result)
    async with asyncio.timeout(30):
        return await answered


async def test_a_heartbeat_and_a_description() -> None:
    groups = await coordinator()
    answer = await heartbeat(groups, JOIN)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)
    found = await groups.consumer_group_describe(["g", "missing"])
    assert {(group.group_id, group.error_code) for group in found} == {
        ("g", ErrorCode.NONE),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
    }
    groups.close()


async def test_an_empty_group_id_is_not_described() -> None:
    groups = await coordinator()
    for described in (groups.consumer_group_describe, groups.share_group_describe, groups.streams.describe):
        found = await described(["", "missing"])
        assert {(group.group_id, group.error_code) for group in found} == {
            ("", ErrorCode.INVALID_GROUP_ID),
            ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
        }
    groups.close()


async def test_a_heartbeat_to_a_partition_that_is_led_elsewhere() -> None:
    groups = await coordinator()
    for partition in range(4):
        groups.on_resigned(partition)
    assert (await heartbeat(groups, JOIN)).error_code is ErrorCode.NOT_COORDINATOR
    [described] = await groups.consumer_group_describe(["g"])
    assert described.error_code is ErrorCode.NOT_COORDINATOR
    groups.close()


async def test_regular_expressions_are_resolved_in_another_thread() -> None:
    groups = await coordinator()
    joined = await heartbeat(
        groups,
        ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_regex="t.*", topic_partitions=()
        ),
    )
    assert joined.member_epoch == 1
    stays = ConsumerGroupHeartbeatRequest("g", "m", 1, topic_partitions=())
    async with asyncio.timeout(30):
        while (answer := await heartbeat(groups, stays)).member_epoch == 1:
            # The group is ASSIGNING: the topics were resolved after the heartbeat.
            assert (await groups.consumer_group_describe(["g"]))[0].group_state in ("Stable", "Assigning")
    assert answer.member_epoch == 2
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions[0].partitions == (0, 1, 2, 3, 4, 5)
    groups.close()


async def test_patterns_that_cannot_be_resolved_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = await coordinator()
    regex = {"rebalance_timeout_ms": 1_000, "subscribed_topic_regex": "t.*", "topic_partitions": ()}
    failed = asyncio.Event()

    def fail(self: GroupTopics, pattern: object) -> None:
        loop.call_soon_threadsafe(failed.set)
        raise RuntimeError("injected")

    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patched:
        patched.setattr(GroupTopics, "matching", fail)
        await heartbeat(groups, ConsumerGroupHeartbeatRequest("g", "m", 0, **regex))
        await failed.wait()
        assert (await groups.consumer_group_describe(["g"]))[0].group_epoch == 1
    async with asyncio.timeout(30):
        while (await groups.consumer_group_describe(["g"]))[0].group_epoch == 1:
            await heartbeat(groups, ConsumerGroupHeartbeatRequest("g", "m", 1, topic_partitions=()))
    groups.close()


class Answers:
    """Receives the response bytes of an inline handler."""

    def __init__(self) -> None:
        self.body = b""

    def written(self, write: Callable[[Any], bytes]) -> Callable[[Any], None]:
        def take(value: Any) -> None:
            self.body = write(value)

        return take


class Context:
    client_id = "client"
    address = "127.0.0.1"


@pytest.mark.parametrize("version", [0, 1])
async def test_the_apis_are_not_supported_without_the_feature(version: int) -> None:
    groups = await coordinator()
    handlers = ConsumerGroupHandlers(groups, lambda: False)
    context: Any = Context()
    answers: Any = Answers()
    handlers.heartbeat(context, version, write_request(JOIN, version), answers)
    answer = read_response(ConsumerGroupHeartbeatResponse, version, answers.body)
    assert answer.error_code is ErrorCode.UNSUPPORTED_VERSION
    body = await handlers.describe(context, version, write_request(ConsumerGroupDescribeRequest(("g",)), version))
    [described] = read_response(ConsumerGroupDescribeResponse, version, body).groups
    assert (described.group_id, described.error_code) == ("g", ErrorCode.UNSUPPORTED_VERSION)
    groups.close()


async def test_operations_are_shown_on_request() -> None:
    groups = await coordinator()
    await heartbeat(groups, JOIN)
    handlers = ConsumerGroupHandlers(groups, lambda: True)
    context: Any = Context()
    for is_asked, operations in ((True, ALL_GROUP_OPERATIONS), (False, -(2**31))):
        request = ConsumerGroupDescribeRequest(("g",), is_asked)
        body = await handlers.describe(context, 1, write_request(request, 1))
        [described] = read_response(ConsumerGroupDescribeResponse, 1, body).groups
        assert described.authorized_operations == operations
        assert [member.member_type for member in described.members] == [1]
    groups.close()


async def test_a_large_pattern_is_compiled_in_another_thread() -> None:
    groups, turns = await coordinator(), 0
    pattern = "(?i)" + r"[a-zA-Z\pL]" * 300
    request = ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_regex=pattern, topic_partitions=()
    )
    joining = asyncio.ensure_future(heartbeat(groups, request))
    while not joining.done():
        turns += 1
        await asyncio.sleep(0)
    joined = await joining
    assert joined.error_code in (ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION)
    assert turns > 10, "other tasks run meanwhile"
    groups.close()
