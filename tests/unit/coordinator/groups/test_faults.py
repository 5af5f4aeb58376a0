"""An exception in a request or an event of groups fails only that shard, which is then reloaded.

The runtime is tested for every kind of shard in `tests/unit/coordinator/runtime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.coordinator.memory_log import MemoryLog
from tests.unit.coordinator.runtime.test_faults import INJECTED, InjectedError, errors, fail_once

from klamm.coordinator.groups.commits import CommitAnswer
from klamm.coordinator.groups.driver import GroupCoordinator
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.runtime.hosted_shard import LoadState
from klamm.coordinator.runtime.shard import Shard
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from klamm.protocol.messages.group_messages import (
    DeletePartition,
    DeleteTopic,
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    OffsetDeleteRequest,
    SyncAssignment,
    SyncGroupRequest,
)
from klamm.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    OffsetsGroup,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from klamm.protocol.messages.streams_messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

from .test_driver import (
    CALLER,
    TXN_COMMIT,
    FakeCoordinator,
    commit,
    commit_of,
    coordinator,
    end,
    fetch,
    heartbeat,
    join_request,
    transactional,
)

DELETION = OffsetDeleteRequest("g", (DeleteTopic("t", (DeletePartition(0),)),))


def elsewhere(groups: GroupCoordinator) -> str:
    """A group in another partition than g's."""
    return next(f"g{at}" for at in range(100) if groups.partition_for(f"g{at}") != groups.partition_for("g"))


def beside(groups: GroupCoordinator) -> str:
    """Another group in g's partition, without members."""
    return next(f"g{at}" for at in range(100) if groups.partition_for(f"g{at}") == groups.partition_for("g"))


def commit_beside(groups: GroupCoordinator) -> asyncio.Future[CommitAnswer]:
    return commit(groups, commit_of(beside(groups)))


def consumer_heartbeat(groups: GroupCoordinator) -> asyncio.Future[ConsumerGroupHeartbeatResponse]:
    answered: asyncio.Future[ConsumerGroupHeartbeatResponse] = asyncio.get_running_loop().create_future()
    request = ConsumerGroupHeartbeatRequest("g", "m", 1)
    groups.consumer_group_heartbeat(CALLER, request, answered.set_result)
    return answered


def share_heartbeat(groups: GroupCoordinator) -> asyncio.Future[ShareGroupHeartbeatResponse]:
    answered: asyncio.Future[ShareGroupHeartbeatResponse] = asyncio.get_running_loop().create_future()
    groups.share.heartbeat(CALLER, ShareGroupHeartbeatRequest("g", "m", 1), answered.set_result)
    return answered


def streams_heartbeat(groups: GroupCoordinator) -> asyncio.Future[StreamsGroupHeartbeatResponse]:
    answered: asyncio.Future[StreamsGroupHeartbeatResponse] = asyncio.get_running_loop().create_future()
    request = StreamsGroupHeartbeatRequest("g", "m", 1)
    groups.streams.heartbeat(CALLER, request, lambda result: answered.set_result(result.response))
    return answered


# How each event of a shard is caused. A new event has to be added here.
Reach = Callable[[GroupCoordinator, JoinGroupResponse], Any]
REQUESTS: dict[str, Reach] = {
    "on_join": lambda groups, _: groups.join_group(CALLER, join_request()),
    "on_sync": lambda groups, joined: groups.sync_group(SyncGroupRequest("g", 1, joined.member_id)),
    "on_heartbeat": lambda groups, joined: heartbeat(groups, HeartbeatRequest("g", 1, joined.member_id)),
    "on_leave": lambda groups, joined: groups.leave_group(LeaveGroupRequest("g", (LeavingMember(joined.member_id),))),
    "on_consumer_heartbeat": lambda groups, _: consumer_heartbeat(groups),
    "on_consumer_describe": lambda groups, _: groups.consumer_group_describe(["g"]),
    "on_share_heartbeat": lambda groups, _: share_heartbeat(groups),
    "on_share_describe": lambda groups, _: groups.share_group_describe(["g"]),
    "on_alter_share_offsets": lambda groups, _: groups.share.alter_offsets(AlterShareGroupOffsetsRequest("g")),
    "on_delete_share_offsets": lambda groups, _: groups.share.delete_offsets(DeleteShareGroupOffsetsRequest("g")),
    "on_initialized": lambda groups, _: groups.share.describe_offsets(OffsetsGroup("g")),
    "on_streams_heartbeat": lambda groups, _: streams_heartbeat(groups),
    "on_streams_describe": lambda groups, _: groups.streams.describe(["g"]),
    "on_offset_commit": lambda groups, _: commit_beside(groups),
    "on_offset_fetch": lambda groups, _: fetch(groups),
    "on_offset_delete": lambda groups, _: groups.offset_delete(DELETION),
    "on_delete_groups": lambda groups, _: groups.delete_groups(["g"]),
    "on_transactional_commit": lambda groups, _: groups.txn_offset_commit(5, TXN_COMMIT),
    "on_marker": lambda groups, _: end(groups),
}


EVENTS = {"on_topics_deleted", "on_metadata", "on_patterns_resolved"}
STATES = {"on_states_created", "on_delete_share_states", "on_share_states_deleted"}
"""Events around calls of share coordinators: see `test_share_driver`."""
READS = {"describe", "list_groups"}
LOOKS = {
    "is_share_group",
    "groups",
    "offset_count",
    "offsets_of",
    "pending_offsets",
    "verification_count",
    "modern_groups",
}
"""Methods that only tests and the node read."""
NOTES = {"begin_verification", "end_verification"}
"""Methods without effects."""


def test_every_event_of_a_shard_is_listed() -> None:
    own = {name for name in vars(GroupShard).keys() - vars(Shard).keys() if not name.startswith("_")}
    assert own == REQUESTS.keys() | EVENTS | STATES | READS | LOOKS | NOTES


async def with_a_member(log: MemoryLog) -> tuple[GroupCoordinator, JoinGroupResponse]:
    groups = await transactional(FakeCoordinator(), log)
    assert await commit_beside(groups) == ErrorCode.NONE
    joined = await groups.join_group(CALLER, join_request())
    assert joined.error_code is ErrorCode.NONE
    return groups, joined


async def assert_it_serves(groups: GroupCoordinator, *, are_deleted: bool = False) -> None:
    """Everything works again, and committed state is intact."""
    async with asyncio.timeout(30):
        await groups.loaded()
        while any(one.state is LoadState.FAILED for one in groups.runtime.shards.all()):
            await groups.runtime.load_changed()
        fetched = await fetch(groups, beside(groups), require_stable=True)
        offsets = [part.committed_offset for topic in fetched.topics for part in topic.partitions]
        assert offsets == ([] if are_deleted else [7])
        assert await commit_beside(groups) == ErrorCode.NONE
        assert await commit(groups, commit_of(elsewhere(groups))) == ErrorCode.NONE
        [described] = groups.describe_groups(6, ["g"])
        assert described.error_code is ErrorCode.NONE


@pytest.mark.parametrize("name", sorted(REQUESTS))
async def test_a_request_that_fails_a_shard(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog()
    groups, joined = await with_a_member(log)
    log.stopped = True
    waiting = commit(groups, commit_of(beside(groups)))
    streaming = commit(groups, commit_of(elsewhere(groups)))
    await asyncio.sleep(0)
    raised = fail_once(monkeypatch, GroupShard, name)
    async with asyncio.timeout(30):
        answer = await REQUESTS[name](groups, joined)
    assert raised.is_set()
    assert ErrorCode.UNKNOWN_SERVER_ERROR in codes(answer), "the failed request is answered"
    assert await waiting == ErrorCode.NOT_COORDINATOR, "the waiting client asks again"
    log.stopped = False
    while log.waiting:
        log.finish()
    assert await streaming == ErrorCode.NONE, "another shard still answers"
    [error] = errors(caplog)
    assert INJECTED in error.message
    assert error.exc_info
    await assert_it_serves(groups)
    groups.close()


def codes(answer: Any) -> list[ErrorCode]:
    if isinstance(answer, int):
        return [ErrorCode(answer)]
    if isinstance(answer, list):
        return [found for one in answer for found in codes(one)]
    return [ErrorCode(answer.error_code)]


async def test_a_deletion_of_topics_that_fails_a_shard_is_done_after_the_reload(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups, _ = await with_a_member(MemoryLog())
    raised = fail_once(monkeypatch, GroupShard, "on_topics_deleted")
    groups.on_topics_deleted([("t", b"x" * 16)])
    assert raised.is_set()
    [error] = errors(caplog)
    assert error.exc_info
    await assert_it_serves(groups, are_deleted=True)
    groups.close()


@pytest.mark.parametrize("name", sorted(READS))
async def test_a_failing_read_fails_only_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, _ = await with_a_member(MemoryLog())
    shard = groups.runtime.shards.active(groups.partition_for("g")).shard
    fail_once(monkeypatch, GroupShard, name)
    ask = {
        "describe": lambda: groups.describe_groups(6, ["g"]),
        "list_groups": lambda: groups.list_groups(ListGroupsRequest()),
    }
    with pytest.raises(InjectedError):
        ask[name]()
    assert groups.runtime.shards.active(groups.partition_for("g")).shard is shard
    groups.close()


async def test_a_topic_deleted_while_a_shard_is_loading_loses_its_offsets() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    assert await commit(groups) == ErrorCode.NONE
    groups.on_elected(groups.partition_for("g"), 2)
    groups.on_topics_deleted([("t", b"x" * 16)])
    await groups.loaded()
    assert (await fetch(groups, require_stable=True)).topics == ()
    groups.close()


async def test_a_topic_deleted_while_a_shard_is_loaded_is_not_forgotten_by_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shard fails as soon as it is loaded, before it has processed the deletion."""
    log = MemoryLog()
    groups = await coordinator(log)
    assert await commit(groups) == ErrorCode.NONE
    raised = fail_once(monkeypatch, GroupShard, "on_loaded")
    groups.on_elected(groups.partition_for("g"), 2)
    groups.on_topics_deleted([("t", b"x" * 16)])
    await raised.wait()
    await groups.loaded()
    assert (await fetch(groups, require_stable=True)).topics == ()
    groups.close()


async def test_a_shard_that_is_loaded_again_still_counts() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    log.load_refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    groups.on_elected(groups.partition_for("g"), 2)
    await groups.loaded()
    before = groups.counts.offset_commits
    assert await commit(groups) == ErrorCode.NONE
    assert groups.counts.offset_commits == before + 1
    groups.close()


async def synced(groups: GroupCoordinator) -> str:
    """The id of the only member of "g", which is Stable in generation 1."""
    joined = await groups.join_group(CALLER, join_request())
    sync = SyncGroupRequest("g", 1, joined.member_id, (SyncAssignment(joined.member_id, b"all"),))
    assert (await groups.sync_group(sync)).assignment == b"all"
    return joined.member_id


async def fail_another_group(groups: GroupCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of another group fails the shard of "g", which is then reloaded."""
    fail_once(monkeypatch, GroupShard, "on_heartbeat")
    request = HeartbeatRequest(beside(groups), 1, "m")
    assert await heartbeat(groups, request) is ErrorCode.UNKNOWN_SERVER_ERROR
    await groups.loaded()


async def test_a_stable_group_keeps_members_and_generation_after_a_fault_of_another_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = await coordinator()
    member = await synced(groups)
    before = groups.describe_groups(6, ["g"])
    await fail_another_group(groups, monkeypatch)
    assert groups.describe_groups(6, ["g"]) == before
    assert [one.member_id for one in before[0].members] == [member]
    assert await heartbeat(groups, HeartbeatRequest("g", 1, member)) is ErrorCode.NONE
    assert (await groups.sync_group(SyncGroupRequest("g", 1, member))).assignment == b"all"
    assert await commit(groups, commit_of(generation_id_or_member_epoch=1, member_id=member)) == ErrorCode.NONE
    groups.close()


async def test_a_group_in_preparing_rebalance_is_served_after_a_fault_of_another_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = await coordinator()
    first = await synced(groups)
    waiting = asyncio.ensure_future(groups.join_group(CALLER, join_request()))
    await asyncio.sleep(0)  # the shard has received the request
    assert groups.describe_groups(6, ["g"])[0].group_state == "PreparingRebalance"
    await fail_another_group(groups, monkeypatch)
    assert (await waiting).error_code is ErrorCode.NOT_COORDINATOR, "the member asks again"

    waiting = asyncio.ensure_future(groups.join_group(CALLER, join_request()))
    await asyncio.sleep(0)  # the shard has received the request
    assert await heartbeat(groups, HeartbeatRequest("g", 1, first)) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await groups.join_group(CALLER, join_request(member_id=first))
    second = await waiting
    assert {again.error_code, second.error_code} == {ErrorCode.NONE}
    assert (again.generation_id, second.generation_id) == (2, 2)
    shares = (SyncAssignment(first, b"a"), SyncAssignment(second.member_id, b"b"))
    assert (await groups.sync_group(SyncGroupRequest("g", 2, first, shares))).assignment == b"a"
    assert (await groups.sync_group(SyncGroupRequest("g", 2, second.member_id))).assignment == b"b"
    groups.close()
