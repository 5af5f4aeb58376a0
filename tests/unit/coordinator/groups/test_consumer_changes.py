"""Consumer groups: changes of metadata, leaving members, static members, assignors, and regular expressions."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.consumer.requests import check_heartbeat
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from klamm.protocol.topic_info import TopicInfo

from .consumer_room import GROUP, INTERVAL_MS, SESSION_MS, Consumer, ConsumerRoom, T, U

ALL = {"t": (0, 1, 2, 3, 4, 5)}
NONE = ErrorCode.NONE


def settle(room: ConsumerRoom, *consumers: Consumer) -> None:
    """Let all consumers send heartbeats until nothing changes."""
    for _ in range(10):
        room.pass_time(INTERVAL_MS)
        written = len(room.log)
        for consumer in consumers:
            assert consumer.beat().error_code is NONE
        if len(room.log) == written:
            return
    raise AssertionError(room.described())


def test_metadata_changes_give_a_new_target_at_the_next_heartbeat() -> None:
    room = ConsumerRoom(T)
    first = room.joined("m1", subscribed_topic_names=("t", "later"))
    room.pass_time(INTERVAL_MS)
    room.add_partitions(T, 2)
    assert first.beat().member_epoch == 3
    assert first.owned == {"t": (0, 1, 2, 3, 4, 5, 6, 7)}
    room.pass_time(INTERVAL_MS)
    room.create_topic(TopicInfo("later", b"l" * 16, 1))
    assert first.beat().member_epoch == 4
    assert first.owned == {"t": (0, 1, 2, 3, 4, 5, 6, 7), "later": (0,)}
    room.pass_time(INTERVAL_MS)
    room.delete_topic(T)
    first.owned = {"later": (0,)}
    assert first.beat().member_epoch == 5
    assert first.owned == {"later": (0,)}


def test_changes_of_other_topics_are_ignored() -> None:
    room = ConsumerRoom(T, U)
    first = room.joined("m1")
    room.pass_time(INTERVAL_MS)
    written = len(room.log)
    room.add_partitions(U, 1)
    first.beat()
    assert len(room.log) == written


def test_a_change_of_racks_alone_raises_the_epoch() -> None:
    room = ConsumerRoom(T)
    room.register_brokers(a=0, b=1)
    first = room.joined("m1")
    room.pass_time(INTERVAL_MS)
    room.move_partition(T, (0, 1))
    first.beat()
    assert room.consumers.group_epoch == 3
    assert first.owned == ALL


def test_a_member_leaves() -> None:
    room = ConsumerRoom()
    first, second = room.joined("m1"), room.joined("m2")
    written, epoch = len(room.log), room.consumers.group_epoch
    answer = second.leave()
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (NONE, -1, 0)
    assert room.types(written) == [-8, -7, -5, 3]
    assert room.consumers.group_epoch == epoch + 1
    assert second.leave().error_code is ErrorCode.UNKNOWN_MEMBER_ID
    settle(room, first)
    assert first.owned == ALL


def test_an_empty_group_with_offsets_is_kept_and_otherwise_removed() -> None:
    room = ConsumerRoom(config=GroupConfig(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000))
    first = room.joined("m1")
    assert room.commit_offset(5, topic="t", group_id=GROUP, generation_id=2, member_id="m1") is NONE
    first.leave()
    assert room.consumers.state == "Empty"
    room.pass_time(5 * 60_000)
    assert room.shard.offsets_of(GROUP)
    room.pass_time(6 * 60_000)
    assert not room.shard.offsets_of(GROUP)
    assert not room.shard.modern_groups
    assert not room.reloaded().shard.modern_groups


def test_a_static_member_rejoins_with_another_id() -> None:
    room = ConsumerRoom()
    first = room.joined("m1", instance_id="i")
    written = len(room.log)
    answer = first.leave(-2)
    assert (answer.member_epoch, room.types(written)) == (-2, [8])
    again = room.joined("m2", instance_id="i")
    assert again.owned == ALL
    assert (again.epoch, room.consumers.group_epoch) == (2, 2)
    assert room.types(written + 1) == [-8, -7, -5, 5, 7, 8, 8]
    assert list(room.consumers.members) == ["m2"]


def test_a_static_member_that_does_not_rejoin_is_removed() -> None:
    room = ConsumerRoom()
    first, other = room.joined("m1", instance_id="i"), room.joined("m2")
    settle(room, first, other)
    epoch = room.consumers.group_epoch
    first.leave(-2)
    for _ in range(5):
        other.beat()
        room.pass_time(SESSION_MS // 5)
    assert list(room.consumers.members) == ["m2"]
    assert room.consumers.group_epoch == epoch + 1


def test_an_instance_id_that_is_in_use_is_not_released() -> None:
    room = ConsumerRoom()
    room.joined("m1", instance_id="i")
    for member_id in ("m2", "m1"):
        answer = room.consumer(member_id, instance_id="i").join()
        assert answer.error_code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_heartbeats_of_instances() -> None:
    room = ConsumerRoom()
    first = room.joined("m1", instance_id="i")
    other = room.consumer("m2", instance_id="i")
    other.epoch = first.epoch
    assert other.beat().error_code is ErrorCode.FENCED_INSTANCE_ID
    assert other.leave().error_code is ErrorCode.FENCED_INSTANCE_ID
    assert other.beat(instance_id="j").error_code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError, match="InstanceId can't be null"):
        check_heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m1", -2), 1, ())


def test_a_static_member_rejoins_with_other_topics() -> None:
    room = ConsumerRoom(T, U)
    room.joined("m1", instance_id="i").leave(-2)
    room.pass_time(INTERVAL_MS)
    again = room.joined("m2", instance_id="i", subscribed_topic_names=("u",))
    assert room.consumers.group_epoch == 3
    assert again.owned == {"u": (0, 1, 2)}


def test_a_full_group() -> None:
    room = ConsumerRoom(config=GroupConfig(group_consumer_max_size=1))
    first = room.joined("m1", instance_id="i")
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.consumer("m2").join().error_code is full
    first.leave(-2)
    assert room.consumer("m2", instance_id="i").join().error_code is full
    assert room.consumer("m1", instance_id="i").join().error_code is NONE


def by_range(room: ConsumerRoom, **members: dict[str, Any]) -> dict[str, dict[str, tuple[int, ...]]]:
    """The assignment of the range assignor to members that join in this order."""
    consumers = [room.joined(name, server_assignor="range", **fields) for name, fields in members.items()]
    settle(room, *consumers)
    return {consumer.member_id: consumer.owned for consumer in consumers}


def test_range_of_two_topics() -> None:
    room = ConsumerRoom(TopicInfo("t1", b"1" * 16, 3), TopicInfo("t2", b"2" * 16, 3))
    names = {"subscribed_topic_names": ("t1", "t2")}
    assert by_range(room, a=names, b=names) == {"a": {"t1": (0, 1), "t2": (0, 1)}, "b": {"t1": (2,), "t2": (2,)}}


def test_range_of_different_subscriptions() -> None:
    sizes = (("t1", 3), ("t2", 3), ("t3", 2))
    room = ConsumerRoom(*(TopicInfo(name, name.encode() * 8, size) for name, size in sizes))
    members = {"a": ("t1", "t2"), "b": ("t3",), "c": ("t2", "t3")}
    assert by_range(room, **{name: {"subscribed_topic_names": topics} for name, topics in members.items()}) == {
        "a": {"t1": (0, 1, 2), "t2": (0, 1)},
        "b": {"t3": (0,)},
        "c": {"t2": (2,), "t3": (1,)},
    }


def test_range_puts_static_members_first() -> None:
    room = ConsumerRoom(TopicInfo("t", b"t" * 16, 3))
    assert by_range(room, a={}, z={"instance_id": "1"}) == {"a": {"t": (2,)}, "z": {"t": (0, 1)}}


def test_uniform_keeps_owned_partitions() -> None:
    room = ConsumerRoom(TopicInfo("t", b"t" * 16, 10))
    consumers = [room.joined(name) for name in ("m1", "m2", "m3")]
    settle(room, *consumers)
    assert sorted(len(one.owned["t"]) for one in consumers) == [3, 3, 4]
    *stay, leaves = consumers
    before = [set(one.owned["t"]) for one in stay]
    leaves.leave()
    settle(room, *stay)
    after = [set(one.owned["t"]) for one in stay]
    assert [len(owned) for owned in after] == [5, 5]
    assert all(old <= new for old, new in zip(before, after, strict=True))


def test_a_balanced_target_is_not_written_again() -> None:
    room = ConsumerRoom(T, U)
    first, second = room.joined("m1"), room.joined("m2")
    settle(room, first, second)
    written = len(room.log)
    first.beat(subscribed_topic_names=("t", "missing"))
    room.pass_time(INTERVAL_MS)
    second.beat(subscribed_topic_names=("t", "missing"))
    settle(room, first, second)
    assert 7 not in room.types(written)


def test_more_members_than_partitions() -> None:
    room = ConsumerRoom(TopicInfo("t", b"t" * 16, 2))
    consumers = [room.joined(name) for name in ("m1", "m2", "m3")]
    settle(room, *consumers)
    assert sorted(len(one.owned.get("t", ())) for one in consumers) == [0, 1, 1]


def test_a_single_vote_determines_the_assignor() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    for name in ("m2", "m3"):
        room.joined(name)
    assert room.described().assignor_name == "uniform"
    first.beat(server_assignor="range")
    assert room.described().assignor_name == "range"
    with pytest.raises(KafkaError, match="Supported assignors: uniform, range"):
        check_heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m1", 1, server_assignor="mine"), 1, ("uniform", "range"))


def test_an_assignor_that_fails_writes_nothing() -> None:
    room = ConsumerRoom(config=GroupConfig(group_consumer_assignors=("unheard of",)))
    assert room.consumer("m1").join().error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not room.log
    assert not room.shard.modern_groups


# Regular expressions

FOO = TopicInfo("foo-1", b"f" * 16, 2)


def test_a_regular_expression_is_resolved_after_the_heartbeat() -> None:
    room = ConsumerRoom(T, FOO)
    first = room.consumer("m1", subscribed_topic_regex="foo.*")
    assert first.join().member_epoch == 1
    assert first.told == {}
    written = len(room.log)
    room.resolve()
    assert room.types(written) == [16, 3]
    assert first.beat().member_epoch == 2
    assert first.owned == {"foo-1": (0, 1)}
    assert room.reloaded().described() == room.described()


def test_a_regular_expression_that_is_not_valid() -> None:
    room = ConsumerRoom()
    answer = room.consumer("m1", subscribed_topic_regex="[").join()
    assert answer.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (answer.error_message or "").startswith("SubscribedTopicRegex `[` is not a valid regular expression")
    assert not room.log


def test_a_second_member_of_a_resolved_regular_expression_raises_the_epoch_at_once() -> None:
    room = ConsumerRoom(FOO)
    first = room.joined("m1", subscribed_topic_regex="foo.*")
    room.resolve()
    second = room.joined("m2", subscribed_topic_regex="foo.*")
    assert not room.effects
    assert room.consumers.group_epoch == 3
    settle(room, first, second)
    assert sorted((first.owned["foo-1"], second.owned["foo-1"])) == [(0,), (1,)]


def test_without_its_regular_expression_topics_are_removed() -> None:
    room = ConsumerRoom(FOO)
    first = room.joined("m1", subscribed_topic_regex="foo.*")
    room.resolve()
    room.pass_time(INTERVAL_MS)
    first.beat()
    written = len(room.log)
    first.owned = {}
    first.beat(subscribed_topic_regex="")
    assert room.types(written)[:3] == [5, -16, 3]
    assert room.consumers.group_epoch == 3
    assert not room.consumers.resolved


def test_new_topics_are_matched_after_ten_seconds() -> None:
    room = ConsumerRoom(FOO)
    first = room.joined("m1", subscribed_topic_regex="foo.*")
    room.resolve()
    first.beat()
    room.create_topic(TopicInfo("foo-2", b"g" * 16, 1))
    room.pass_time(10_000)
    first.beat()
    assert not room.effects
    room.pass_time(1)
    first.beat()
    room.resolve()
    assert room.consumers.group_epoch == 3
    first.beat()
    assert first.owned == {"foo-1": (0, 1), "foo-2": (0,)}


def test_regular_expressions_are_refreshed_after_ten_minutes() -> None:
    room = ConsumerRoom(FOO)
    first = room.joined("m1", subscribed_topic_regex="foo.*")
    room.resolve()
    for _ in range(20):
        room.pass_time(30_000)
        first.beat()
    assert not room.effects
    room.pass_time(1)
    first.beat()
    written = len(room.log)
    room.resolve()
    assert room.types(written) == [16], "the same topics are written for their time"


def test_one_resolution_of_a_group_runs_at_a_time() -> None:
    room = ConsumerRoom(FOO)
    first = room.joined("m1", subscribed_topic_regex="foo.*")
    room.joined("m2", subscribed_topic_regex="other.*")
    assert len(room.effects) == 1
    room.take(room.shard.on_patterns_resolved(room.now_ms, GROUP, None))
    room.effects.clear()
    first.beat()
    assert [effect.patterns for effect in room.effects] == [("foo.*", "other.*")]


def test_a_member_whose_removal_was_not_written_is_removed_later() -> None:
    room = ConsumerRoom()
    room.consumer("m").join()
    room.holds_appends = True
    room.pass_time(SESSION_MS)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert "m" in room.consumers.members
    room.holds_appends = False
    room.pass_time(500)
    assert not room.consumers.members
