"""The same consumer group requests (KIP-848) to Apache Kafka 4.3.1 and to klamm: the same responses.

Targets are computed immediately (`group.consumer.assignment.interval.ms` is 0), so that both reach the same epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopic,
)
from klamm.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from klamm.protocol.messages.group_messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeletePartition,
    DeleteTopic,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    SyncAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from klamm.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from tests.interop.group_peers import Pair, Peer, both_running
from tests.interop.test_group_answers import commit, fetch, join, prepare
from tests.support.waiting import wait_until

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.max.size": "3",
    "offsets.topic.num.partitions": "4",
}
ORDERS = b"orders"
"""Each peer puts its topic's id in place of the name."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap addresses of Apache Kafka and klamm."""
    with both_running(tmp_path_factory.mktemp("consumers"), SETTINGS) as bootstraps:
        yield bootstraps


@pytest.fixture
def pair(nodes: tuple[str, str]) -> Pair:
    both = Pair(Peer(nodes[0]), Peer(nodes[1]))
    for peer in (both.kafka, both.klamm):
        prepare(peer)
    return both


def owned(topic: bytes = ORDERS, *partitions: int) -> tuple[OwnedTopic, ...]:
    return (OwnedTopic(topic, partitions),) if partitions else ()


def beat(pair: Pair, group: str, member: str, epoch: int, *, version: int = 1, **fields: Any) -> dict[str, Any]:
    request = ConsumerGroupHeartbeatRequest(group, member, epoch, **fields)
    return pair.ask(request, ConsumerGroupHeartbeatResponse, version)


def join_consumers(pair: Pair, group: str, member: str, **fields: Any) -> dict[str, Any]:
    whole = {"rebalance_timeout_ms": 30_000, "topic_partitions": (), "server_assignor": "range"}
    names = {} if "subscribed_topic_regex" in fields else {"subscribed_topic_names": ("orders",)}
    return beat(pair, group, member, 0, **(whole | names | fields))


def describe(pair: Pair, *groups: str, version: int = 1) -> dict[str, Any]:
    found = pair.ask(ConsumerGroupDescribeRequest(groups, True), ConsumerGroupDescribeResponse, version)
    pair.ask(DescribeGroupsRequest(groups, False), DescribeGroupsResponse, 6)
    return found


def test_members_join_and_move_to_their_targets(pair: Pair) -> None:
    group = "moving"
    assert join_consumers(pair, group, "a")["member_epoch"] == 2
    describe(pair, group)
    join_consumers(pair, group, "b")
    describe(pair, group)
    answer = beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1, 2))
    assert answer["member_epoch"] == 2
    beat(pair, group, "b", 3)
    for reported in (None, owned(ORDERS, 0, 1, 2)):
        beat(pair, group, "a", 2, topic_partitions=reported)
    describe(pair, group)
    beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1))
    beat(pair, group, "b", 3)
    describe(pair, group)
    beat(pair, group, "a", 3)
    for epoch, reported in ((2, owned(ORDERS, 0)), (2, None), (4, None), (3, owned(ORDERS, 0, 1)), (1, ())):
        beat(pair, group, "a", epoch, topic_partitions=reported)
    beat(pair, group, "a", 3, rebalance_timeout_ms=30_000, subscribed_topic_names=("orders",), topic_partitions=())
    join_consumers(pair, group, "b")
    beat(pair, group, "b", -1)
    beat(pair, group, "b", -1)
    beat(pair, group, "a", 3, topic_partitions=owned(ORDERS, 0, 1))
    describe(pair, group)


def test_a_target_changes_before_partitions_are_revoked(pair: Pair) -> None:
    group = "changing"
    for member in ("a", "b"):
        join_consumers(pair, group, member)
    beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1, 2))
    join_consumers(pair, group, "c")
    describe(pair, group)
    beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1, 2))
    more = beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1))
    assert more["member_epoch"] == 2, "it has more to revoke"
    describe(pair, group)
    beat(pair, group, "b", -1)
    beat(pair, group, "c", -1)
    again = beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0))
    assert again["member_epoch"] == 6, "it gets all of them again"
    describe(pair, group)


def test_a_member_that_does_not_revoke_is_removed(pair: Pair) -> None:
    group = "slow"
    join_consumers(pair, group, "a", rebalance_timeout_ms=1_000)
    join_consumers(pair, group, "b")
    beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1, 2))
    for peer in (pair.kafka, pair.klamm):

        def is_removed(peer: Peer = peer) -> bool:
            peer.send("", ConsumerGroupDescribeRequest((group,)), 1)
            [found] = peer.receive("", ConsumerGroupDescribeResponse, 1).groups
            return len(found.members) == 1

        wait_until(is_removed, "the member is removed", bound_s=30)
    beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1, 2))
    beat(pair, group, "b", 3)
    describe(pair, group)


@pytest.mark.parametrize("version", [0, 1])
def test_requests_that_are_refused(pair: Pair, version: int) -> None:
    for fields in (
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": owned(ORDERS, 0)},
        {"subscribed_topic_names": None},
        {"rack_id": ""},
        {"instance_id": " "},
        {"server_assignor": "mine"},
    ):
        join_consumers(pair, "refused", "m", version=version, **fields)
    for member, epoch in (("m", 5), ("m", -1), ("m", -2), ("m", -3), ("", 1), ("", -1)):
        beat(pair, "refused", member, epoch, version=version)
    beat(pair, "", "m", 0, version=version)
    describe(pair, "refused")
    join_consumers(pair, f"refused-{version}", "m", version=version)
    beat(pair, f"refused-{version}", "stranger", 2, version=version)


def test_subscriptions_change(pair: Pair) -> None:
    group = "subscriptions"
    join_consumers(pair, group, "a", subscribed_topic_names=())
    beat(pair, group, "a", 1, subscribed_topic_names=("payments", "orders", "missing"))
    beat(pair, group, "a", 2, subscribed_topic_names=("missing", "orders", "payments"))
    beat(pair, group, "a", 2, subscribed_topic_names=("orders",))
    describe(pair, group)
    beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1, 2))
    for fields in ({"rack_id": "r"}, {"server_assignor": "uniform"}, {"rebalance_timeout_ms": 1_000}):
        beat(pair, group, "a", 3, **fields)
    describe(pair, group)


def test_static_members(pair: Pair) -> None:
    group = "static"
    join_consumers(pair, group, "a", instance_id="i")
    join_consumers(pair, group, "a", instance_id="i")
    join_consumers(pair, group, "b", instance_id="i")
    beat(pair, group, "b", 2, instance_id="i")
    beat(pair, group, "a", 2, instance_id="j")
    beat(pair, group, "a", 2)
    beat(pair, group, "a", -2, instance_id="i")
    describe(pair, group)
    join_consumers(pair, group, "b", instance_id="i")
    beat(pair, group, "a", 2, instance_id="i")
    describe(pair, group)
    beat(pair, group, "b", -2, instance_id="i")
    join_consumers(pair, group, "c", instance_id="i", subscribed_topic_names=("payments",))
    describe(pair, group)
    beat(pair, group, "c", -1, instance_id="i")
    describe(pair, group)


def test_a_full_group(pair: Pair) -> None:
    for member in ("a", "b", "c"):
        join_consumers(pair, "full", member, instance_id=f"i{member}")
    join_consumers(pair, "full", "d")
    join_consumers(pair, "full", "a")
    beat(pair, "full", "a", -2, instance_id="ia")
    join_consumers(pair, "full", "d", instance_id="ia")


def test_regular_expressions(pair: Pair) -> None:
    group = "patterns"
    for pattern in ("[", "(a", "a{1,2000}", "(?=x)", "*"):
        join_consumers(pair, "no-patterns", "m", subscribed_topic_regex=pattern)
    join_consumers(pair, group, "a", subscribed_topic_regex="ord.*|pay.*")

    for peer in (pair.kafka, pair.klamm):

        def has_topics(peer: Peer = peer) -> bool:
            request = ConsumerGroupHeartbeatRequest(group, "a", _epoch(peer, group), topic_partitions=())
            peer.send("", request, 1)
            answer = peer.receive("", ConsumerGroupHeartbeatResponse, 1)
            return answer.assignment is not None and len(answer.assignment.topic_partitions) == 2

        wait_until(has_topics, "the pattern is not resolved", bound_s=30)
    describe(pair, group)
    join_consumers(pair, group, "b", subscribed_topic_regex="ord.*|pay.*")
    describe(pair, group)
    beat(pair, group, "b", -1)
    beat(pair, group, "a", 2, subscribed_topic_regex="", topic_partitions=())
    describe(pair, group)


def _epoch(peer: Peer, group: str) -> int:
    peer.send("", ConsumerGroupDescribeRequest((group,)), 1)
    epoch: int = peer.receive("", ConsumerGroupDescribeResponse, 1).groups[0].members[0].member_epoch
    return epoch


def test_offsets_need_the_epoch_of_the_member(pair: Pair) -> None:
    group = "offsets"
    join_consumers(pair, group, "a")
    join_consumers(pair, group, "b")
    beat(pair, group, "a", 2, topic_partitions=owned(ORDERS, 0, 1))
    beat(pair, group, "b", 3)
    for version in (8, 9, 10):
        for member, epoch, partition in (("a", 3, 0), ("a", 2, 0), ("a", 1, 0), ("a", 4, 0), ("b", 2, 2), ("c", 3, 0)):
            fields = {"generation_id_or_member_epoch": epoch, "member_id": member, "by_id": version == 10}
            pair.ask(commit(group, partition, **fields), OffsetCommitResponse, version)
        pair.ask(commit(group, 0, by_id=version == 10), OffsetCommitResponse, version)
    for member_id, epoch in (("a", 3), ("a", 2), ("c", 3), (None, -1), ("", -1)):
        pair.ask(fetch(group, 0, 2, member_id=member_id, member_epoch=epoch), OffsetFetchResponse, 10)
    topics = tuple(DeleteTopic(name, (DeletePartition(0),)) for name in ("orders", "payments"))
    pair.ask(OffsetDeleteRequest(group, topics), OffsetDeleteResponse, 0)
    pair.ask(DeleteGroupsRequest((group,)), DeleteGroupsResponse, 2)
    for member in ("a", "b"):
        beat(pair, group, member, -1)
    pair.ask(commit(group, 1), OffsetCommitResponse, 10)
    pair.ask(fetch(group), OffsetFetchResponse, 10)
    describe(pair, group)
    pair.ask(DeleteGroupsRequest((group,)), DeleteGroupsResponse, 2)
    describe(pair, group)


def test_groups_are_listed(pair: Pair) -> None:
    join_consumers(pair, "listed", "a")
    pair.ask(commit("listed-simple", 1), OffsetCommitResponse, 10)
    for types in (("CONSUMER",), ("classic",), ("foo",), ("consumer", "classic")):
        found = pair.ask(ListGroupsRequest((), types), ListGroupsResponse, 5)
        assert any(group["group_id"].startswith("listed") for group in found["groups"]) == (types != ("foo",))
    pair.ask(ListGroupsRequest(("stable",), ("consumer",)), ListGroupsResponse, 5)


def test_a_group_id_is_reused_by_the_other_protocol(pair: Pair) -> None:
    pair.ask(commit("over", 1), OffsetCommitResponse, 10)
    beat(pair, "over", "a", 1)
    join_consumers(pair, "over", "a")
    pair.ask(fetch("over"), OffsetFetchResponse, 10)
    pair.ask(join("over"), JoinGroupResponse, 9, name="classic")
    beat(pair, "over", "a", -1)
    pair.ask(join("over"), JoinGroupResponse, 9, name="another")

    def is_replaced() -> bool:
        pair.kafka.send("", ConsumerGroupDescribeRequest(("over",), True), 1)
        [group] = pair.kafka.receive("", ConsumerGroupDescribeResponse, 1).groups
        return group.error_code is ErrorCode.GROUP_ID_NOT_FOUND

    # Apache Kafka answers MEMBER_ID_REQUIRED before the records that replace the group are committed.
    wait_until(is_replaced, "the consumer group is replaced", bound_s=30)
    describe(pair, "over")
    pair.ask(fetch("over"), OffsetFetchResponse, 10)


# Both protocols in one group


def protocol(name: str = "range", *reported: int) -> JoinProtocol:
    partitions = (TopicPartitions("orders", reported),) if reported else ()
    return JoinProtocol(name, encode_subscription(Subscription(("orders",), owned_partitions=partitions)))


def classic(group: str, member: str = "", *reported: int, **fields: Any) -> Any:
    return join(group, member, **({"protocols": (protocol("range", *reported),)} | fields))


def synced(group: str, member: str, generation: int, **fields: Any) -> SyncGroupRequest:
    return SyncGroupRequest(
        group, generation, member, **({"protocol_type": "consumer", "protocol_name": "range"} | fields)
    )


def begin_classic(pair: Pair, group: str) -> None:
    """A stable classic group with one member, which has all partitions."""
    pair.ask(classic(group), JoinGroupResponse, 9, name="old")
    pair.ask(classic(group, "old"), JoinGroupResponse, 9)
    plan = encode_assignment(Assignment((TopicPartitions("orders", (0, 1, 2)),)))
    assignments = (SyncAssignment("old", plan),)
    pair.ask(synced(group, "old", 1, assignments=assignments), SyncGroupResponse, 5)


def test_a_classic_group_is_upgraded_and_downgraded(pair: Pair) -> None:
    group = "upgraded"
    begin_classic(pair, group)
    join_consumers(pair, group, "new")
    describe(pair, group)
    pair.ask(HeartbeatRequest(group, 1, "old"), HeartbeatResponse, 4)
    pair.ask(synced(group, "old", 1), SyncGroupResponse, 5)
    pair.ask(classic(group, "old", 0, 1, 2), JoinGroupResponse, 9)
    pair.ask(HeartbeatRequest(group, 1, "old"), HeartbeatResponse, 4)
    pair.ask(synced(group, "old", 1), SyncGroupResponse, 5)
    describe(pair, group)
    pair.ask(classic(group, "old", 0, 1), JoinGroupResponse, 9)
    pair.ask(classic(group, "old"), JoinGroupResponse, 9)
    beat(pair, group, "new", 2)
    for generation, fields in ((2, {}), (1, {}), (2, {"protocol_name": "other"}), (2, {"protocol_type": "connect"})):
        pair.ask(synced(group, "old", generation, **fields), SyncGroupResponse, 5)
        pair.ask(HeartbeatRequest(group, generation, "old"), HeartbeatResponse, 4)
    describe(pair, group)
    pair.ask(HeartbeatRequest(group, 2, "new"), HeartbeatResponse, 4)
    pair.ask(classic(group, "", protocols=(protocol("other"),)), JoinGroupResponse, 9)
    pair.ask(classic(group, "", protocol_type="connect"), JoinGroupResponse, 9)
    pair.ask(LeaveGroupRequest(group, (LeavingMember("stranger"), LeavingMember("new"))), LeaveGroupResponse, 5)
    pair.ask(DescribeGroupsRequest((group,), False), DescribeGroupsResponse, 6)
    pair.ask(ConsumerGroupDescribeRequest((group,)), ConsumerGroupDescribeResponse, 1)
    pair.ask(HeartbeatRequest(group, 2, "old"), HeartbeatResponse, 4)
    pair.ask(HeartbeatRequest(group, 3, "old"), HeartbeatResponse, 4)


def test_groups_that_are_not_upgraded(pair: Pair) -> None:
    group = "not-upgraded"
    pair.ask(classic(group), JoinGroupResponse, 9, name="custom")
    pair.ask(classic(group, "custom"), JoinGroupResponse, 9)
    plan = encode_assignment(Assignment((TopicPartitions("orders", (0,)),), b"mine"))
    assignments = (SyncAssignment("custom", plan),)
    pair.ask(synced(group, "custom", 1, assignments=assignments), SyncGroupResponse, 5)
    join_consumers(pair, group, "new")
    pair.ask(HeartbeatRequest(group, 1, "custom"), HeartbeatResponse, 4)
    pair.ask(join("connected", protocol_type="connect"), JoinGroupResponse, 3, name="connect")
    join_consumers(pair, "connected", "new")


def test_static_members_are_replaced_across_the_protocols(pair: Pair) -> None:
    group = "replaced"
    join_consumers(pair, group, "first", instance_id="i")
    join_consumers(pair, group, "second")
    pair.ask(classic(group, group_instance_id="i"), JoinGroupResponse, 9, name="of-i")
    describe(pair, group)
    beat(pair, group, "second", -1)
    pair.ask(DescribeGroupsRequest((group,), False), DescribeGroupsResponse, 6)
    join_consumers(pair, "last", "only", instance_id="i")
    pair.ask(classic("last", group_instance_id="i"), JoinGroupResponse, 9, name="last-of-i")
    pair.ask(DescribeGroupsRequest(("last",), False), DescribeGroupsResponse, 6)


def test_a_topic_grows(pair: Pair) -> None:
    """The last test: the topic has one partition in the others."""
    group = "growing"
    join_consumers(pair, group, "a", subscribed_topic_names=("payments",))
    request = CreatePartitionsRequest((CreatePartitionsTopic("payments", 2),))
    pair.ask(request, CreatePartitionsResponse, 3)
    for peer in (pair.kafka, pair.klamm):

        def is_assigned(peer: Peer = peer) -> bool:
            peer.send("", ConsumerGroupHeartbeatRequest(group, "a", _epoch(peer, group), topic_partitions=()), 1)
            peer.receive("", ConsumerGroupHeartbeatResponse, 1)
            return _epoch(peer, group) == 3

        wait_until(is_assigned, "the next target", bound_s=30)
    beat(pair, group, "a", 3)
    describe(pair, group)
