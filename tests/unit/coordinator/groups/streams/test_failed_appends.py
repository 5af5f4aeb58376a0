"""The timers of streams groups after a failed append."""

from __future__ import annotations

from tests.unit.coordinator.groups.streams.harness import AT_ONCE, StreamsRoom, active, ids

from klamm.coordinator.groups.streams.member import MemberState
from klamm.protocol.errors import ErrorCode

SESSION_MS = AT_ONCE.group_streams_session_timeout_ms
REBALANCE_MS = 60_000


def test_a_member_whose_removal_was_not_written_is_removed_later() -> None:
    room = StreamsRoom()
    room.beat("m", 0)
    room.holds_appends = True
    for wait_ms in (SESSION_MS, 500):
        room.pass_time(wait_ms)
        room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert "m" in room.streams_group.members
    room.holds_appends = False
    room.pass_time(500)
    assert not room.streams_group.members


def test_the_session_of_a_member_whose_leave_was_not_written_continues() -> None:
    room = StreamsRoom()
    room.beat("m", 0)
    room.holds_appends = True
    room.beat_later("m", -1)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    room.holds_appends = False
    room.pass_time(SESSION_MS - 1)
    assert "m" in room.streams_group.members
    room.pass_time(1)
    assert not room.streams_group.members


def revoking_room() -> StreamsRoom:
    """A group in which `a` has to revoke tasks for `b`."""
    room = StreamsRoom(AT_ONCE)
    assert active(room.beat("a", 0)) == [0, 1, 2, 3]
    room.beat("b", 0)
    room.owning("a", 2, 0, 1, 2, 3)
    assert room.streams_group.members["a"].state is MemberState.UNREVOKED_TASKS
    return room


def keep_alive(room: StreamsRoom, for_ms: int) -> None:
    for _ in range(for_ms // 5_000):
        room.pass_time(5_000)
        for member in list(room.streams_group.members.values()):
            room.beat(member.member_id, member.member_epoch)


def test_a_removal_of_a_slow_member_that_was_not_written_is_tried_again() -> None:
    room = revoking_room()
    keep_alive(room, REBALANCE_MS - 5_000)
    room.holds_appends = True
    room.pass_time(5_000)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert set(room.streams_group.members) == {"a", "b"}
    room.holds_appends = False
    room.pass_time(500)
    assert set(room.streams_group.members) == {"b"}


def test_a_member_whose_revocation_was_not_written_has_the_rest_of_its_time() -> None:
    room = revoking_room()
    kept = sorted(room.streams_group.members["a"].assigned.active["0"])
    room.holds_appends = True
    room.beat_later("a", 2, active_tasks=ids(*kept), standby_tasks=(), warmup_tasks=())
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    room.holds_appends = False
    assert room.streams_group.members["a"].state is MemberState.UNREVOKED_TASKS
    keep_alive(room, REBALANCE_MS)
    assert set(room.streams_group.members) == {"b"}
