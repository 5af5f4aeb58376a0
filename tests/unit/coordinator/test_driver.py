"""The driver in a real loop, over a log in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from tests.support.waiting import until

from klamm._engine import CommitRequest
from klamm.coordinator import driver
from klamm.coordinator.commits import CommitAnswer
from klamm.coordinator.config import GroupConfig
from klamm.coordinator.driver import GroupCoordinator, into
from klamm.coordinator.group_log import Batch, LoadedRecord
from klamm.coordinator.records import LogRecord, group_key, offset_key
from klamm.coordinator.service import LoadState, java_hash, partition_of
from klamm.protocol.errors import ErrorCode, KafkaError
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


class MemoryLog:
    """Commits in the loop's next turn, unless it is stopped."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[LogRecord]] = {}
        self.stopped = False
        self.refusal: ErrorCode | None = None
        self.load_refusals: list[ErrorCode] = []
        self.calls: list[Sequence[Batch]] = []
        self.waiting: list[Callable[[ErrorCode | None], None]] = []

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        self.calls.append(batches)
        for batch in batches:
            if self.refusal is not None:
                batch.done(self.refusal)
                continue
            self.partitions.setdefault(batch.partition, []).extend(batch.records)
            self.waiting.append(batch.done)
            if not self.stopped:
                asyncio.get_running_loop().call_soon(self.finish)

    def finish(self, code: ErrorCode | None = ErrorCode.NONE) -> None:
        self.waiting.pop(0)(code)

    async def open(self, partition: int) -> None:
        pass

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        for offset, (key, value) in enumerate(self.partitions.get(partition, [])):
            yield LoadedRecord(offset, key, value)
        if self.load_refusals:
            raise KafkaError(self.load_refusals.pop(0))


async def coordinator(
    log: MemoryLog | None = None, config: GroupConfig = CONFIG, now_ms: Callable[[], int] | None = None
) -> GroupCoordinator:
    made = GroupCoordinator(config, log or MemoryLog(), 4, now_ms=now_ms)
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


async def appended(log: MemoryLog) -> None:
    """Wait until an append is under way."""
    for _ in range(10):
        if log.waiting:
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing is appended")


def join_request(**fields: object) -> JoinGroupRequest:
    request = JoinGroupRequest("g", 10_000, "", "consumer", (RANGE,), 10_000)
    return replace(request, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("grüße", 98768023),
        ("😀", 1772899),
    ],
)
def test_javas_hash(text: str, expected: int) -> None:
    """Over UTF-16 units (facts 11.6, 1); the values are Java's own."""
    assert java_hash(text) == expected


def test_the_smallest_hash_goes_to_partition_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0


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


async def test_what_comes_in_one_turn_of_the_loop_is_appended_together() -> None:
    log = MemoryLog()
    log.stopped = True
    groups = await coordinator(log)
    names = [f"g{at}" for at in range(20)]
    answers = [commit(groups, commit_of(name)) for name in names]
    await appended(log)
    partitions = {groups.partition_for(name) for name in names}
    assert [len(batches) for batches in log.calls] == [len(partitions)]
    assert sum(len(records) for records in log.partitions.values()) == len(names)
    assert not any(answer.done() for answer in answers)
    while log.waiting:
        log.finish()
    assert [answer.result() for answer in answers] == [ErrorCode.NONE] * len(names)
    await asyncio.sleep(0)
    assert len(log.calls) == 1


async def test_a_partition_that_goes_in_the_same_turn_appends_nothing() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    answer = commit(groups)
    groups.on_resigned(groups.partition_for("g"))
    assert answer.result() == ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(0)
    assert log.calls == []


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
    """Facts 11.6, 10."""
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


async def test_a_log_that_cannot_be_read_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    log.partitions[0] = [(group_key("g"), b"\x00\x09")]
    with caplog.at_level(logging.ERROR, "klamm.coordinator"):
        groups = await coordinator(log)
    assert "value version 9" in caplog.text
    residence = groups.registry.get(0)
    assert residence is not None
    assert residence.state is LoadState.FAILED
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        groups.registry.active(0)
    assert groups.list_groups(ListGroupsRequest()).error_code is ErrorCode.NONE


async def test_a_log_that_cannot_be_read_now_is_loaded_from_the_start_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor was free, say: until then a client hears what makes it ask again."""
    monkeypatch.setattr(driver, "FIRST_LOAD_PAUSE_S", 0.001)
    log = MemoryLog()
    groups = await coordinator(log)
    assert await commit(groups) == ErrorCode.NONE
    log.load_refusals = [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    partition = groups.partition_for("g")
    groups.on_elected(partition, 2)
    assert (await fetch(groups)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await groups.loaded()
    assert log.load_refusals == []
    fetched = await fetch(groups)
    assert fetched.topics[0].partitions[0].committed_offset == 7


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


async def test_a_new_leader_epoch_loads_anew_and_an_old_one_is_ignored() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    partition = groups.partition_for("g")
    before = groups.registry.get(partition)
    groups.on_elected(partition, 1)
    groups.on_resigned(partition, 1)
    assert groups.registry.get(partition) is before
    log.stopped = True
    answer = commit(groups)
    await appended(log)
    groups.on_elected(partition, 2)
    assert await answer == ErrorCode.NOT_COORDINATOR
    await groups.loaded()
    log.finish()  # the append of the shard that is gone
    await asyncio.sleep(0)
    groups.on_resigned(partition, 3)
    assert groups.registry.get(partition) is None


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


async def test_many_records_are_loaded_in_turns() -> None:
    log = MemoryLog()
    groups = await coordinator(log)
    for _ in range(20):
        await commit(groups, commit_of(partitions=100))
    again = GroupCoordinator(CONFIG, log, 4)
    again.on_elected(groups.partition_for("g"), 1)
    turns = 0
    while again.registry.residences()[0].state is LoadState.LOADING:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10
