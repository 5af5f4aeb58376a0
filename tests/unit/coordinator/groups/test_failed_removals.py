"""Members of consumer, share and streams groups whose removal cannot be written: their timers keep running."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.coordinator.groups.consumer.member import MemberState
from klamm.coordinator.groups.modern.sessions import RETRY_MS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from klamm.protocol.messages.group_messages import Caller

from .consumer_room import GROUP, INTERVAL_MS, REBALANCE_MS, SESSION_MS, ConsumerRoom
from .harness import Room
from .share_room import ShareRoom
from .streams.harness import StreamsRoom

LOST = ErrorCode.NOT_ENOUGH_REPLICAS


def consumer() -> ConsumerRoom:
    room = ConsumerRoom()
    room.joined("a")
    return room


def share() -> ShareRoom:
    room = ShareRoom()
    room.join("a")
    return room


def streams() -> StreamsRoom:
    room = StreamsRoom()
    room.beat("a", 0)
    return room


def fail_next_append(room: Room) -> None:
    """The append of the next timer that writes a record fails."""
    room.holds_appends = True
    end_ms = room.now_ms + 2 * SESSION_MS
    while room.appending is None and room.now_ms < end_ms:
        room.pass_time(100)
    room.fail(LOST)


def members(room: Room) -> list[str]:
    (group,) = room.shard.modern_groups.values()
    return list(group.members)


@pytest.mark.parametrize("make", [consumer, share, streams])
def test_a_member_whose_expiry_was_rolled_back_expires_later(make: Callable[[], Room]) -> None:
    room = make()
    fail_next_append(room)
    assert members(room) == ["a"]
    room.holds_appends = False
    room.pass_time(RETRY_MS)
    assert members(room) == []


@pytest.mark.parametrize("make", [consumer, share, streams])
def test_a_member_whose_leave_was_rolled_back_expires(make: Callable[[], Room]) -> None:
    room = make()
    room.holds_appends = True
    if isinstance(room, StreamsRoom | ShareRoom):
        room.beat_later("a", -1)
    else:
        leaving = ConsumerGroupHeartbeatRequest(GROUP, "a", -1)
        room.take(room.shard.on_consumer_heartbeat(room.now_ms, room.ticket(), Caller(1, "", "/1"), leaving))
    room.fail(LOST)
    room.holds_appends = False
    assert members(room) == ["a"]
    room.pass_time(SESSION_MS)
    assert members(room) == []


def test_a_member_that_is_too_slow_is_removed_although_the_first_attempt_was_rolled_back() -> None:
    room = ConsumerRoom()
    slow, other = room.joined("a"), room.joined("b")
    room.pass_time(INTERVAL_MS)
    other.beat()
    slow.beat()
    assert room.consumers.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(REBALANCE_MS // 10_000 - 1):
        room.pass_time(10_000)
        slow.beat(reports=False)
        other.beat()
    fail_next_append(room)
    room.holds_appends = False
    assert set(room.consumers.members) == {"a", "b"}
    room.pass_time(RETRY_MS)
    assert set(room.consumers.members) == {"b"}
