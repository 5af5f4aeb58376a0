"""The driver in a real loop, with a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
    CommitPartition,
    FetchedGroup,
    FetchGroup,
    FetchTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    OffsetDeleteRequest,
    SyncAssignment,
    SyncGroupRequest,
    TxnCommitTopic,
    TxnOffsetCommitRequest,
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
    """The response that `ask` passes to its callback."""
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


async def test_the_partition_count_is_fixed_by_the_first_election() -> None:
    groups = GroupCoordinator(CONFIG, MemoryLog(), 50)
    groups.use_partition_count(4)
    assert groups.partition_for("my-group") == 2
    groups.on_elected(2, 0)
    groups.use_partition_count(5)
    assert groups.partition_for("my-group") == 2
    await groups.loaded()


async def test_a_shard_that_is_loaded_again_keeps_the_counts_of_its_groups() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    assert await commit(groups) == ErrorCode.NONE
    log.load_refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    groups.on_elected(groups.partition_for("g"), 2)
    await groups.loaded()
    assert log.load_refusals == []
    assert await commit(groups) == ErrorCode.NONE
    assert groups.counts.offset_commits == 2
    groups.close()


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


async def test_sessions_expire() -> None:
    groups = await coordinator()
    joined = await groups.join_group(CALLER, join_request(session_timeout_ms=20))
    assert joined.error_code is ErrorCode.NONE
    await groups.sync_group(SyncGroupRequest("g", 1, joined.member_id))
    await until(lambda: groups.describe_groups(6, ["g"])[0].group_state == "Empty")


async def test_groups_of_other_coordinators_answer_not_coordinator() -> None:
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


async def test_while_loading_only_heartbeats_succeed() -> None:
    """Heartbeat answers NONE while the group is loading, as in Kafka."""
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


async def test_a_request_of_a_closed_connection_is_harmless() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    log.stopped = True
    answer = commit(groups)
    await appended(log)
    answer.cancel()
    log.finish()
    fetched = await fetch(groups)
    assert fetched.topics[0].partitions[0].committed_offset == 7


async def test_offsets_of_deleted_topics_are_removed() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    await commit(groups)
    groups.on_topics_deleted([("t", b"x" * 16)])
    await asyncio.sleep(0)
    assert log.partitions[groups.partition_for("g")][-1] == (offset_key("g", "t", 0), None)
    fetched = await fetch(groups, require_stable=True)
    assert fetched.topics == ()


# Transactions


class FakeCoordinator:
    """A transaction coordinator that responds with `code`, after it has run `meanwhile`."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.asked: list[Any] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def __call__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any, *, is_adding: bool
    ) -> list[ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), is_adding))
        if self.meanwhile is not None:
            await self.meanwhile()
        return [self.code for _ in partitions]


TXN_COMMIT = TxnOffsetCommitRequest("id", "g", 77, 3, (TxnCommitTopic("t", (CommitPartition(0, 7),)),))


async def transactional(
    verify: FakeCoordinator, log: MemoryLog | None = None, config: GroupConfig = CONFIG
) -> GroupCoordinator:
    made = GroupCoordinator(config, log or MemoryLog(), 4, verify=verify)
    for partition in range(4):
        made.on_elected(partition, 1)
    await made.loaded()
    return made


async def end(groups: GroupCoordinator, *, commits: bool = True, epoch: int = 3) -> ErrorCode:
    answered: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    groups.write_marker(
        groups.partition_for("g"),
        77,
        epoch,
        answered.set_result,
        commits=commits,
        coordinator_epoch=5,
        transaction_version=2,
    )
    return await answered


async def unstable(groups: GroupCoordinator) -> ErrorCode:
    named = FetchGroup("g", (FetchTopic("t", ZERO_ID, (0,)),))
    fetched: FetchedGroup = await asked(partial(groups.offset_fetch, named, require_stable=True))
    return ErrorCode(fetched.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_commit_is_verified(version: int) -> None:
    verify, log = FakeCoordinator(), MemoryLog()
    groups = await transactional(verify, log)
    assert await groups.txn_offset_commit(version, TXN_COMMIT) == ErrorCode.NONE
    partition = groups.partition_for("g")
    assert verify.asked == [("id", 77, 3, [("__topic", partition)], version >= 5)]
    [batch] = log.calls[0]
    assert (batch.partition, batch.producer, batch.marker) == (partition, (77, 3), None)
    assert await unstable(groups) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await end(groups) is ErrorCode.NONE
    [batch] = log.calls[1]
    assert batch.marker == ((77, 3), True, 5, 2)
    assert not batch.records
    fetched = await fetch(groups)
    assert fetched.topics[0].partitions[0].committed_offset == 7


@pytest.mark.parametrize(
    ("said", "versions", "answered"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, range(4), ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, range(4, 6), ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, range(6), ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, range(6), ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, range(6), ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, range(6), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NETWORK_EXCEPTION, range(6), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, range(6), ErrorCode.NOT_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, range(6), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, range(6), ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, range(6), ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_errors_of_the_verification(said: ErrorCode, versions: range, answered: ErrorCode) -> None:
    verify, log = FakeCoordinator(said), MemoryLog()
    groups = await transactional(verify, log)
    for version in versions:
        assert await groups.txn_offset_commit(version, TXN_COMMIT) == answered
    assert not log.calls
    assert all(hosted.shard.verification_count == 0 for hosted in groups.runtime.shards.all())


async def test_a_partition_that_moves_during_the_verification() -> None:
    verify = FakeCoordinator()
    groups = await transactional(verify)
    partition = groups.partition_for("g")

    async def move() -> None:
        groups.on_resigned(partition)

    verify.meanwhile = move
    assert await groups.txn_offset_commit(5, TXN_COMMIT) == ErrorCode.NOT_COORDINATOR

    async def move_back() -> None:
        groups.on_resigned(partition)
        groups.on_elected(partition, 3)
        await groups.loaded()

    groups.on_elected(partition, 2)
    await groups.loaded()
    verify.meanwhile = move_back
    assert await groups.txn_offset_commit(5, TXN_COMMIT) == ErrorCode.NOT_COORDINATOR


async def test_a_transaction_that_ends_during_the_verification() -> None:
    verify = FakeCoordinator()
    groups = await transactional(verify)
    verify.meanwhile = partial(end, groups, epoch=4)
    assert await groups.txn_offset_commit(5, TXN_COMMIT) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await unstable(groups) is ErrorCode.NONE


async def test_the_group_is_checked_before_the_transaction() -> None:
    verify = FakeCoordinator()
    groups = GroupCoordinator(CONFIG, MemoryLog(), 4, verify=verify)
    assert await groups.txn_offset_commit(5, replace(TXN_COMMIT, group_id="")) == ErrorCode.INVALID_GROUP_ID
    assert await groups.txn_offset_commit(5, TXN_COMMIT) == ErrorCode.NOT_COORDINATOR
    groups.on_elected(groups.partition_for("g"), 1)
    assert await groups.txn_offset_commit(5, TXN_COMMIT) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not verify.asked


async def test_a_marker_for_a_partition_that_is_not_served() -> None:
    groups = GroupCoordinator(CONFIG, MemoryLog(), 4)
    assert await end(groups) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    groups.on_elected(groups.partition_for("g"), 1)
    assert await end(groups) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "it loads"
    await groups.loaded()
    assert await end(groups) is ErrorCode.NONE


@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_a_marker_that_the_log_refuses(refusal: ErrorCode) -> None:
    log = MemoryLog()
    groups = await transactional(FakeCoordinator(), log)
    assert await groups.txn_offset_commit(5, TXN_COMMIT) == ErrorCode.NONE
    log.refusal = refusal
    assert await end(groups) is refusal
    log.refusal = None
    assert await unstable(groups) is ErrorCode.UNSTABLE_OFFSET_COMMIT


async def test_a_marker_whose_partition_moves() -> None:
    log = MemoryLog()
    groups = await transactional(FakeCoordinator(), log)
    log.stopped = True
    ending = asyncio.ensure_future(end(groups))
    await appended(log)
    groups.on_resigned(groups.partition_for("g"))
    assert await ending is ErrorCode.NOT_LEADER_OR_FOLLOWER
