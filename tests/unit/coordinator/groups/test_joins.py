"""JoinGroup in every state, and the join phase."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.records import GroupRecord, decode
from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import JoinGroupResponse, JoinProtocol

from .harness import GROUP, RANGE, REBALANCE_MS, SESSION_MS, STICKY, Room


def last_group(room: Room) -> GroupRecord:
    record = decode(*room.log[-1])
    assert isinstance(record, GroupRecord)
    return record


def test_an_unknown_member_of_an_absent_group_is_rejected_without_a_group() -> None:
    room = Room()
    assert room.join("stranger") == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    assert not room.shard.groups


def test_a_new_member_gets_its_id_and_has_to_join_again() -> None:
    """KIP-394, from version 4 on."""
    room = Room()
    assert room.join(version=4) == JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "client-0001")
    assert room.group.pending_joins == {"client-0001"}
    assert room.group.state is GroupState.EMPTY
    kept = last_group(room).value
    assert kept is not None
    assert (kept.generation, kept.protocol_type, kept.members) == (0, "", ())


def test_a_member_id_that_is_not_used_in_one_session_is_forgotten() -> None:
    room = Room()
    member_id = room.join().member_id
    room.pass_time(SESSION_MS)
    assert not room.group.pending_joins
    assert room.join(member_id).error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_new_member_joins_at_once(version: int) -> None:
    room = Room()
    ticket = room.join_later(version=version)
    room.pass_time(3_000)
    answer = room.answers[ticket]
    assert (answer.error_code, answer.generation_id, answer.member_id) == (ErrorCode.NONE, 1, "client-0001")
    assert answer.leader == "client-0001"
    assert [member.member_id for member in answer.members] == ["client-0001"]


def test_only_the_leader_gets_the_members() -> None:
    room = Room()
    first, second = room.begin(count=2)
    assert first.leader == second.leader == first.member_id
    assert [m.member_id for m in first.members] == [first.member_id, second.member_id]
    assert first.members[0].metadata == RANGE.metadata
    assert second.members == ()
    assert (second.protocol_type, second.protocol_name) == ("consumer", "range")
    assert room.group.state is GroupState.COMPLETING_REBALANCE


def test_a_type_or_protocols_that_do_not_fit_are_refused() -> None:
    room = Room()
    assert room.join(protocol_type="").error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocols=()).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert last_group(room).group_id == GROUP  # the group is created anyway, as in Kafka
    room.begin()
    assert room.join(protocol_type="connect").error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocols=(STICKY,)).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocols=(STICKY, RANGE)).error_code is ErrorCode.MEMBER_ID_REQUIRED


def test_the_first_join_phase_is_extended_by_new_members() -> None:
    """group.initial.rebalance.delay.ms: each arrival causes another delay, within the rebalance timeout."""
    room = Room()
    first = room.join_later(version=3, rebalance_timeout_ms=7_000)
    room.pass_time(2_999)
    second = room.join_later(version=3, rebalance_timeout_ms=7_000)
    room.pass_time(1)
    assert not room.answers.keys() & {first, second}
    room.pass_time(3_000)
    assert room.answers.keys() >= {first, second}


def test_the_first_join_phase_ends_with_the_rebalance_timeout() -> None:
    room = Room()
    tickets = []
    started_ms = room.now_ms
    while not room.answers:
        tickets.append(room.join_later(version=3, rebalance_timeout_ms=7_000))
        room.pass_time(500)
    # 3000, then min(3000, 4000) with 1000 left, then 1000.
    assert started_ms + 7_000 <= room.now_ms <= started_ms + 7_500


def test_a_join_phase_ends_once_all_members_have_joined() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    one = room.join_later(first.member_id)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert one not in room.answers
    two = room.join_later(second.member_id)
    assert {room.answers[one].generation_id, room.answers[two].generation_id} == {2}


def test_a_pending_member_delays_the_join_phase() -> None:
    """An assigned member id that has not joined yet delays the end of the phase."""
    room = Room()
    (first,) = room.make_stable()
    room.join()
    ticket = room.join_later(first.member_id)
    assert ticket not in room.answers
    room.pass_time(SESSION_MS)
    assert room.answers[ticket].generation_id == 2


def test_a_leader_that_does_not_rejoin_in_time_is_removed() -> None:
    room = Room()
    first, second = room.make_stable(count=2, session_timeout_ms=100_000)
    ticket = room.join_later(second.member_id, protocols=(RANGE, STICKY), session_timeout_ms=100_000)
    room.pass_time(REBALANCE_MS - 1)
    assert ticket not in room.answers
    room.pass_time(1)
    assert room.answers[ticket].leader == second.member_id
    assert first.member_id not in room.group.members


def test_static_members_survive_a_missed_join() -> None:
    """They stay members without a new JoinGroup; if the leader is one of them, another member becomes the leader."""
    room = Room()
    static = room.join_later(group_instance_id="i1", session_timeout_ms=200_000)
    member_id = room.join().member_id
    dynamic = room.join_later(member_id)
    room.pass_time(9_000)
    for ticket in (static, dynamic):
        room.sync_later(room.answers[ticket])
    leader = room.answers[static].member_id
    rejoin = room.join_later(member_id, protocols=(RANGE, STICKY))
    room.pass_time(REBALANCE_MS)
    answer = room.answers[rejoin]
    assert answer.leader == member_id
    assert [m.member_id for m in answer.members] == [leader, member_id]


def test_a_join_phase_without_joins_starts_again() -> None:
    room = Room()
    ticket = room.join_later(group_instance_id="i1", session_timeout_ms=400_000)
    room.pass_time(3_000)
    other = room.join_later(group_instance_id="i2", session_timeout_ms=400_000)
    member_id = room.answers[ticket].member_id
    room.leave(_only(room, "i2"))
    assert other in room.answers
    room.pass_time(REBALANCE_MS)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    room.pass_time(REBALANCE_MS)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert room.group.generation_id == 1
    assert member_id in room.group.members


def _only(room: Room, instance_id: str) -> str:
    return str(room.group.static_members[instance_id])


def test_the_vote_selects_the_protocol_preferred_by_most() -> None:
    room = Room()
    tickets = []
    for protocols in ((RANGE, STICKY), (STICKY, RANGE), (STICKY, RANGE)):
        tickets.append(room.join_later(version=3, protocols=protocols))
    room.pass_time(9_000)
    assert {room.answers[ticket].protocol_name for ticket in tickets} == {"sticky"}


def test_a_new_member_may_wait_longer_than_its_session() -> None:
    room = Room()
    (first,) = room.make_stable(session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    ticket = room.join_later(version=3)
    room.pass_time(299_999)
    assert ticket not in room.answers
    room.pass_time(1)
    assert room.answers[ticket] == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(room.group.members) == [first.member_id]


def test_an_unchanged_rejoin_of_a_stable_follower_gets_the_same_generation() -> None:
    room = Room()
    _, second = room.make_stable(count=2)
    again = room.join(second.member_id)
    assert again == second
    assert room.group.state is GroupState.STABLE


def test_a_stable_leader_that_joins_starts_a_rebalance() -> None:
    room = Room()
    first, _ = room.make_stable(count=2)
    assert room.join_later(first.member_id) not in room.answers
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_follower_with_another_subscription_starts_a_rebalance() -> None:
    room = Room()
    _, second = room.make_stable(count=2)
    assert room.join_later(second.member_id, protocols=(JoinProtocol("range", b"other"),)) not in room.answers
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_while_completing_an_unchanged_join_is_answered_and_a_changed_one_rebalances() -> None:
    room = Room()
    first, second = room.begin(count=2)
    assert room.join(first.member_id) == first
    assert room.join(second.member_id) == second
    waiting = room.sync_later(second)
    ticket = room.join_later(first.member_id, protocols=(RANGE, STICKY))
    assert room.answers[waiting].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert ticket not in room.answers


def test_a_full_group_accepts_no_more_members() -> None:
    room = Room(GroupConfig(group_max_size=2))
    first, _ = room.make_stable(count=2)
    assert room.join() == JoinGroupResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert room.join_later(first.member_id) not in room.answers  # an existing member may rejoin
    assert room.join_later(version=3) not in room.answers  # another member has not rejoined, so there is room
    assert room.join(version=3).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_join_of_version_0() -> None:
    room = Room()
    ticket = room.join_later(version=0, rebalance_timeout_ms=SESSION_MS)
    room.pass_time(3_000)
    assert room.answers[ticket].error_code is ErrorCode.NONE
    assert room.group.rebalance_timeout_ms == SESSION_MS


def test_a_repeated_join_gets_two_responses() -> None:
    room = Room()
    first, _ = room.make_stable(count=2)
    one = room.join_later(first.member_id)
    two = room.join_later(first.member_id)
    assert room.answers[one].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert two not in room.answers
    assert room.group.waiting_joins == 1


def test_a_group_whose_record_cannot_be_written_does_not_exist() -> None:
    room = Room()
    room.holds_appends = True
    ticket = room.join_later(version=3)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert room.answers[ticket] == JoinGroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, "client-0001")
    assert not room.shard.groups
    room.pass_time(1_000_000)
    assert not room.appending


def test_the_session_restarts_after_the_join_phase() -> None:
    room = Room()
    room.make_stable()
    room.pass_time(SESSION_MS)
    assert room.group.state is GroupState.EMPTY
    kept = last_group(room).value
    assert kept is not None
    assert (kept.generation, kept.protocol_type, kept.protocol, kept.members) == (2, "consumer", None, ())


def test_a_group_created_after_a_failed_deletion_yields_to_the_previous_one() -> None:
    room = Room()
    room.commit_offset(7)
    room.holds_appends = True
    room.take(room.shard.on_delete_groups(room.now_ms, room.ticket(), (GROUP,)))
    ticket = room.join_later(version=3)
    room.pass_time(3_000)
    syncing = room.sync_later(room.answers[ticket])
    room.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert room.answers[syncing].error_code is ErrorCode.NOT_COORDINATOR
    assert room.group.state is GroupState.EMPTY
    assert room.fetch() == {("topic", 0): 7}
    assert room.appending is None
