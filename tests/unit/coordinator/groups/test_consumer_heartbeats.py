"""ConsumerGroupHeartbeat (KIP-848): joins, epochs, reconciliation."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.consumer.member import MemberState
from klamm.coordinator.groups.consumer.requests import check_heartbeat
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, OwnedTopic

from .consumer_room import GROUP, INTERVAL_MS, REBALANCE_MS, Consumer, ConsumerRoom, T, U

ALL = {"t": (0, 1, 2, 3, 4, 5)}
HALF = {"t": (0, 1, 2)}
OTHER_HALF = {"t": (3, 4, 5)}
FENCED = ErrorCode.FENCED_MEMBER_EPOCH


def two(room: ConsumerRoom, **fields: Any) -> tuple[Consumer, Consumer]:
    """m1 owns everything, and m2 has joined over a second later."""
    first = room.joined("m1", **fields)
    room.pass_time(INTERVAL_MS)
    return first, room.joined("m2", **fields)


def halved(room: ConsumerRoom) -> tuple[Consumer, Consumer]:
    """Two members with half of the partitions each."""
    first, second = two(room)
    first.beat()
    first.beat()
    second.beat()
    assert (first.owned, second.owned) == (HALF, OTHER_HALF)
    assert room.consumers.state == "Stable"
    return first, second


def state_of(room: ConsumerRoom, consumer: Consumer) -> MemberState:
    return room.consumers.members[consumer.member_id].state


def test_the_first_member_gets_all_partitions_at_epoch_2() -> None:
    room = ConsumerRoom()
    first = room.consumer("m1")
    answer = first.join()
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.member_id) == (2, 5_000, "m1")
    assert first.told == ALL
    assert room.types() == [5, 3, 7, 6, 8]
    assert room.consumers.state == "Stable"


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": (OwnedTopic(T.topic_id, (0,)),)},
        {"subscribed_topic_names": None},
        {"rack_id": " "},
        {"instance_id": ""},
        {"member_id": ""},
        {"group_id": " "},
        {"member_epoch": -2},
        {"member_epoch": -3},
    ],
)
def test_a_join_without_required_fields(fields: dict[str, Any]) -> None:
    whole = {
        "group_id": GROUP,
        "member_id": "m1",
        "rebalance_timeout_ms": 1,
        "topic_partitions": (),
        "subscribed_topic_names": ("t",),
    }
    check_heartbeat(ConsumerGroupHeartbeatRequest(**whole), 1, ("uniform",))
    with pytest.raises(KafkaError) as refused:
        check_heartbeat(ConsumerGroupHeartbeatRequest(**(whole | fields)), 1, ("uniform",))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_first_member_that_subscribes_to_nothing_stays_at_epoch_1() -> None:
    room = ConsumerRoom()
    first = room.consumer("m1", subscribed_topic_names=())
    assert first.join().member_epoch == 1
    assert first.told == {}
    assert room.types() == [5, 8]


def test_partitions_move_when_their_owner_reports_the_revocation() -> None:
    room = ConsumerRoom()
    first, second = two(room)
    assert (second.epoch, second.told) == (3, {})
    assert state_of(room, second) is MemberState.UNRELEASED_PARTITIONS
    assert first.beat().member_epoch == 2
    assert first.told == HALF
    assert state_of(room, first) is MemberState.UNREVOKED_PARTITIONS
    assert second.beat().assignment is None
    assert first.beat().member_epoch == 3
    assert second.beat().member_epoch == 3
    assert second.told == OTHER_HALF
    assert room.consumers.state == "Stable"


def test_a_join_within_the_assignment_interval_waits_for_the_next_target() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    second = room.joined("m2")
    assert (second.epoch, second.told) == (2, {})
    assert room.consumers.state == "Assigning"
    assert first.beat().member_epoch == 2
    assert (room.consumers.group_epoch, room.consumers.assignment_epoch) == (3, 2)
    room.pass_time(INTERVAL_MS)
    second.beat()
    assert room.consumers.assignment_epoch == 3
    assert second.epoch == 3


def test_the_interval_of_a_group_may_be_0() -> None:
    room = ConsumerRoom()
    room.group_configs["consumer.assignment.interval.ms"] = "0"
    room.joined("m1")
    assert room.joined("m2").epoch == 3


def test_an_interval_of_0_does_not_wait_for_a_clock_that_was_set_back() -> None:
    room = ConsumerRoom()
    room.group_configs["consumer.assignment.interval.ms"] = "0"
    room.joined("m1")
    room.now_ms -= 60_000
    assert room.joined("m2").epoch == 3


@pytest.mark.parametrize("reports", [True, False])
def test_a_member_that_has_not_revoked_keeps_its_epoch(*, reports: bool) -> None:
    room = ConsumerRoom()
    first, _ = two(room)
    first.beat()
    first.owned = ALL
    written = len(room.log)
    answer = first.beat(reports=reports)
    assert (answer.member_epoch, answer.assignment) == (2, None)
    assert len(room.log) == written


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    room = ConsumerRoom()
    first, second = two(room, rebalance_timeout_ms=10_000)
    first.beat()
    room.pass_time(9_000)
    first.beat(reports=False)
    second.beat()
    room.pass_time(1_000)
    assert list(room.consumers.members) == ["m2"]
    assert first.beat(reports=False).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    room.pass_time(INTERVAL_MS)
    second.beat()
    assert second.owned == ALL


def test_a_member_that_reached_the_epoch_is_not_removed_by_the_old_timer() -> None:
    room = ConsumerRoom()
    first, second = two(room, rebalance_timeout_ms=10_000)
    first.beat()
    first.beat()
    room.pass_time(20_000)
    second.beat()
    assert set(room.consumers.members) == {"m1", "m2"}


def test_another_target_revokes_more_at_the_same_epoch() -> None:
    room = ConsumerRoom()
    first, _ = two(room)
    first.beat()
    room.pass_time(INTERVAL_MS)
    room.joined("m3")
    answer = first.beat()  # it has revoked half, and a third of the rest is revoked as well
    assert (answer.member_epoch, first.told) == (2, {"t": (0, 1)})
    assert state_of(room, first) is MemberState.UNREVOKED_PARTITIONS


def test_a_partition_pending_revocation_may_be_assigned_again() -> None:
    room = ConsumerRoom()
    first, second = two(room)
    first.beat()
    second.leave()
    room.pass_time(INTERVAL_MS)
    assert first.beat().member_epoch == 4
    assert first.owned == ALL
    assert state_of(room, first) is MemberState.STABLE


def test_a_lost_response_is_repeated() -> None:
    room = ConsumerRoom()
    first, _ = halved(room)
    assert first.epoch == 3
    written = len(room.log)
    first.epoch = 2
    assert first.beat().member_epoch == 3
    assert len(room.log) == written
    first.epoch = 2
    assert first.beat(reports=False).error_code is FENCED
    assert first.beat(topic_partitions=room.owned_topics(ALL)).error_code is FENCED
    first.epoch = 1
    assert first.beat().error_code is FENCED, "only the last response may be lost"


def test_a_heartbeat_of_a_static_member_that_left_is_not_a_repeated_one() -> None:
    room = ConsumerRoom()
    first = room.joined("m1", instance_id="i1")
    room.pass_time(INTERVAL_MS)
    room.joined("m2")
    first.beat()
    first.beat()
    previous = room.consumers.members["m1"].previous_member_epoch
    assert 0 < previous < first.epoch
    assert first.leave(-2).error_code is ErrorCode.NONE
    assert room.consumers.members["m1"].previous_member_epoch == previous
    first.epoch = previous
    assert first.beat(topic_partitions=()).error_code is FENCED


def test_an_epoch_that_does_not_exist_yet_is_fenced_and_the_member_joins_again() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    first.epoch = 3
    assert first.beat().error_code is FENCED
    assert first.join().member_epoch == 2
    assert first.told == ALL
    assert room.consumers.group_epoch == 2


def test_heartbeats_of_unknown_groups_and_members() -> None:
    room = ConsumerRoom()
    stranger = room.consumer("m1")
    stranger.epoch = 5
    assert stranger.beat().error_code is ErrorCode.GROUP_ID_NOT_FOUND
    room.joined("m2")
    assert stranger.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_same_full_heartbeat_gets_the_same_answer_and_writes_nothing() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    written = len(room.log)
    answers = [first.beat(rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=("t",)) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].assignment is not None
    assert len(room.log) == written


def test_a_topic_that_is_no_longer_subscribed_to_is_revoked_at_once() -> None:
    room = ConsumerRoom(T, U)
    first = room.joined("m1", subscribed_topic_names=("t", "u"))
    assert first.told == {**ALL, "u": (0, 1, 2)}
    answer = first.beat(reports=False, subscribed_topic_names=("t",))
    assert (answer.member_epoch, first.told) == (2, ALL)
    assert state_of(room, first) is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize(
    "change", [{"rack_id": "r"}, {"client_id": "other"}, {"rebalance_timeout_ms": 1}, {"server_assignor": "range"}]
)
def test_changes_without_effect_on_the_assignment_keep_the_epoch(change: dict[str, Any]) -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    written = len(room.log)
    first.beat(**change)
    assert room.types(written) == [5]
    assert room.consumers.group_epoch == 2


def test_the_order_of_names_does_not_matter() -> None:
    room = ConsumerRoom(T, U)
    first = room.joined("m1", subscribed_topic_names=("t", "u"))
    written = len(room.log)
    first.beat(subscribed_topic_names=("u", "t", "u"))
    assert len(room.log) == written


def test_a_member_of_version_0_may_get_its_id_from_the_coordinator() -> None:
    room = ConsumerRoom()
    first = room.consumer("")
    made = first._take(
        room.heartbeat_of("", 0, version=0, rebalance_timeout_ms=1, topic_partitions=(), subscribed_topic_names=("t",))
    )
    assert made.member_id
    assert list(room.consumers.members) == [made.member_id]


def test_a_refused_heartbeat_does_not_renew_the_session() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    room.pass_time(40_000)
    first.epoch = 7
    assert first.beat().error_code is FENCED
    room.pass_time(5_000)
    assert room.consumers.is_empty


def test_a_group_of_a_size_that_does_not_fit_into_a_batch_changes_nothing() -> None:
    room = ConsumerRoom(config=GroupConfig(batch_bytes_max=200))
    assert room.consumer("m1").join().error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not room.shard.modern_groups
