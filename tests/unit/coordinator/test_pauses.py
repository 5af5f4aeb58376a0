"""A coordinator whose process was stopped: members whose requests lie unread keep their sessions."""

from __future__ import annotations

from tests.unit.coordinator.harness import SESSION_MS, Room
from tests.unit.coordinator.test_driver import CALLER, coordinator, join_request

from klamm.coordinator.driver import LONG_PAUSE_MS, GroupCoordinator
from klamm.coordinator.states import GroupState
from klamm.coordinator.timers import Timers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.group_messages import SyncGroupRequest

PAUSE_MS = 60_000


def resume(room: Room) -> None:
    """The process was stopped, and goes on."""
    room.now_ms += PAUSE_MS
    room.take(room.shard.on_pause(room.now_ms, PAUSE_MS))
    room.pass_time(0)


def test_sessions_start_afresh() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    room.pass_time(SESSION_MS - 1)
    resume(room)
    assert len(room.group.members) == 2
    room.pass_time(SESSION_MS - 1)
    assert room.heartbeat(first.member_id, first.generation_id) is ErrorCode.NONE
    room.pass_time(1)
    assert list(room.group.members) == [first.member_id], "who is not heard of after the pause either is gone"
    assert second.member_id not in room.group.members


def test_a_rebalance_still_waits_for_its_members() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    room.join_later(first.member_id)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    room.pass_time(SESSION_MS // 2)
    resume(room)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert second.member_id in room.group.members
    room.pass_time(SESSION_MS)
    assert list(room.group.members) == [first.member_id]


def test_timers_are_put_off_together() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10)
    timers.schedule("b", 5)
    timers.schedule("b", 20)
    timers.schedule("c", 30)
    timers.cancel("c")
    timers.put_off(100)
    assert list(timers.pop_due(109)) == []
    assert list(timers.pop_due(120)) == ["a", "b"]
    assert timers.deadline_ms is None


class Stopping:
    """A clock of a process that can be stopped."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


async def with_member(clock: Stopping) -> GroupCoordinator:
    groups = await coordinator(now_ms=clock)
    joined = await groups.join_group(CALLER, join_request(session_timeout_ms=6_000))
    await groups.sync_group(SyncGroupRequest("g", 1, joined.member_id))
    return groups


def is_empty(groups: GroupCoordinator) -> bool:
    return groups.describe_groups(6, ["g"])[0].group_state == "Empty"


def fire(groups: GroupCoordinator) -> None:
    """Let the loop's timers of all shards fire, as they do first of all when the process goes on."""
    for partition, (_, handle) in list(groups._timers.items()):
        handle.cancel()
        residence = groups.registry.get(partition)
        assert residence is not None
        groups._on_timer(residence)


async def test_a_late_timer_tells_of_a_pause() -> None:
    clock = Stopping()
    groups = await with_member(clock)
    clock.now_ms += PAUSE_MS
    fire(groups)
    assert not is_empty(groups)
    clock.now_ms += LONG_PAUSE_MS - 1
    fire(groups)
    assert not is_empty(groups), "one pause is taken in once, and the session lasts"
    groups.close()
