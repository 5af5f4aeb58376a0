"""An exception in a shard, its log or an answer: it ends that alone, is logged once, and the shard is loaded again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.coordinator import driver
from klamm.coordinator.commits import CommitAnswer
from klamm.coordinator.driver import GroupCoordinator
from klamm.coordinator.group_log import LoadedRecord
from klamm.coordinator.service import LoadState
from klamm.coordinator.shard import Shard
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    Caller,
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

from .test_driver import CALLER, COMMIT, MemoryLog, commit, commit_of, coordinator, fetch, heartbeat, join_request

DELETION = OffsetDeleteRequest("g", (DeleteTopic("t", (DeletePartition(0),)),))
INJECTED = "injected for the test"


class InjectedError(Exception):
    """What a test injects."""


@pytest.fixture(autouse=True)
def quick_reloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FIRST_LOAD_PAUSE_S", 0.001)


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> asyncio.Event:
    """Let the next call raise; the event is set when it has."""
    found, raised = vars(owner)[name], asyncio.Event()

    def inject(*args: Any, **kwargs: Any) -> Any:
        if not raised.is_set():
            raised.set()
            raise InjectedError(INJECTED)
        return (found.fget if isinstance(found, property) else found)(*args, **kwargs)

    monkeypatch.setattr(owner, name, property(inject) if isinstance(found, property) else inject)
    return raised


def elsewhere(groups: GroupCoordinator) -> str:
    """A group of another partition than g's."""
    return next(f"g{at}" for at in range(100) if groups.partition_for(f"g{at}") != groups.partition_for("g"))


def beside(groups: GroupCoordinator) -> str:
    """Another group of g's partition, which has no members."""
    return next(f"g{at}" for at in range(100) if groups.partition_for(f"g{at}") == groups.partition_for("g"))


def commit_beside(groups: GroupCoordinator) -> asyncio.Future[CommitAnswer]:
    return commit(groups, commit_of(beside(groups)))


# What reaches each event of a shard. A new event has to be added here.
Reach = Callable[[GroupCoordinator, JoinGroupResponse], Any]
REQUESTS: dict[str, Reach] = {
    "on_join": lambda groups, _: groups.join_group(CALLER, join_request()),
    "on_sync": lambda groups, joined: groups.sync_group(SyncGroupRequest("g", 1, joined.member_id)),
    "on_heartbeat": lambda groups, joined: heartbeat(groups, HeartbeatRequest("g", 1, joined.member_id)),
    "on_leave": lambda groups, joined: groups.leave_group(LeaveGroupRequest("g", (LeavingMember(joined.member_id),))),
    "on_offset_commit": lambda groups, _: commit_beside(groups),
    "on_offset_fetch": lambda groups, _: fetch(groups),
    "on_offset_delete": lambda groups, _: groups.offset_delete(DELETION),
    "on_delete_groups": lambda groups, _: groups.delete_groups(["g"]),
}


EVENTS: dict[str, Callable[[GroupCoordinator], Any]] = {
    "take_append": commit_beside,
    "on_append_done": commit_beside,
    "deadline_ms": commit_beside,
    "on_topics_deleted": lambda groups: groups.on_topics_deleted([("t", b"x" * 16)]),
    "on_timer": lambda groups: groups.join_group(Caller(9, "c", "/h"), join_request(session_timeout_ms=1)),
    "on_pause": lambda groups: groups.on_pause(60_000),
    "replay": lambda groups: groups.on_elected(groups.partition_for("g"), 2),
    "replay_transaction_end": lambda groups: groups.on_elected(groups.partition_for("g"), 2),
    "on_loaded": lambda groups: groups.on_elected(groups.partition_for("g"), 2),
    "on_unloaded": lambda groups: groups.on_elected(groups.partition_for("g"), 2),
}
READS = {"describe", "list_groups"}
LOOKS = {"groups", "offsets_of", "foreign_groups"}
"""What only tests and the node look at."""


def test_every_event_of_a_shard_is_among_them() -> None:
    public = {name for name in vars(Shard) if not name.startswith("_")}
    assert public == REQUESTS.keys() | EVENTS.keys() | READS | LOOKS


async def with_a_member(log: MemoryLog) -> tuple[GroupCoordinator, JoinGroupResponse]:
    groups = await coordinator(log)
    assert await commit_beside(groups) == ErrorCode.NONE
    joined = await groups.join_group(CALLER, join_request())
    assert joined.error_code is ErrorCode.NONE
    return groups, joined


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


async def assert_it_serves(groups: GroupCoordinator, *, are_deleted: bool = False) -> None:
    """All of it works again, and what was committed is there."""
    async with asyncio.timeout(30):
        await groups.loaded()
        while any(one.state is LoadState.FAILED for one in groups.registry.residences()):
            await groups.load_changed()
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
    going_on = commit(groups, commit_of(elsewhere(groups)))
    await asyncio.sleep(0)
    raised = fail_once(monkeypatch, Shard, name)
    async with asyncio.timeout(30):
        answer = await REQUESTS[name](groups, joined)
    assert raised.is_set()
    assert ErrorCode.UNKNOWN_SERVER_ERROR in codes(answer), "the failed request is answered"
    assert await waiting == ErrorCode.NOT_COORDINATOR, "the waiting client asks again"
    log.stopped = False
    while log.waiting:
        log.finish()
    assert await going_on == ErrorCode.NONE, "another shard goes on"
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


@pytest.mark.parametrize("name", sorted(EVENTS))
async def test_an_event_that_fails_a_shard(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog()
    groups, _ = await with_a_member(log)
    if name == "replay_transaction_end":
        monkeypatch.setattr(log, "load", with_a_marker(log))
    raised = fail_once(monkeypatch, Shard, name)
    async with asyncio.timeout(30):
        reached = EVENTS[name](groups)
        if reached is not None:
            assert codes(await reached) != [ErrorCode.UNKNOWN_SERVER_ERROR]
        await raised.wait()
    [error] = errors(caplog)
    assert INJECTED in caplog.text
    assert error.exc_info
    await assert_it_serves(groups, are_deleted=name == "on_topics_deleted")
    groups.close()


def with_a_marker(log: MemoryLog) -> Callable[[int], Iterator[LoadedRecord]]:
    load = log.load

    def marked(partition: int) -> Iterator[LoadedRecord]:
        yield from load(partition)
        yield LoadedRecord(1_000, b"\0\0\0\1", b"", 5, is_control=True)

    return marked


@pytest.mark.parametrize("name", sorted(READS))
async def test_a_read_that_fails_ends_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, _ = await with_a_member(MemoryLog())
    shard = groups.registry.active(groups.partition_for("g")).shard
    fail_once(monkeypatch, Shard, name)
    ask = {
        "describe": lambda: groups.describe_groups(6, ["g"]),
        "list_groups": lambda: groups.list_groups(ListGroupsRequest()),
    }
    with pytest.raises(InjectedError):
        ask[name]()
    assert groups.registry.active(groups.partition_for("g")).shard is shard
    groups.close()


@pytest.mark.parametrize("name", ["append", "open", "load"])
async def test_a_log_that_fails(name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    groups, _ = await with_a_member(log)
    raised = fail_once(monkeypatch, MemoryLog, name)
    if name == "append":
        assert await commit_beside(groups) == ErrorCode.NOT_COORDINATOR
    else:
        groups.on_elected(groups.partition_for("g"), 2)
    async with asyncio.timeout(30):
        await raised.wait()
    await assert_it_serves(groups)
    assert len(errors(caplog)) == 1
    groups.close()


async def test_an_append_of_which_nothing_is_known_reloads_the_shard(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    groups, _ = await with_a_member(log)
    log.stopped = True
    answer = commit_beside(groups)
    await asyncio.sleep(0)
    log.finish(None)
    assert await answer == ErrorCode.NOT_COORDINATOR
    log.stopped = False
    await assert_it_serves(groups)
    assert len(errors(caplog)) == 1
    groups.close()


async def test_an_answer_that_cannot_be_given_is_no_fault_of_the_shard(caplog: pytest.LogCaptureFixture) -> None:
    groups, _ = await with_a_member(MemoryLog())
    shard = groups.registry.active(groups.partition_for("g")).shard

    def broken(code: object) -> None:
        raise InjectedError(INJECTED)

    groups.offset_commit(COMMIT, broken)
    assert await commit_beside(groups) == ErrorCode.NONE
    assert groups.registry.active(groups.partition_for("g")).shard is shard
    [error] = errors(caplog)
    assert error.exc_info
    groups.close()


async def test_a_shard_that_fails_again_and_again_is_loaded_ever_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that repeats what fails must not keep the node busy with loading."""
    pauses: list[float] = []
    groups, _ = await with_a_member(MemoryLog())
    sleep = asyncio.sleep

    async def noted(pause_s: float) -> None:
        pauses.append(pause_s)
        await sleep(0)

    monkeypatch.setattr(driver.asyncio, "sleep", noted)
    for _ in range(4):
        fail_once(monkeypatch, Shard, "on_heartbeat")
        assert await heartbeat(groups, HeartbeatRequest("g", 1, "m")) is ErrorCode.UNKNOWN_SERVER_ERROR
        await groups.loaded()
    assert pauses == [0.001, 0.002, 0.004, 0.008]
    assert len(errors(caplog)) == 4
    groups.close()


async def test_a_topic_deleted_while_a_shard_is_loaded_takes_its_offsets_along() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    assert await commit(groups) == ErrorCode.NONE
    groups.on_elected(groups.partition_for("g"), 2)
    groups.on_topics_deleted([("t", b"x" * 16)])
    await groups.loaded()
    assert (await fetch(groups, require_stable=True)).topics == ()
    groups.close()


async def test_a_shard_that_is_loaded_again_still_counts() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    log.load_refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    groups.on_elected(groups.partition_for("g"), 2)
    await groups.loaded()
    before = groups.registry.counts.offset_commits
    assert await commit(groups) == ErrorCode.NONE
    assert groups.registry.counts.offset_commits == before + 1
    groups.close()


async def synced(groups: GroupCoordinator) -> str:
    """The id of the only member of "g", which is Stable in generation 1."""
    joined = await groups.join_group(CALLER, join_request())
    sync = SyncGroupRequest("g", 1, joined.member_id, (SyncAssignment(joined.member_id, b"all"),))
    assert (await groups.sync_group(sync)).assignment == b"all"
    return joined.member_id


async def fail_another_group(groups: GroupCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of another group in the shard of "g" fails, and the shard is loaded again."""
    fail_once(monkeypatch, Shard, "on_heartbeat")
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
    await asyncio.sleep(0)  # the shard has the request
    assert groups.describe_groups(6, ["g"])[0].group_state == "PreparingRebalance"
    await fail_another_group(groups, monkeypatch)
    assert (await waiting).error_code is ErrorCode.NOT_COORDINATOR, "the member asks again"

    waiting = asyncio.ensure_future(groups.join_group(CALLER, join_request()))
    await asyncio.sleep(0)  # the shard has the request
    assert await heartbeat(groups, HeartbeatRequest("g", 1, first)) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await groups.join_group(CALLER, join_request(member_id=first))
    second = await waiting
    assert {again.error_code, second.error_code} == {ErrorCode.NONE}
    assert (again.generation_id, second.generation_id) == (2, 2)
    shares = (SyncAssignment(first, b"a"), SyncAssignment(second.member_id, b"b"))
    assert (await groups.sync_group(SyncGroupRequest("g", 2, first, shares))).assignment == b"a"
    assert (await groups.sync_group(SyncGroupRequest("g", 2, second.member_id))).assignment == b"b"
    groups.close()
