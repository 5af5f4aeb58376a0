"""The sync phase: the leader assigns, the assignment is written, all members receive it."""

from __future__ import annotations

from klamm.coordinator.groups.records import GroupRecord, decode
from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import LeaveGroupRequest, LeavingMember, SyncGroupResponse

from .harness import REBALANCE_MS, SESSION_MS, Room


def test_all_members_get_responses_once_the_assignment_is_committed() -> None:
    room = Room()
    first, second = room.begin(count=2)
    room.holds_appends = True
    follower = room.sync_later(second)
    leader = room.sync_later(first)
    assert room.group.state.value == "CompletingRebalance"
    assert not room.answers.keys() & {follower, leader}
    room.commit()
    expected = SyncGroupResponse(ErrorCode.NONE, "consumer", "range", f"to {second.member_id}".encode())
    assert room.answers[follower] == expected
    assert room.answers[leader].assignment == f"to {first.member_id}".encode()
    assert room.group.state is GroupState.STABLE


def test_the_record_holds_members_with_their_assignments() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    record = decode(*room.log[-1])
    assert isinstance(record, GroupRecord)
    kept = record.value
    assert kept is not None
    assert (kept.generation, kept.protocol_type, kept.protocol) == (1, "consumer", "range")
    assert kept.leader == first.member_id
    assert [(m.member_id, m.assignment) for m in kept.members] == [
        (first.member_id, f"to {first.member_id}".encode()),
        (second.member_id, f"to {second.member_id}".encode()),
    ]
    assert {(m.client_id, m.client_host, m.session_timeout_ms, m.rebalance_timeout_ms) for m in kept.members} == {
        ("client", "/127.0.0.1", SESSION_MS, REBALANCE_MS)
    }


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    room = Room()
    first, second = room.begin(count=2)
    follower = room.sync_later(second)
    room.sync_later(first, assign=False)
    assert room.answers[follower].assignment == b""
    assert room.answers[follower].error_code is ErrorCode.NONE


def test_a_failed_record_starts_a_new_rebalance() -> None:
    room = Room()
    first, second = room.begin(count=2)
    room.holds_appends = True
    follower, leader = room.sync_later(second), room.sync_later(first)
    room.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for ticket in (follower, leader):
        assert room.answers[ticket] == SyncGroupResponse(ErrorCode.NOT_COORDINATOR)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert all(member.assignment == b"" for member in room.group.members.values())


def test_a_record_that_times_out_starts_a_new_rebalance() -> None:
    """offsets.commit.timeout.ms; the record may still be committed, but is then of an older generation."""
    room = Room()
    (joined,) = room.begin()
    room.holds_appends = True
    ticket = room.sync_later(joined)
    room.pass_time(5_000)
    assert room.answers[ticket] == SyncGroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    room.commit_all()
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_rebalance_that_began_meanwhile_discards_the_assignment() -> None:
    room = Room()
    (joined,) = room.begin()
    room.holds_appends = True
    ticket = room.sync_later(joined)
    room.join_later(version=3)
    assert room.answers[ticket].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    room.commit_all()
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_does_not_sync_in_time_is_removed_even_if_static() -> None:
    """A static member survives a missed join, but not a missed sync."""
    room = Room()
    static = room.join_later(group_instance_id="i1", session_timeout_ms=400_000)
    member_id = room.join(session_timeout_ms=400_000).member_id
    dynamic = room.join_later(member_id, session_timeout_ms=400_000)
    room.pass_time(9_000)
    late, good = room.answers[static], room.answers[dynamic]
    waiting = room.sync_later(good)
    room.pass_time(REBALANCE_MS)
    assert list(room.group.members) == [good.member_id]
    assert room.answers[waiting].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert late.member_id not in room.group.members
    assert not room.group.static_members


def test_the_session_does_not_end_while_a_sync_waits() -> None:
    room = Room()
    first, second = room.begin(count=2)
    room.sync_later(second)
    for _ in range(5):
        room.pass_time(SESSION_MS - 1_000)
        room.heartbeat(first.member_id, 1)
    assert second.member_id in room.group.members


def test_a_member_that_leaves_while_its_sync_waits_is_answered() -> None:
    room = Room()
    _, second = room.begin(count=2)
    waiting = room.sync_later(second)
    room.leave(second.member_id)
    assert room.answers[waiting].error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_of_a_stable_group_is_answered_at_once() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    room.holds_appends = True
    room.commit_later({("topic", 0): 1}, generation_id=1, member_id=first.member_id)
    assert room.answers[room.sync_later(second)].assignment == f"to {second.member_id}".encode()


def test_a_second_sync_replaces_the_first() -> None:
    room = Room()
    first, second = room.begin(count=2)
    one, two = room.sync_later(second), room.sync_later(second)
    assert room.answers[one].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    room.sync_later(first)
    assert room.answers[two].error_code is ErrorCode.NONE


def test_the_last_leave_empties_the_group_and_is_written() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    room.holds_appends = True
    ticket = room.ticket()
    leaving = (LeavingMember(first.member_id), LeavingMember(second.member_id), LeavingMember("stranger"))
    room.take(room.shard.on_leave(room.now_ms, ticket, LeaveGroupRequest("orders", leaving)))
    assert ticket not in room.answers
    room.commit()
    codes = [member.error_code for member in room.answers[ticket].members]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert room.group.state is GroupState.EMPTY
    record = decode(*room.log[-1])
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    assert record.value.members == ()
    assert record.value.generation == 2
