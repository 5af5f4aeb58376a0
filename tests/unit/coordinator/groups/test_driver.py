"""The driver in a real loop, over a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from tests.support.waiting import until
from tests.unit.coordinator.memory_log import MemoryLog, appended

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.commits import CommitAnswer
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.driver import GroupCoordinator, into
from klamm.coordinator.groups.records import offset_key
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
    Caller,
    FetchedGroup,
    FetchGroup,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    OffsetDeleteRequest,
    SyncAssignment,
    SyncGroupRequest,
)

from .harness import RANGE

CALLER = Caller(3, "client", "/127.0.0.1")
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1)


def commit_of(group_id: str = "g", partitions: int = 1, **fields: Any) -> CommitRequest:
    """Offset 7 for each partition of topic "t"."""
    return CommitRequest(group_id, [("t", ZERO_ID, [(index, 7, -1, None) for index in range(partitions)])], **fields)


COMMIT = commit_of()

T = TypeVar("T")


async def coordinator(log: MemoryLog | None = None, config: GroupConfig = CONFIG) -> GroupCoordinator:
    made = GroupCoordinator(config, log or MemoryLog(), 4)
    for partition in range(4):
        made.on_elected(partition, 1)
    await made.loaded()
    return made


def asked(ask: Callable[[Callable[[T], None]], None]) -> asyncio.Future[T]:
    """What `ask` answers by the callback that it is given."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    ask(into(future))
    return future


def heartbeat(groups: GroupCoordinator, request: HeartbeatRequest) -> asyncio.Future[ErrorCode]:
    return asked(partial(groups.heartbeat, request))


def commit(groups: GroupCoordinator, request: CommitRequest = COMMIT) -> asyncio.Future[CommitAnswer]:
    return asked(partial(groups.offset_commit, request))


def fetch(
    groups: GroupCoordinator, group_id: str = "g", *, require_stable: bool = False
) -> asyncio.Future[FetchedGroup]:
    return asked(partial(groups.offset_fetch, FetchGroup(group_id, None), require_stable=require_stable))


def join_request(**fields: object) -> JoinGroupRequest:
    request = JoinGroupRequest("g", 10_000, "", "consumer", (RANGE,), 10_000)
    return replace(request, **fields)  # type: ignore[arg-type]


async def test_the_partition_count_stands_from_the_first_election_on() -> None:
    groups = GroupCoordinator(CONFIG, MemoryLog(), 50)
    groups.use_partition_count(4)
    assert groups.partition_for("my-group") == 2
    groups.on_elected(2, 0)
    groups.use_partition_count(5)
    assert groups.partition_for("my-group") == 2
    await groups.loaded()


async def test_a_group_from_join_to_leave() -> None:
    groups = await coordinator()
    joined = await groups.join_group(CALLER, join_request())
    assert joined.error_code is ErrorCode.NONE
    sync = SyncGroupRequest("g", 1, joined.member_id, (SyncAssignment(joined.member_id, b"all"),))
    assert (await groups.sync_group(sync)).assignment == b"all"
    assert await heartbeat(groups, HeartbeatRequest("g", 1, joined.member_id)) is ErrorCode.NONE
    request = commit_of(generation_id_or_member_epoch=1, member_id=joined.member_id)
    assert await commit(groups, request) == ErrorCode.NONE
    fetched = await fetch(groups, require_stable=True)
    assert fetched.topics[0].partitions[0].committed_offset == 7
    (described,) = groups.describe_groups(6, ["g"])
    assert described.group_state == "Stable"
    assert [group.group_id for group in groups.list_groups(ListGroupsRequest()).groups] == ["g"]
    left = await groups.leave_group(LeaveGroupRequest("g", (LeavingMember(joined.member_id),)))
    assert left.members[0].error_code is ErrorCode.NONE
    (deleted, absent) = await groups.delete_groups(["g", "absent", "g"])
    assert (deleted.error_code, absent.error_code) == (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
    groups.close()


async def test_a_restart_finds_what_was_committed() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    await commit(groups)
    groups.close()
    again = await coordinator(log)
    fetched = await fetch(again)
    assert fetched.topics[0].partitions[0].committed_offset == 7


async def test_sessions_end_by_themselves() -> None:
    groups = await coordinator()
    joined = await groups.join_group(CALLER, join_request(session_timeout_ms=20))
    await groups.sync_group(SyncGroupRequest("g", 1, joined.member_id))
    await until(lambda: groups.describe_groups(6, ["g"])[0].group_state == "Empty")


async def test_what_is_not_here_is_said_to_be_elsewhere() -> None:
    groups = GroupCoordinator(CONFIG, MemoryLog(), 4)
    gone = ErrorCode.NOT_COORDINATOR
    assert (await groups.join_group(CALLER, join_request())).error_code is gone
    assert (await groups.sync_group(SyncGroupRequest("g", 1, "m"))).error_code is gone
    assert await heartbeat(groups, HeartbeatRequest("g", 1, "m")) is gone
    assert (await groups.leave_group(LeaveGroupRequest("g"))).error_code is gone
    assert await commit(groups) == gone
    assert (await fetch(groups)).error_code == gone
    assert (await groups.offset_delete(OffsetDeleteRequest("g"))).error_code is gone
    assert groups.describe_groups(6, ["g"])[0].error_code is gone
    assert (await groups.delete_groups(["g"]))[0].error_code is gone
    assert groups.list_groups(ListGroupsRequest()).error_code is ErrorCode.NONE


async def test_while_it_loads_only_heartbeats_are_well() -> None:
    """The response to a Heartbeat is NONE while the group is loading, as in Kafka."""
    groups = GroupCoordinator(CONFIG, MemoryLog(), 1)
    groups.on_elected(0, 1)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await groups.join_group(CALLER, join_request())).error_code is loading
    assert await heartbeat(groups, HeartbeatRequest("g", 1, "m")) is ErrorCode.NONE
    assert groups.list_groups(ListGroupsRequest()).error_code is loading
    await groups.loaded()
    assert await heartbeat(groups, HeartbeatRequest("g", 1, "m")) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_empty_group_id_is_legal_only_for_offsets() -> None:
    groups = await coordinator()
    invalid = ErrorCode.INVALID_GROUP_ID
    assert (await groups.join_group(CALLER, join_request(group_id=""))).error_code is invalid
    assert (await groups.sync_group(SyncGroupRequest("", 1, "m"))).error_code is invalid
    assert await heartbeat(groups, HeartbeatRequest("", 1, "m")) is invalid
    assert (await groups.leave_group(LeaveGroupRequest(""))).error_code is invalid
    assert (await groups.offset_delete(OffsetDeleteRequest(""))).error_code is invalid
    assert await commit(groups, commit_of("")) == ErrorCode.NONE
    assert (await fetch(groups, "")).error_code == ErrorCode.NONE
    assert groups.describe_groups(6, [""])[0].group_state == "Empty"
    assert (await groups.delete_groups([""]))[0].error_code is ErrorCode.NONE


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001, -1])
async def test_a_session_timeout_has_bounds(session_timeout_ms: int) -> None:
    groups = await coordinator(config=GroupConfig())
    answer = await groups.join_group(CALLER, join_request(session_timeout_ms=session_timeout_ms, member_id="m"))
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")


async def test_an_append_that_is_refused_or_fails() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await commit(groups) == ErrorCode.NOT_COORDINATOR
    log.refusal, log.stopped = None, True
    answer = commit(groups)
    await appended(log)
    log.finish(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert await answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = commit(groups)
    await appended(log)
    log.finish(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert await answer == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_request_whose_connection_is_gone_hurts_nobody() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    log.stopped = True
    answer = commit(groups)
    await appended(log)
    answer.cancel()
    log.finish()
    fetched = await fetch(groups)
    assert fetched.topics[0].partitions[0].committed_offset == 7


async def test_deleted_topics_take_their_offsets_along() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    await commit(groups)
    groups.on_topics_deleted([("t", b"x" * 16)])
    await asyncio.sleep(0)
    assert log.partitions[groups.partition_for("g")][-1] == (offset_key("g", "t", 0), None)
    fetched = await fetch(groups, require_stable=True)
    assert fetched.topics == ()
