"""Offsets and groups that expire, or are deleted with their topic or on request."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.records import GroupRecord, OffsetCommit, decode
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import ListedGroup, ListGroupsRequest

from .harness import GROUP, Room

RETENTION_MS = 60_000
CHECK_MS = 10_000
CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=CHECK_MS)


def is_there(room: Room) -> bool:
    return GROUP in room.shard.groups


def test_offsets_of_a_simple_group_expire_after_their_commit() -> None:
    room = Room(CONFIG)
    room.commit_offset(1)
    room.pass_time(30_000)
    room.commit_offset(2, partition=1)
    room.pass_time(RETENTION_MS - 30_001)
    assert len(room.fetch()) == 2
    room.pass_time(CHECK_MS)
    assert room.fetch() == {("topic", 1): 2}
    room.pass_time(30_000)
    assert not is_there(room)
    assert decode(*room.log[-2]) == OffsetCommit(GROUP, "topic", 1, None)
    assert decode(*room.log[-1]) == GroupRecord(GROUP, None)


def test_offsets_of_an_empty_group_expire_after_it_became_empty() -> None:
    room = Room(CONFIG)
    (joined,) = room.make_stable(session_timeout_ms=100_000)
    room.commit_offset(1, generation_id=1, member_id=joined.member_id)
    room.pass_time(50_000)
    room.leave(joined.member_id)
    room.pass_time(RETENTION_MS - 1)
    assert room.fetch() == {("topic", 0): 1}
    room.pass_time(CHECK_MS)
    assert not is_there(room)


def test_a_stable_group_keeps_offsets_of_subscribed_topics() -> None:
    room = Room(CONFIG)
    (joined,) = room.make_stable(session_timeout_ms=1_000_000)
    room.commit_later({("topic", 0): 1, ("other", 0): 2}, generation_id=1, member_id=joined.member_id)
    room.pass_time(RETENTION_MS + CHECK_MS)
    assert room.fetch() == {("topic", 0): 1}
    assert is_there(room)


def test_another_live_group_keeps_everything() -> None:
    room = Room(CONFIG)
    (joined,) = room.make_stable(session_timeout_ms=1_000_000, protocol_type="connect")
    room.commit_offset(1, generation_id=1, member_id=joined.member_id)
    room.pass_time(10 * RETENTION_MS)
    assert room.fetch() == {("topic", 0): 1}


def test_an_explicit_expiry_replaces_the_rule() -> None:
    room = Room(CONFIG)
    room.commit_offset(1, retention_time_ms=5 * RETENTION_MS)
    room.pass_time(4 * RETENTION_MS)
    assert is_there(room)
    room.pass_time(RETENTION_MS + CHECK_MS)
    assert not is_there(room)


def test_an_empty_group_without_offsets_is_removed_at_the_next_check() -> None:
    """Even if the retention time has not passed."""
    room = Room(CONFIG)
    room.join()
    assert is_there(room)
    room.pass_time(CHECK_MS)
    assert not is_there(room)


def test_a_live_group_without_offsets_stays() -> None:
    room = Room(CONFIG)
    room.make_stable(session_timeout_ms=1_000_000)
    room.pass_time(2 * CHECK_MS)
    assert is_there(room)


def test_a_long_check_is_made_in_steps() -> None:
    room = Room(CONFIG)
    for group in range(5):
        for topic in range(10):
            room.commit_later({(f"t{topic}", part): 1 for part in range(100)}, group_id=f"g{group}")
    room.pass_time(RETENTION_MS - CHECK_MS)
    room.now_ms += CHECK_MS
    room.take(room.hosted.on_timer(room.now_ms))
    left = sum(1 for group in range(5) if f"g{group}" in room.shard.groups)
    assert 0 < left < 5
    room.pass_time(0)
    assert not room.shard.groups
    assert room.hosted.deadline_ms is not None
    assert room.hosted.deadline_ms > room.now_ms


@pytest.mark.parametrize(("topic_id", "stays"), [(b"a" * 16, False), (b"b" * 16, True)])
def test_offsets_of_a_deleted_topic_are_removed_if_the_id_matches(topic_id: bytes, stays: bool) -> None:
    room = Room()
    room.commit_offset(1, topic_id=b"a" * 16)
    room.commit_offset(2, partition=1)
    room.commit_offset(3, topic="other", topic_id=topic_id)
    room.take(room.shard.on_topics_deleted(room.now_ms, [("topic", topic_id)]))
    assert room.fetch() == ({("topic", 0): 1} if stays else {}) | {("other", 0): 3}


def delete_groups(room: Room, *group_ids: str) -> list[ErrorCode]:
    ticket = room.ticket()
    room.take(room.shard.on_delete_groups(room.now_ms, ticket, group_ids))
    return [deleted.error_code for deleted in room.answers[ticket]]


def test_a_deleted_group_loses_its_offsets() -> None:
    room = Room()
    room.commit_offset(1)
    room.commit_offset(1, group_id="other")
    before = len(room.log)
    assert delete_groups(room, GROUP, "absent") == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [decode(*record) for record in room.log[before:]] == [
        OffsetCommit(GROUP, "topic", 0, None),
        GroupRecord(GROUP, None),
    ]
    assert list(room.shard.groups) == ["other"]


def test_a_failed_deletion_is_rolled_back() -> None:
    room = Room()
    room.commit_offset(1)
    room.holds_appends = True
    ticket = room.ticket()
    room.take(room.shard.on_delete_groups(room.now_ms, ticket, (GROUP,)))
    assert GROUP not in room.shard.groups
    assert room.shard.describe(6, GROUP).group_state == "Empty"
    assert room.fetch() == {("topic", 0): 1}
    room.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert room.answers[ticket][0].error_code is ErrorCode.NOT_COORDINATOR
    assert GROUP in room.shard.groups
    assert room.fetch() == {("topic", 0): 1}


def test_a_group_with_very_many_offsets_can_be_deleted() -> None:
    room = Room(GroupConfig(batch_bytes_max=100_000))
    for topic in range(20):
        room.commit_later({(f"t{topic}", part): 1 for part in range(200)})
    assert delete_groups(room, GROUP) == [ErrorCode.NONE]
    assert not room.reloaded().shard.groups


def listed(room: Room, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
    return {group.group_id for group in room.shard.list_groups(ListGroupsRequest(states, types))}


def test_groups_are_listed_by_state_and_type_whatever_the_letter_case() -> None:
    room = Room()
    room.make_stable()
    room.commit_offset(group_id="simple")
    assert room.shard.list_groups(ListGroupsRequest()) == [
        ListedGroup(GROUP, "consumer", "Stable", "classic"),
        ListedGroup("simple", "", "Empty", "classic"),
    ]
    assert listed(room, ("sTABLE", "Dead")) == {GROUP}
    assert listed(room, (" Empty ",)) == {"simple"}
    assert listed(room, ("nonsense",)) == set()
    assert listed(room, (), ("CLASSIC", "share")) == {GROUP, "simple"}
    assert listed(room, ("stable",), ("consumer",)) == set()
    assert listed(room, (), ("nonsense",)) == set()
