"""A coordinator whose process was stopped: members keep their sessions while their requests are unread."""

from __future__ import annotations

import asyncio

from tests.support.simulated_time import SimulatedTimeLoop, simulated
from tests.unit.coordinator.groups.harness import SESSION_MS, Room
from tests.unit.coordinator.groups.test_driver import CALLER, coordinator, join_request

from klamm.coordinator.groups.driver import GroupCoordinator
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.timers import Timers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import SyncGroupRequest

PAUSE_MS = 60_000
MEMBER_SESSION_MS = 6_000


def resume(room: Room) -> None:
    """The process was stopped, and resumes."""
    room.now_ms += PAUSE_MS
    room.take(room.hosted.on_pause(room.now_ms, PAUSE_MS))
    room.pass_time(0)


def test_sessions_start_again() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    room.pass_time(SESSION_MS - 1)
    resume(room)
    assert len(room.group.members) == 2
    room.pass_time(SESSION_MS - 1)
    assert room.heartbeat(first.member_id, first.generation_id) is ErrorCode.NONE
    room.pass_time(1)
    assert list(room.group.members) == [first.member_id], "a member without heartbeats after the pause is removed"
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


def test_all_timers_are_extended() -> None:
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


async def with_member() -> GroupCoordinator:
    groups = await coordinator()
    joined = await groups.join_group(CALLER, join_request(session_timeout_ms=MEMBER_SESSION_MS))
    await groups.sync_group(SyncGroupRequest("g", 1, joined.member_id))
    return groups


def is_empty(groups: GroupCoordinator) -> bool:
    return groups.describe_groups(6, ["g"])[0].group_state == "Empty"


def stop_for(seconds: float) -> None:
    """The process is stopped, and resumes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedTimeLoop)
    loop.stop_for(seconds)


@simulated
async def test_a_late_timer_detects_a_pause() -> None:
    groups = await with_member()
    stop_for(PAUSE_MS / 1000)
    await asyncio.sleep(MEMBER_SESSION_MS / 1000 - 0.1)
    assert not is_empty(groups)
    await asyncio.sleep(0.2)
    assert is_empty(groups), "a whole session after the pause, and no more"
    groups.close()


@simulated
async def test_a_pause_reported_by_others_counts_once() -> None:
    groups = await with_member()
    await asyncio.sleep(1)
    stop_for(4.9)  # no timer of a shard is late yet
    groups.on_pause(4_000)
    await asyncio.sleep(0.5)
    groups.on_pause(4_000)
    await asyncio.sleep(MEMBER_SESSION_MS / 1000 - 0.6)
    assert not is_empty(groups)
    await asyncio.sleep(0.2)
    assert is_empty(groups), "the session started again when the pause was reported first"
    groups.close()
