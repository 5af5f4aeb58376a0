"""Static membership (KIP-345, KIP-814)."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.coordinator.groups.records import GroupRecord, decode
from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import JoinGroupResponse, LeavingMember, SyncGroupResponse

from .harness import RANGE, SESSION_MS, STICKY, Room


def stable_room(**fields: Any) -> tuple[Room, JoinGroupResponse, JoinGroupResponse]:
    """A stable group of the static leader i1 and the static follower i2."""
    room = Room()
    tickets = [room.join_later(group_instance_id=instance, **fields) for instance in ("i1", "i2")]
    room.pass_time(9_000)
    leader, follower = (room.answers[ticket] for ticket in tickets)
    room.sync_later(follower)
    room.sync_later(leader)
    assert room.group.state is GroupState.STABLE
    return room, leader, follower


def test_a_static_member_joins_with_one_request() -> None:
    """A static member never receives MEMBER_ID_REQUIRED (KIP-345)."""
    room = Room()
    ticket = room.join_later(group_instance_id="i1")
    room.pass_time(3_000)
    assert room.answers[ticket].error_code is ErrorCode.NONE
    assert room.answers[ticket].member_id == "i1-0001"


def test_a_rejoining_follower_causes_no_rebalance() -> None:
    room, leader, follower = stable_room()
    answer = room.join(group_instance_id="i2")
    assert answer.member_id not in (follower.member_id, leader.member_id)
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, leader.member_id, False)
    assert answer.members == ()
    assert room.group.state is GroupState.STABLE
    synced = room.answers[room.sync_later(answer)]
    assert synced.assignment == f"to {follower.member_id}".encode()
    record = decode(*room.log[-1])
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    assert [m.member_id for m in record.value.members] == [leader.member_id, answer.member_id]
    assert record.value.members[1].assignment == synced.assignment


def test_a_rejoining_leader_stays_the_leader_and_skips_the_assignment() -> None:
    """KIP-814, from version 9 on."""
    room, _, follower = stable_room()
    answer = room.join(group_instance_id="i1", version=9)
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert {m.member_id for m in answer.members} == {answer.member_id, follower.member_id}


@pytest.mark.parametrize("version", [5, 8])
def test_a_rejoining_leader_before_version_9_gets_its_old_id(version: int) -> None:
    room, leader, _ = stable_room()
    answer = room.join(group_instance_id="i1", version=version)
    assert answer.leader == leader.member_id
    assert answer.member_id != leader.member_id
    assert not answer.skip_assignment
    assert answer.members == ()
    assert room.group.leader_id == answer.member_id


def test_the_old_member_is_fenced() -> None:
    room, _, follower = stable_room()
    room.join(group_instance_id="i2")
    assert room.heartbeat(follower.member_id, 1, "i2") is ErrorCode.FENCED_INSTANCE_ID
    assert room.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.heartbeat(follower.member_id, 1, "i9") is ErrorCode.UNKNOWN_MEMBER_ID
    fields: dict[str, Any] = {"generation_id": 1, "member_id": follower.member_id, "group_instance_id": "i2"}
    assert room.commit_offset(**fields) is ErrorCode.FENCED_INSTANCE_ID
    assert room.join(follower.member_id, group_instance_id="i2").error_code is ErrorCode.FENCED_INSTANCE_ID
    left = room.leave(LeavingMember(follower.member_id, "i2"))
    assert left.members[0].error_code is ErrorCode.FENCED_INSTANCE_ID


def test_pending_requests_of_the_old_member_are_fenced() -> None:
    room = Room()
    first = room.join_later(group_instance_id="i1")
    second = room.join_later(group_instance_id="i1")
    assert room.answers[first] == JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, "i1-0001")
    room.pass_time(3_000)
    assert room.answers[second].error_code is ErrorCode.NONE
    assert list(room.group.members) == ["i1-0002"]


def test_while_completing_a_rejoin_rebalances_and_fences_the_waiting_sync() -> None:
    room = Room()
    tickets = [room.join_later(group_instance_id=instance) for instance in ("i1", "i2")]
    room.pass_time(9_000)
    waiting = room.sync_later(room.answers[tickets[1]])
    room.join_later(group_instance_id="i2")
    assert room.answers[waiting] == SyncGroupResponse(ErrorCode.FENCED_INSTANCE_ID)
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_rejoin_that_changes_the_vote_rebalances() -> None:
    room, _, _ = stable_room(protocols=(RANGE, STICKY))
    assert room.group.protocol_name == "range"
    ticket = room.join_later(group_instance_id="i2", protocols=(STICKY,))
    assert ticket not in room.answers
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_rejoin_that_cannot_be_written_is_rolled_back() -> None:
    room, leader, follower = stable_room()
    room.holds_appends = True
    ticket = room.join_later(group_instance_id="i2", session_timeout_ms=20_000)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = room.answers[ticket]
    assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (answer.member_id, answer.leader) == ("", leader.member_id)
    member = room.group.members[follower.member_id]
    assert member.session_timeout_ms == SESSION_MS
    assert room.group.static_members["i2"] == follower.member_id
    assert room.heartbeat(follower.member_id, 1, "i2") is ErrorCode.NONE
    assert room.group.waiting_joins == 0


def test_a_rejoin_is_answered_by_a_rebalance_that_begins_during_its_write() -> None:
    room, leader, _ = stable_room()
    room.holds_appends = True
    ticket = room.join_later(group_instance_id="i2")
    again = room.join_later(leader.member_id, group_instance_id="i1")
    room.commit_all()
    assert room.answers[ticket].generation_id == room.answers[again].generation_id == 2


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    room, leader, _ = stable_room()
    answer = room.leave(LeavingMember("", "i2"), LeavingMember("", "i9"), LeavingMember("", None))
    codes = [member.error_code for member in answer.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(room.group.members) == [leader.member_id]
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_expires_with_its_session() -> None:
    room, leader, follower = stable_room()
    room.pass_time(SESSION_MS - 1)
    room.heartbeat(leader.member_id, 1, "i1")
    room.pass_time(1)
    assert follower.member_id not in room.group.members
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_an_instance_id_of_a_pending_member_is_a_contradiction() -> None:
    room = Room()
    member_id = room.join().member_id
    assert room.join(member_id, group_instance_id="i1").error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_rejoin_whose_record_is_late_remains() -> None:
    """Kafka restores the old id in memory, although its log has the new one."""
    room, _, follower = stable_room()
    room.holds_appends = True
    ticket = room.join_later(group_instance_id="i2")
    room.pass_time(5_000)
    assert room.answers[ticket].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert follower.member_id not in room.group.members
    room.commit()
    assert room.group.static_members["i2"] == room.reloaded().group.static_members["i2"] != follower.member_id
