"""Unusual requests of consumer group clients: they affect only their own group."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.consumer.patterns import RESOLVE_INTERVAL_MS
from klamm.node.views.group_topics import GroupTopics
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import OwnedTopic
from klamm.protocol.messages.group_messages import JoinProtocol, SyncAssignment
from klamm.protocol.topic_info import TopicInfo

from .consumer_room import GROUP, INTERVAL_MS, ConsumerRoom, T
from .share_room import ShareRoom
from .test_mixed_groups import Classic, assigned, classic_group, protocol, upgraded

NONE = ErrorCode.NONE
SMALL = GroupConfig(batch_bytes_max=2_000)


def test_a_rejoin_with_another_instance_id_releases_the_first() -> None:
    room = ConsumerRoom()
    room.joined("a", instance_id="first")
    again = room.joined("a", instance_id="second")
    assert room.consumers.static_members == {"second": "a"}
    assert room.reloaded().consumers.static_members == {"second": "a"}
    assert again.leave().error_code is NONE
    assert room.consumers.static_members == {}
    assert room.consumer("b", instance_id="first").join().error_code is NONE


def test_a_classic_group_with_two_owners_of_a_partition_is_not_upgraded() -> None:
    room = ConsumerRoom()
    leader, other = classic_group(room)
    tickets = [leader.join_later(), other.join_later()]
    for one, ticket in zip((leader, other), tickets, strict=True):
        one.take(room.answers[ticket])
    plan = [SyncAssignment(one.member_id, assigned({"t": (0, 1, 2)})) for one in (leader, other)]
    assert leader.sync(*plan) is NONE
    assert room.consumer("c").join().error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(room.shard.groups[GROUP], ClassicGroup)
    assert leader.beat() is NONE


def test_a_classic_group_is_upgraded_while_its_members_change_over_to_another_protocol() -> None:
    room = ConsumerRoom()
    both = (protocol(), protocol(name="sticky"))
    leader, other = classic_group(room, protocols=both)
    leader.fields["protocols"] = both[1:]
    waiting = leader.join_later()
    assert room.consumer("c").join().error_code is NONE
    assert room.answers[waiting].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(room.consumers.members) == {leader.member_id, other.member_id, "c"}


def test_a_classic_group_is_upgraded_whose_only_member_left_during_the_first_rebalance() -> None:
    room = ConsumerRoom()
    only = Classic(room)
    only.take(room.answers[only.join_later()])
    only.join_later()
    assert only.leave() is NONE
    assert not room.shard.groups[GROUP].members
    assert room.consumer("c").join().error_code is NONE
    assert set(room.consumers.members) == {"c"}


def test_a_group_is_downgraded_although_the_subscription_of_a_member_cannot_be_read() -> None:
    room = ConsumerRoom()
    first, second, consumer = upgraded(room)
    good, bad = protocol(name="sticky"), JoinProtocol("sticky", b"?")
    for one, protocols in ((first, (protocol(), bad)), (second, (good, protocol()))):
        one.fields["protocols"] = protocols
        assert one.join() is NONE
    first.leave()
    first = Classic(room, protocols=(protocol(), bad))
    assert first.join() is NONE
    assert consumer.leave().error_code is NONE
    classic = room.shard.groups[GROUP]
    assert classic.protocol_name == "sticky"
    assert set(classic.members) == {first.member_id, second.member_id}


@pytest.mark.parametrize("pattern", ["[[:]", "[[:]a]", "[[::]]", "[[:", "[:]("])
def test_a_character_class_without_a_name_is_invalid(pattern: str) -> None:
    room = ConsumerRoom()
    joining = room.consumer("a", subscribed_topic_regex=pattern)
    assert joining.join().error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not room.log
    assert room.consumer("b", subscribed_topic_regex="[:]").join().error_code is NONE


def test_topics_that_do_not_fit_into_a_batch_are_not_resolved() -> None:
    room = ConsumerRoom(*(TopicInfo(f"{at:0200}", at.to_bytes(16, "big"), 1) for at in range(1, 12)), config=SMALL)
    consumer = room.joined("a", subscribed_topic_regex=".*")
    room.resolve()
    assert not room.consumers.resolved
    assert consumer.beat().error_code is NONE
    assert not room.effects
    room.pass_time(RESOLVE_INTERVAL_MS)
    assert consumer.beat().error_code is NONE
    assert room.effects
    room.resolve()
    room.pass_time(RESOLVE_INTERVAL_MS)
    assert consumer.beat(subscribed_topic_regex="0*1").error_code is NONE
    room.resolve()
    assert room.consumers.resolved.keys() == {"0*1"}


def test_a_member_may_report_a_topic_in_several_parts() -> None:
    room = ConsumerRoom(T)
    first, second = room.joined("a"), room.joined("b")
    room.pass_time(INTERVAL_MS)
    second.beat()
    assert first.beat().error_code is NONE
    kept, pending = first.owned["t"], room.consumers.members["a"].pending_revocation[T.topic_id]
    parts = tuple(OwnedTopic(T.topic_id, (at,)) for at in (*pending, *kept))
    assert first.beat(topic_partitions=parts).error_code is NONE
    assert room.consumers.members["a"].pending_revocation == {T.topic_id: pending}
    second.beat()
    assert not set(second.owned.get("t", ())) & set(pending)


MANY_NAMES = tuple(f"topic-{at}" for at in range(100_000))


def test_a_subscription_that_no_record_can_hold_is_refused_before_its_topics_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    find = GroupTopics.hash_of

    def counted(topics: GroupTopics, name: str) -> int | None:
        asked.append(name)
        return find(topics, name)

    monkeypatch.setattr(GroupTopics, "hash_of", counted)
    room = ConsumerRoom()
    first = room.joined("a")
    log, known = list(room.log), len(asked)
    for answer in (
        room.consumer("b", subscribed_topic_names=MANY_NAMES).join(),
        first.beat(subscribed_topic_names=MANY_NAMES),
    ):
        assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert room.log == log
    assert set(room.consumers.members) == {"a"}
    assert len(asked) == known
    assert first.beat().error_code is NONE


def test_a_share_subscription_that_no_record_can_hold_is_refused() -> None:
    room = ShareRoom()
    assert room.join("a").error_code is NONE
    log = list(room.log)
    assert room.join("b", *MANY_NAMES).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert room.log == log
    assert set(room.share.members) == {"a"}
