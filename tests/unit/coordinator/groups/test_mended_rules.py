"""Faults that Apache Kafka mended in 4.0 to 4.3, as rules of groups: `tests/scenarios/traps/groups.txt` has all."""

from __future__ import annotations

from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_protocol import Subscription, encode_subscription
from klamm.protocol.messages.group_messages import JoinProtocol
from klamm.protocol.topic_info import TopicInfo

from .consumer_room import INTERVAL_MS, ConsumerRoom, T
from .test_mixed_groups import Classic, classic_of, upgraded

NONE = ErrorCode.NONE
FOO = TopicInfo("foo-1", b"f" * 16, 2)


def test_new_partitions_of_a_topic_that_a_regular_expression_has_found_are_assigned() -> None:
    """KAFKA-18916"""
    room = ConsumerRoom(T, FOO)
    member = room.joined("m1", subscribed_topic_regex="foo.*")
    room.resolve()
    room.pass_time(INTERVAL_MS)
    member.beat()
    assert member.owned == {"foo-1": (0, 1)}
    room.pass_time(INTERVAL_MS)
    room.add_partitions(FOO, 1)
    member.beat()
    assert member.owned == {"foo-1": (0, 1, 2)}


def test_an_upgrade_knows_the_metadata_that_it_assigns() -> None:
    """KAFKA-18687: otherwise the next heartbeat would find other metadata, and rebalance."""
    room = ConsumerRoom()
    first, second, consumer = upgraded(room)
    for _ in range(2):
        for classic in (first, second):
            classic.rejoin()
        consumer.beat()
        room.pass_time(INTERVAL_MS)
    assert room.consumers.group_epoch == 2
    assert room.consumers.state == "Stable"


def replaced_by_classic(*topics: str) -> ConsumerRoom:
    """A group whose only member, a static consumer of t, is replaced by a classic one that subscribes to `topics`."""
    room = ConsumerRoom()
    room.joined("c", instance_id="i")
    protocol = JoinProtocol("range", encode_subscription(Subscription(topics)))
    classic = Classic(room, group_instance_id="i", protocols=(protocol,))
    classic.join_later()
    return room


def test_a_downgrade_rebalances_if_the_member_subscribes_to_something_else() -> None:
    """KAFKA-19546"""
    assert classic_of(replaced_by_classic("t")).state is GroupState.STABLE
    assert classic_of(replaced_by_classic("t", "u")).state is not GroupState.STABLE


def test_a_downgrade_rebalances_if_the_target_is_old() -> None:
    """KAFKA-20273: within the interval between targets the group epoch is ahead."""
    room = ConsumerRoom()
    room.joined("c", instance_id="i")
    other = room.joined("d")
    other.leave()
    Classic(room, group_instance_id="i").join_later()
    assert classic_of(room).state is not GroupState.STABLE


def test_a_classic_member_has_no_regular_expression_of_the_consumer_that_it_replaces() -> None:
    """KAFKA-19720"""
    room = ConsumerRoom()
    room.joined("c", instance_id="i", subscribed_topic_regex="t")
    room.resolve()
    room.joined("d")
    classic = Classic(room, group_instance_id="i")
    assert classic.join() is NONE
    assert room.consumers.members[classic.member_id].subscribed_topic_regex == ""
    assert not room.consumers.resolved
    assert room.reloaded().described() == room.described()


def test_classic_members_rejoin_for_a_newer_target_and_not_for_a_newer_group_epoch() -> None:
    """KAFKA-20272"""
    room = ConsumerRoom()
    first, second, consumer = upgraded(room)
    for _ in range(2):
        first.rejoin()
        second.rejoin()
    consumer.beat()
    room.joined("d")
    assert room.consumers.group_epoch == 3
    assert (first.beat(), first.sync()) == (NONE, NONE)
    room.pass_time(INTERVAL_MS)
    consumer.beat()
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_no_partition_has_two_owners_in_one_epoch() -> None:
    """KAFKA-19974: a member that has given up partitions keeps its epoch until it has its target."""
    room = ConsumerRoom()
    first = room.joined("m1")
    room.pass_time(INTERVAL_MS)
    second = room.joined("m2")
    first.beat()
    assert first.beat(reports=False).member_epoch == 2
    owners: dict[tuple[int, int], str] = {}
    for _ in range(3):
        for member in (first, second):
            member.beat()
            for partition in member.owned.get("t", ()):
                owner = owners.setdefault((member.epoch, partition), member.member_id)
                assert owner == member.member_id
    assert (first.epoch, second.epoch) == (3, 3)
