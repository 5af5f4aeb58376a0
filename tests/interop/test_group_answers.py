"""The same group requests to Apache Kafka 4.3.1 and to klamm, byte by byte over TCP: the same responses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from klamm.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from klamm.protocol.messages.group_messages import (
    CommitPartition,
    CommitTopic,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeletePartition,
    DeleteTopic,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FetchGroup,
    FetchTopic,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.interop.group_peers import Pair, Peer, both_running
from tests.support.waiting import wait_until

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "3",
    "offsets.topic.num.partitions": "4",
    "offset.metadata.max.bytes": "20",
}

pytestmark = pytest.mark.timeout(300)


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 1."""
    raw = b"\x00\x01" + len(topics).to_bytes(4, "big")
    for topic in topics:
        raw += len(topic).to_bytes(2, "big") + topic.encode()
    return raw + b"\xff\xff\xff\xff" + bytes(4)


RANGE = JoinProtocol("range", subscription("orders"))
STICKY = JoinProtocol("sticky", subscription("orders"))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap addresses of Apache Kafka and klamm, both with the topics `orders` and `payments`."""
    with both_running(tmp_path_factory.mktemp("groups"), SETTINGS) as bootstraps:
        yield bootstraps


@pytest.fixture
def pair(nodes: tuple[str, str]) -> Pair:
    both = Pair(Peer(nodes[0]), Peer(nodes[1]))
    for peer in (both.kafka, both.klamm):
        prepare(peer)
    return both


def prepare(peer: Peer) -> None:
    """Create the topics, and wait until the group coordinator serves every partition of its log."""
    spread = ("a", "b", "c", "d", "e", "f")
    fetch = OffsetFetchRequest(tuple(FetchGroup(group) for group in spread))
    request = CreateTopicsRequest((CreatableTopic("orders", 3, 1), CreatableTopic("payments", 1, 1)))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        peer.send("", request, 7)
        created = peer.receive("", CreateTopicsResponse, 7)
        if any(topic.topic_id != bytes(16) for topic in created.topics):
            known = {topic.topic_id: topic.name for topic in created.topics}
            TOPIC_IDS.setdefault(peer_key(peer), {}).update(known)
        peer.topic_ids = TOPIC_IDS.get(peer_key(peer), {})
        peer.send("", FindCoordinatorRequest(coordinator_keys=spread), 6)
        found = peer.receive("", FindCoordinatorResponse, 6)
        peer.send("", ListGroupsRequest(), 5)
        listed = peer.receive("", ListGroupsResponse, 5)
        peer.send("", fetch, 9)
        fetched = peer.receive("", OffsetFetchResponse, 9)
        if not any(one.error_code for one in (*found.coordinators, listed, *fetched.groups)):
            return
        time.sleep(0.1)
    raise AssertionError("no group coordinator")


TOPIC_IDS: dict[Any, dict[bytes, str]] = {}


def peer_key(peer: Peer) -> Any:
    return peer._address


def join(group: str, member: str = "", **fields: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    values |= {"protocol_type": "consumer", "protocols": (RANGE,)}
    return JoinGroupRequest(group, member_id=member, **(values | fields))


def begin(pair: Pair, group: str, *names: str, version: int = 9, **fields: Any) -> None:
    """A group of dynamic members after its first join phase; each has a connection of its own name."""
    first, *others = names
    pair.ask(join(group, **fields), JoinGroupResponse, version, name=first, on=first)
    pair.ask(join(group, first, **fields), JoinGroupResponse, version, on=first)
    for other in others:
        pair.ask(join(group, **fields), JoinGroupResponse, version, name=other, on=other)
        pair.send(other, join(group, other, **fields), version)
        pair.both_wait(other)
        for known in names[: names.index(other)]:
            pair.send(known, join(group, known, **fields), version)
        for known in names[: names.index(other) + 1]:
            pair.receive(known, JoinGroupResponse, version)


def sync(group: str, member: str, generation: int, *assigned: str, **fields: Any) -> SyncGroupRequest:
    assignments = tuple(SyncAssignment(name, b"for " + name.encode()) for name in assigned)
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    return SyncGroupRequest(group, generation, member, assignments, **(named | fields))


def settle(pair: Pair, group: str, generation: int, *names: str) -> None:
    """All members sync; the first one is the leader."""
    leader, *followers = names
    for follower in followers:
        pair.send(follower, sync(group, follower, generation), 5)
        pair.both_wait(follower, 0.1)
    pair.send(leader, sync(group, leader, generation, *names), 5)
    for name in names:
        pair.receive(name, SyncGroupResponse, 5)


def describe(pair: Pair, *groups: str, version: int = 6) -> dict[str, Any]:
    return pair.ask(DescribeGroupsRequest(groups, True), DescribeGroupsResponse, version)


def wait_until_empty(peer: Peer, group: str) -> None:
    """Wait until its last member is removed."""

    def is_empty() -> bool:
        peer.send("", DescribeGroupsRequest((group,), False), 6)
        [found] = peer.receive("", DescribeGroupsResponse, 6).groups
        return found.group_state == "Empty"

    wait_until(is_empty, f"group {group} still has members", bound_s=60)


def commit(
    group: str, *partitions: int, topic: str = "orders", by_id: bool = True, **fields: Any
) -> OffsetCommitRequest:
    metadata = fields.pop("metadata", "note")
    listed = tuple(CommitPartition(index, 100 + index, 3, metadata) for index in partitions)
    topics = (CommitTopic("" if by_id else topic, topic.encode() if by_id else bytes(16), listed),)
    return OffsetCommitRequest(group, topics, **fields)


def together(first: OffsetCommitRequest, *others: OffsetCommitRequest) -> OffsetCommitRequest:
    """One request with the topics of all of them."""
    return replace(first, topics=first.topics + tuple(topic for other in others for topic in other.topics))


def fetch(group: str, *partitions: int, topic: str = "orders", **fields: Any) -> OffsetFetchRequest:
    topics = (FetchTopic("", topic.encode(), partitions),) if partitions else None
    return OffsetFetchRequest((FetchGroup(group, topics, **fields),), True)


def test_a_group_through_its_states(pair: Pair) -> None:
    begin(pair, "states", "a", "b")
    describe(pair, "states")
    settle(pair, "states", 2, "a", "b")
    describe(pair, "states")
    for member, generation in (("a", 2), ("b", 2), ("b", 1), ("b", 3), ("stranger", 2), ("", -1)):
        pair.ask(HeartbeatRequest("states", generation, member), HeartbeatResponse, 4)
    pair.ask(join("states", "b"), JoinGroupResponse, 9)  # a follower whose metadata are unchanged
    pair.send("a", join("states", "a", protocols=(RANGE, STICKY)), 9)
    pair.both_wait("a")
    describe(pair, "states")
    pair.ask(HeartbeatRequest("states", 2, "b"), HeartbeatResponse, 4)
    pair.ask(sync("states", "b", 2), SyncGroupResponse, 5)
    pair.ask(commit("states", 0, generation_id_or_member_epoch=2, member_id="b"), OffsetCommitResponse, 10)
    pair.send("b", join("states", "b"), 9)
    for name in ("a", "b"):
        pair.receive(name, JoinGroupResponse, 9)
    pair.ask(commit("states", 0, generation_id_or_member_epoch=3, member_id="b"), OffsetCommitResponse, 10)
    settle(pair, "states", 3, "a", "b")
    pair.ask(LeaveGroupRequest("states", (LeavingMember("b"), LeavingMember("stranger"))), LeaveGroupResponse, 5)
    pair.ask(HeartbeatRequest("states", 3, "a"), HeartbeatResponse, 4)
    pair.ask(LeaveGroupRequest("states", (LeavingMember("a"),)), LeaveGroupResponse, 5)
    describe(pair, "states")
    pair.ask(join("states", "a"), JoinGroupResponse, 9)
    pair.ask(sync("states", "a", 3), SyncGroupResponse, 5)
    pair.ask(HeartbeatRequest("states", 3, "a"), HeartbeatResponse, 4)


@pytest.mark.parametrize("version", range(10))
def test_joining_in_every_version(pair: Pair, version: int) -> None:
    group = f"join-{version}"
    if version >= 4:
        begin(pair, group, "a", version=version)
    else:
        pair.ask(join(group), JoinGroupResponse, version, name="a")
    describe(pair, group)


def test_joins_that_are_refused(pair: Pair) -> None:
    for request in (
        join(""),
        join("refused", session_timeout_ms=99),
        join("refused", "m", session_timeout_ms=1_800_001),
        join("refused", "stranger"),
        join("refused", protocol_type=""),
        join("refused", protocols=()),
        join("refused", "stranger", protocols=()),
    ):
        for version in (3, 9):
            pair.ask(request, JoinGroupResponse, version)
    describe(pair, "refused")
    begin(pair, "refused", "a")
    for request in (
        join("refused", protocol_type="connect"),
        join("refused", protocols=(STICKY,)),
        join("refused", "stranger"),
        join("refused", "a", group_instance_id="i"),
        join("refused", "a", protocol_type="connect"),
    ):
        pair.ask(request, JoinGroupResponse, 9)


def test_a_full_group(pair: Pair) -> None:
    begin(pair, "full", "a", "b", "c")
    settle(pair, "full", 3, "a", "b", "c")
    pair.ask(join("full"), JoinGroupResponse, 9)
    pair.ask(join("full"), JoinGroupResponse, 2)


def static_pair(pair: Pair, group: str, version: int = 9) -> None:
    """A stable group of the static members i1, the leader, and i2."""
    pair.ask(join(group, group_instance_id="i1"), JoinGroupResponse, version, name="a", on="a")
    pair.send("b", join(group, group_instance_id="i2"), version)
    pair.both_wait("b")
    pair.send("a", join(group, "a", group_instance_id="i1"), version)
    pair.receive("b", JoinGroupResponse, version, name="b")
    pair.receive("a", JoinGroupResponse, version)
    settle(pair, group, 2, "a", "b")


@pytest.mark.parametrize("version", [5, 8, 9])
def test_static_members_rejoin(pair: Pair, version: int) -> None:
    group = f"static-{version}"
    static_pair(pair, group)
    pair.ask(join(group, group_instance_id="i2"), JoinGroupResponse, version, name="b2")
    pair.ask(sync(group, "b2", 2, group_instance_id="i2"), SyncGroupResponse, 5)
    pair.ask(HeartbeatRequest(group, 2, "b", "i2"), HeartbeatResponse, 4)
    pair.ask(HeartbeatRequest(group, 2, "b2", "i9"), HeartbeatResponse, 4)
    pair.ask(join(group, group_instance_id="i1"), JoinGroupResponse, version, name="a2")
    describe(pair, group)
    for fields in (
        {"member_id": "a", "group_instance_id": "i1"},
        {"member_id": "a2", "group_instance_id": "i1"},
        {"member_id": "a2"},
        {"member_id": "", "group_instance_id": "i1"},
    ):
        pair.ask(commit(group, 0, generation_id_or_member_epoch=2, **fields), OffsetCommitResponse, 10)
    leaving = (LeavingMember("", "i2"), LeavingMember("", "i9"), LeavingMember("b", "i2"), LeavingMember("", None))
    pair.ask(LeaveGroupRequest(group, leaving), LeaveGroupResponse, 5)
    describe(pair, group)


def test_a_static_member_fences_its_waiting_predecessor(pair: Pair) -> None:
    static_pair(pair, "fencing")
    pair.send("a", join("fencing", "a", group_instance_id="i1"), 9)
    pair.both_wait("a")
    pair.send("c", join("fencing", group_instance_id="i1"), 9)
    pair.receive("a", JoinGroupResponse, 9)
    pair.both_wait("c")
    pair.send("b", join("fencing", "b", group_instance_id="i2"), 9)
    pair.receive("c", JoinGroupResponse, 9, name="a3")
    pair.receive("b", JoinGroupResponse, 9)
    describe(pair, "fencing")


def test_a_session_expires(pair: Pair) -> None:
    begin(pair, "expiring", "a", session_timeout_ms=1_500)
    settle(pair, "expiring", 1, "a")
    for peer in (pair.kafka, pair.klamm):
        wait_until_empty(peer, "expiring")
    pair.ask(HeartbeatRequest("expiring", 1, "a"), HeartbeatResponse, 4)
    describe(pair, "expiring")


def test_a_member_that_does_not_rejoin_is_removed(pair: Pair) -> None:
    begin(pair, "late", "a", "b", rebalance_timeout_ms=1_500)
    settle(pair, "late", 2, "a", "b")
    pair.send("b", join("late", "b", protocols=(RANGE, STICKY), rebalance_timeout_ms=1_500), 9)
    pair.both_wait("b")
    pair.receive("b", JoinGroupResponse, 9)
    pair.ask(HeartbeatRequest("late", 3, "a"), HeartbeatResponse, 4)


def test_a_member_that_does_not_sync_is_removed(pair: Pair) -> None:
    begin(pair, "unsynced", "a", "b", rebalance_timeout_ms=1_500)
    pair.send("b", sync("unsynced", "b", 2), 5)
    pair.receive("b", SyncGroupResponse, 5)
    pair.ask(HeartbeatRequest("unsynced", 2, "a"), HeartbeatResponse, 4)
    pair.ask(HeartbeatRequest("unsynced", 2, "b"), HeartbeatResponse, 4)


def test_syncs_that_are_refused(pair: Pair) -> None:
    begin(pair, "syncs", "a", "b")
    for request in (
        sync("", "a", 2),
        sync("absent", "a", 2),
        sync("syncs", "stranger", 2),
        sync("syncs", "a", 1),
        sync("syncs", "a", 2, protocol_type="connect"),
        sync("syncs", "a", 2, protocol_name="sticky"),
        sync("syncs", "a", 2, group_instance_id="i1"),
    ):
        for version in (0, 3, 5):
            pair.ask(request, SyncGroupResponse, version)
    pair.ask(SyncGroupRequest("syncs", 2, "a"), SyncGroupResponse, 5)


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_in_every_version(pair: Pair, version: int) -> None:
    group = f"commits-{version}"
    by_id = version >= 10
    absent, repeated = "no topic is here", ((), (), (1,), ())
    for request in (
        commit(group, 0, 1, by_id=by_id),
        commit(group, 0, by_id=by_id, metadata=None),
        commit(group, 0, 7, -1, by_id=by_id),
        commit(group, 0, topic="no topic is here", by_id=by_id),
        commit(group, 0, by_id=by_id, metadata="x" * 21),
        commit(group, 0, by_id=by_id, metadata="ü" * 20),
        commit(group, 0, by_id=by_id, metadata="😀" * 11),
        commit("", 0, by_id=by_id),
        commit(group, 0, by_id=by_id, member_id="stranger"),
        commit(group, 0, by_id=by_id, member_id="stranger", generation_id_or_member_epoch=0),
        commit(f"absent-{version}", 0, by_id=by_id, generation_id_or_member_epoch=1),
        OffsetCommitRequest(group, ()),
        together(
            commit(group, 0, by_id=by_id), *(commit(group, *each, topic=absent, by_id=by_id) for each in repeated)
        ),
        together(*(commit(group, *each, topic=absent, by_id=by_id) for each in repeated)),
        together(commit(group, 0, 9, by_id=by_id), commit(group, 1, by_id=by_id), commit(group, 8, by_id=by_id)),
    ):
        pair.ask(request, OffsetCommitResponse, version)
    if version <= 4:
        pair.ask(commit(group, 2, by_id=False, retention_time_ms=100_000), OffsetCommitResponse, version)
    describe(pair, group, f"absent-{version}")


@pytest.mark.parametrize("version", range(1, 11))
def test_fetches_in_every_version(pair: Pair, version: int) -> None:
    pair.ask(commit("fetches", 0, 2), OffsetCommitResponse, 10)
    pair.ask(commit("fetches", 0, topic="payments"), OffsetCommitResponse, 10)
    wanted = (
        FetchTopic("" if version >= 10 else "orders", b"orders" if version >= 10 else bytes(16), (0, 1, 9)),
        FetchTopic("" if version >= 10 else "nowhere", b"?" * 16 if version >= 10 else bytes(16), (0,)),
    )
    for group in ("fetches", "absent", ""):
        for topics in (wanted, None, ()):
            if topics is None and version < 2:
                continue
            if version >= 8:
                request = OffsetFetchRequest((FetchGroup(group, topics), FetchGroup("other", topics)), version % 2 == 0)
            else:
                request = OffsetFetchRequest((), version == 7, group, topics)
            pair.ask(request, OffsetFetchResponse, version)


def test_commits_of_a_live_group(pair: Pair) -> None:
    begin(pair, "live", "a")
    request = commit("live", 0, generation_id_or_member_epoch=1, member_id="a")
    pair.ask(request, OffsetCommitResponse, 10)
    settle(pair, "live", 1, "a")
    for fields in (
        {"generation_id_or_member_epoch": 1, "member_id": "a"},
        {"generation_id_or_member_epoch": 2, "member_id": "a"},
        {"generation_id_or_member_epoch": 1, "member_id": "stranger"},
        {"generation_id_or_member_epoch": -1, "member_id": "a"},
        {},
        {"group_instance_id": "i1"},
    ):
        pair.ask(commit("live", 0, **fields), OffsetCommitResponse, 10)
    pair.ask(fetch("live", 0, 1), OffsetFetchResponse, 10)
    pair.ask(fetch("live", 0, member_id="a", member_epoch=1), OffsetFetchResponse, 10)


def delete_offsets(group: str, *places: tuple[str, int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(group, tuple(DeleteTopic(topic, (DeletePartition(index),)) for topic, index in places))


def test_offset_deletion(pair: Pair) -> None:
    everything = (("orders", 0), ("payments", 0), ("orders-not", 0))
    pair.ask(delete_offsets("absent", *everything), OffsetDeleteResponse, 0)
    pair.ask(delete_offsets("", *everything), OffsetDeleteResponse, 0)
    pair.ask(commit("deletion", 0, 1), OffsetCommitResponse, 10)
    pair.ask(delete_offsets("deletion", ("orders", 0), ("payments", 5)), OffsetDeleteResponse, 0)
    pair.ask(fetch("deletion"), OffsetFetchResponse, 10)
    begin(pair, "deletion", "a")
    pair.ask(delete_offsets("deletion", *everything), OffsetDeleteResponse, 0)
    settle(pair, "deletion", 1, "a")
    fields = {"generation_id_or_member_epoch": 1, "member_id": "a"}
    pair.ask(commit("deletion", 0, topic="payments", **fields), OffsetCommitResponse, 10)
    pair.ask(delete_offsets("deletion", *everything), OffsetDeleteResponse, 0)
    pair.ask(fetch("deletion"), OffsetFetchResponse, 10)
    begin(pair, "connect", "c", protocol_type="connect", protocols=(JoinProtocol("range", b"opaque"),))
    pair.ask(delete_offsets("connect", *everything), OffsetDeleteResponse, 0)


def test_group_deletion(pair: Pair) -> None:
    pair.ask(commit("doomed", 0, 1), OffsetCommitResponse, 10)
    begin(pair, "alive", "a")
    request = DeleteGroupsRequest(("doomed", "alive", "absent", "doomed", ""))
    for version in (0, 2):
        pair.ask(request, DeleteGroupsResponse, version)
    describe(pair, "doomed", "alive")
    pair.ask(fetch("doomed", 0), OffsetFetchResponse, 10)


@pytest.mark.parametrize("version", range(7))
def test_descriptions_in_every_version(pair: Pair, version: int) -> None:
    group = f"described-{version}"
    begin(pair, group, "a")
    describe(pair, group, "absent", "", version=version)
    settle(pair, group, 1, "a")
    describe(pair, group, version=version)
    pair.ask(DescribeGroupsRequest((group,)), DescribeGroupsResponse, version)


def test_leaving_in_every_version(pair: Pair) -> None:
    for version in range(6):
        group = f"leaving-{version}"
        begin(pair, group, f"a{version}")
        for member in ("stranger", f"a{version}"):
            request = LeaveGroupRequest(group, (LeavingMember(member),), member)
            pair.ask(request, LeaveGroupResponse, version)
        pair.ask(LeaveGroupRequest("absent", (LeavingMember("m"),), "m"), LeaveGroupResponse, version)
        pair.ask(LeaveGroupRequest("", (LeavingMember("m"),), "m"), LeaveGroupResponse, version)
        describe(pair, group)


def test_a_pending_member_leaves(pair: Pair) -> None:
    pair.ask(join("pending"), JoinGroupResponse, 9, name="a")
    pair.ask(LeaveGroupRequest("pending", (LeavingMember("a"),)), LeaveGroupResponse, 5)
    pair.ask(join("pending", "a"), JoinGroupResponse, 9)


@pytest.mark.parametrize("version", range(6))
def test_lists_in_every_version(pair: Pair, version: int) -> None:
    filters: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ())]
    if version >= 4:
        filters += [(("Stable",), ()), (("stable", " empty "), ()), (("nonsense",), ())]
    if version >= 5:
        filters += [((), ("classic",)), ((), ("CONSUMER",)), ((), ("nonsense",)), (("empty",), ("Classic", "share"))]
    for states, types in filters:
        wait_until_listed_alike(pair, ListGroupsRequest(states, types), version)


def wait_until_listed_alike(pair: Pair, request: ListGroupsRequest, version: int) -> None:
    """The sessions of members that earlier tests left do not expire at the same moment."""
    answers: list[object] = []

    def is_alike() -> bool:
        pair.send("", request, version)
        answers[:] = [peer.named(peer.receive("", ListGroupsResponse, version)) for peer in (pair.kafka, pair.klamm)]
        return answers[0] == answers[1]

    wait_until(is_alike, lambda: f"klamm: {answers[1]}\nApache Kafka: {answers[0]}", bound_s=60)
