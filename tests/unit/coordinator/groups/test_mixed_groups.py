"""Groups with members of both protocols: upgrade and downgrade (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.consumer.member import MemberState
from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from klamm.protocol.messages.group_messages import (
    HeartbeatRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    SyncAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

from .consumer_room import GROUP, INTERVAL_MS, Consumer, ConsumerRoom, Owned

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
HALF, OTHER_HALF = {"t": (0, 1, 2)}, {"t": (3, 4, 5)}
ALL = {"t": (0, 1, 2, 3, 4, 5)}


def protocol(owned: Owned | None = None, name: str = "range") -> JoinProtocol:
    partitions = tuple(TopicPartitions(topic, found) for topic, found in (owned or {}).items())
    return JoinProtocol(name, encode_subscription(Subscription(("t",), owned_partitions=partitions)))


def assigned(owned: Owned, user_data: bytes | None = None) -> bytes:
    partitions = tuple(TopicPartitions(topic, found) for topic, found in owned.items())
    return encode_assignment(Assignment(partitions, user_data))


class Classic:
    """A consumer of the classic protocol."""

    def __init__(self, room: ConsumerRoom, member_id: str = "", **fields: Any) -> None:
        self.room, self.member_id, self.fields = room, member_id, fields
        self.generation = -1
        self.owned: Owned = {}

    def join_later(self, owned: Owned | None = None) -> int:
        fields = {"protocols": (protocol(owned),), "group_id": GROUP} | self.fields
        return self.room.join_later(self.member_id, **fields)

    def take(self, answer: JoinGroupResponse) -> ErrorCode:
        if answer.error_code in (NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer.error_code

    def join(self, owned: Owned | None = None) -> ErrorCode:
        code = self.take(self.room.answers[self.join_later(owned)])
        return self.take(self.room.answers[self.join_later(owned)]) if code is ErrorCode.MEMBER_ID_REQUIRED else code

    def sync(self, *assignments: SyncAssignment) -> ErrorCode:
        request = SyncGroupRequest(GROUP, self.generation, self.member_id, assignments, protocol_name="range")
        ticket = self.room.ticket()
        self.room.take(self.room.shard.on_sync(self.room.now_ms, ticket, request))
        answer: SyncGroupResponse = self.room.answers[ticket]
        if answer.error_code is NONE:
            partitions = decode_assignment(answer.assignment).assigned_partitions
            self.owned = {one.topic: tuple(one.partitions) for one in partitions}
        return answer.error_code

    def beat(self) -> ErrorCode:
        ticket = self.room.ticket()
        request = HeartbeatRequest(GROUP, self.generation, self.member_id)
        self.room.take(self.room.shard.on_heartbeat(self.room.now_ms, ticket, request))
        return ErrorCode(self.room.answers[ticket])

    def leave(self) -> ErrorCode:
        ticket = self.room.ticket()
        request = LeaveGroupRequest(GROUP, (LeavingMember(self.member_id),))
        self.room.take(self.room.shard.on_leave(self.room.now_ms, ticket, request))
        (member,) = self.room.answers[ticket].members
        return ErrorCode(member.error_code)

    def rejoin(self) -> None:
        """Rejoin as requested: send a join with the kept metadata, and receive the assignment."""
        assert self.join(self.owned) is NONE
        assert self.sync() is NONE


def classic_group(room: ConsumerRoom, *, user_data: bytes | None = None, **fields: Any) -> tuple[Classic, Classic]:
    """A stable classic group of two members with half of the partitions each."""
    members = Classic(room, **fields), Classic(room, **fields)
    for one in members:
        one.take(room.answers[one.join_later()])
    tickets = [one.join_later() for one in members]
    while not room.answers.keys() >= set(tickets):
        room.pass_time(100)
    for one, ticket in zip(members, tickets, strict=True):
        one.take(room.answers[ticket])
    leader, other = members
    plan = (
        SyncAssignment(leader.member_id, assigned(HALF, user_data)),
        SyncAssignment(other.member_id, assigned(OTHER_HALF, user_data)),
    )
    assert leader.sync(*plan) is NONE
    assert other.sync() is NONE
    return leader, other


def upgraded(room: ConsumerRoom, **fields: Any) -> tuple[Classic, Classic, Consumer]:
    first, second = classic_group(room, **fields)
    return first, second, room.joined("c")


def test_a_live_classic_group_is_upgraded_when_a_consumer_joins() -> None:
    room = ConsumerRoom()
    first, second = classic_group(room)
    written = len(room.log)
    consumer = room.joined("c")
    assert room.types(written) == [-2, 5, 5, 3, 7, 7, 6, 8, 8, 5, 3, 7, 7, 7, 6, 8]
    assert not room.shard.groups
    group = room.consumers
    assert (consumer.epoch, consumer.owned, group.group_epoch) == (2, {}, 2)
    assert room.reloaded().described() == room.described()
    assert [member.member_type for member in room.described().members] == [0, 0, 1]
    for classic in (first, second):
        assert classic.beat() is REBALANCE
        assert classic.join(classic.owned) is NONE
        assert classic.sync() is NONE
        assert len(classic.owned["t"]) == 2
        assert classic.beat() is REBALANCE, "it has to join again without the partitions that it revoked"
        classic.rejoin()
        assert classic.beat() is NONE
    consumer.beat()
    assert len(consumer.owned["t"]) == 2
    assert room.consumers.state == "Stable"


def test_waiting_joins_of_the_classic_group_have_to_be_repeated() -> None:
    room = ConsumerRoom()
    first, second = classic_group(room)
    first.fields["protocols"] = (JoinProtocol("range", encode_subscription(Subscription(("t", "u")))),)
    waiting = first.join_later()
    room.joined("c")
    assert room.answers[waiting].error_code is REBALANCE
    assert first.join() is NONE
    assert second.beat() is REBALANCE


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_forbid_an_upgrade(policy: str) -> None:
    room = ConsumerRoom(config=GroupConfig(group_consumer_migration_policy=policy))
    classic_group(room)
    answer = room.consumer("c").join()
    assert answer.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert (answer.error_message or "").endswith("because online upgrade is disabled.")


def test_user_data_of_an_assignor_would_be_lost() -> None:
    room = ConsumerRoom()
    first, _ = classic_group(room, user_data=b"mine")
    written = len(room.log)
    answer = room.consumer("c").join()
    assert answer.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert "an unsupported custom assignor is in use" in (answer.error_message or "")
    assert len(room.log) == written
    assert first.beat() is NONE


def test_a_classic_group_of_another_protocol_is_not_upgraded() -> None:
    room = ConsumerRoom()
    room.join_later(group_id=GROUP, protocol_type="connect", version=3)
    room.pass_time(3_000)
    answer = room.consumer("c").join()
    assert "does not use the consumer embedded protocol" in (answer.error_message or "")


def test_a_failed_upgrade_is_rolled_back() -> None:
    room = ConsumerRoom()
    first, second = classic_group(room)
    room.holds_appends = True
    joining = room.heartbeat_of_later(
        "c", 0, subscribed_topic_names=("t",), rebalance_timeout_ms=1, topic_partitions=()
    )
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    room.holds_appends = False
    assert room.answers[joining].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not room.shard.modern_groups
    assert first.beat() is NONE
    assert second.beat() is NONE
    room.pass_time(60_000)
    assert room.shard.groups[GROUP].is_empty, "the sessions of its members still expire"


def classic_of(room: ConsumerRoom) -> ClassicGroup:
    return room.shard.groups[GROUP]


@pytest.mark.parametrize("way", ["leave", "time out", "LeaveGroup"])
def test_the_group_is_classic_again_after_the_last_consumer_left(way: str) -> None:
    room = ConsumerRoom()
    first, second, consumer = upgraded(room, session_timeout_ms=100_000)
    for classic in (first, second):
        classic.rejoin()
        classic.rejoin()
    consumer.beat()
    written = len(room.log)
    if way == "leave":
        consumer.leave()
    elif way == "LeaveGroup":
        assert Classic(room, "c").leave() is NONE
    else:
        room.pass_time(45_000)
    assert room.types(written)[-3:] == [-4, -3, 2]
    group = classic_of(room)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert not room.shard.modern_groups
    assert set(group.members) == {first.member_id, second.member_id}
    again = room.reloaded()
    assert classic_of(again).state is GroupState.STABLE
    owned = [decode_assignment(member.assignment) for member in classic_of(again).members.values()]
    assert sorted(partition for one in owned for found in one.assigned_partitions for partition in found.partitions)
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [first.join_later(first.owned), second.join_later(second.owned)]
    assert [room.answers[ticket].error_code for ticket in tickets] == [NONE, NONE]


def test_a_failed_downgrade_is_rolled_back() -> None:
    room = ConsumerRoom()
    first, second, consumer = upgraded(room)
    before = room.described()
    room.holds_appends = True
    leaving = room.heartbeat_of_later("c", -1)
    waiting = first.join_later(first.owned)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    room.holds_appends = False
    room.commit_all()
    assert room.answers[leaving].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.answers[waiting].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert sorted(room.described().members, key=str) == sorted(before.members, key=str)
    assert room.described().group_state == before.group_state
    assert not room.shard.groups
    assert consumer.beat().error_code is NONE
    assert second.beat() is REBALANCE


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_without_a_downgrade_the_group_keeps_its_classic_members(policy: str) -> None:
    room = ConsumerRoom()
    first, second, consumer = upgraded(room)
    again = ConsumerRoom(
        config=GroupConfig(group_consumer_migration_policy=policy), log=room.log, image=room.image, now_ms=room.now_ms
    )
    first.room = second.room = consumer.room = again
    consumer.leave()
    assert not again.shard.groups
    assert set(again.consumers.members) == {first.member_id, second.member_id}
    assert Classic(again, first.member_id).leave() is NONE
    assert Classic(again, second.member_id).leave() is NONE
    assert again.consumers.state == "Empty"


def test_a_member_that_does_not_join_again_or_sync_in_time_is_removed() -> None:
    room = ConsumerRoom()
    first, second, _ = upgraded(room, rebalance_timeout_ms=5_000, session_timeout_ms=100_000)
    assert first.beat() is REBALANCE
    assert second.join(second.owned) is NONE
    room.pass_time(4_999)
    assert len(room.consumers.members) == 3
    room.pass_time(1)
    assert list(room.consumers.members) == ["c"]


def test_static_members_are_replaced_across_the_protocols() -> None:
    room = ConsumerRoom()
    consumer = room.joined("c", instance_id="i")
    room.joined("d")
    classic = Classic(room, group_instance_id="i")
    assert classic.join() is NONE
    assert set(room.consumers.members) == {classic.member_id, "d"}
    assert classic.sync() is NONE
    assert classic.owned == ALL
    assert consumer.beat().error_code is ErrorCode.FENCED_INSTANCE_ID
    again = room.joined("e", instance_id="i")
    assert again.owned == ALL
    assert set(room.consumers.members) == {"d", "e"}


def test_the_last_consumer_is_replaced_by_a_classic_member_of_its_instance() -> None:
    room = ConsumerRoom()
    room.joined("c", instance_id="i")
    classic = Classic(room, group_instance_id="i")
    written = len(room.log)
    assert classic.join() is NONE
    assert room.types(written)[-1] == 2
    group = classic_of(room)
    assert group.state is GroupState.STABLE
    assert list(group.members) == [classic.member_id]
    assert decode_assignment(group.members[classic.member_id].assignment).assigned_partitions == (
        TopicPartitions("t", ALL["t"]),
    )
    assert set(classic_of(room.reloaded()).members) == {classic.member_id}


def test_requests_of_the_classic_protocol_to_a_group_of_consumers() -> None:
    room = ConsumerRoom()
    room.joined("c")
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(group_id=GROUP, protocol_type="connect").error_code is inconsistent
    of_consumer = Classic(room, "c")
    of_consumer.generation = 2
    assert of_consumer.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert of_consumer.sync() is ErrorCode.UNKNOWN_MEMBER_ID
    member = Classic(room)
    assert member.join() is NONE
    other = Classic(room, protocols=(protocol(name="other"),))
    assert other.join() is inconsistent
    member.generation -= 1
    assert member.beat() is ErrorCode.ILLEGAL_GENERATION
    assert member.sync() is ErrorCode.ILLEGAL_GENERATION
    room.pass_time(INTERVAL_MS)
    assert room.consumers.members[member.member_id].state is not MemberState.UNKNOWN
