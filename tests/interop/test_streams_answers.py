"""Requests of streams groups to Apache Kafka 4.3.1 and to klamm over TCP get the same responses (KIP-1071)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from klamm.protocol.messages.group_messages import (
    CommitPartition,
    CommitTopic,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeletePartition,
    DeleteTopic,
    FetchGroup,
    FetchTopic,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from klamm.protocol.messages.streams_messages import (
    Endpoint,
    InternalTopic,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.interop.group_peers import Pair, Peer, both_running
from tests.support.waiting import wait_until

SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.max.size": "3",
    "offsets.topic.num.partitions": "4",
    "num.partitions": "1",
}
GROUP_RESOURCE = 32
STATELESS = Topology(0, (Subtopology("0", ("input",)),))
CompletedBy = Callable[[dict[str, Any]], bool]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap addresses of Apache Kafka and klamm, both with the topic `input` of four partitions."""
    with both_running(tmp_path_factory.mktemp("streams"), SETTINGS) as bootstraps:
        for bootstrap in bootstraps:
            prepare(Peer(bootstrap))
        yield bootstraps


def prepare(peer: Peer) -> None:
    """Create the topic, and wait until the group coordinator serves every partition of its log."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        peer.send("", CreateTopicsRequest((CreatableTopic("input", 4, 1),)), 7)
        peer.receive("", CreateTopicsResponse, 7)
        peer.send("", FindCoordinatorRequest(coordinator_keys=("a",)), 6)
        found = peer.receive("", FindCoordinatorResponse, 6)
        peer.send("", ListGroupsRequest(), 5)
        listed = peer.receive("", ListGroupsResponse, 5)
        if not any(one.error_code for one in (*found.coordinators, listed)):
            return
        time.sleep(0.1)
    raise AssertionError("no group coordinator")


@pytest.fixture
def pair(nodes: tuple[str, str]) -> Pair:
    return Pair(Peer(nodes[0]), Peer(nodes[1]))


class Group:
    """The same streams group on both; every response must be equal."""

    def __init__(self, pair: Pair, name: str, topology: Topology = STATELESS) -> None:
        self.pair, self.name, self.topology = pair, name, topology

    def request(self, member: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
        if epoch == 0:
            joining = {"topology": self.topology, "rebalance_timeout_ms": 60_000, "process_id": member}
            fields = joining | {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()} | fields
        return StreamsGroupHeartbeatRequest(self.name, member, epoch, **fields)

    def beat(self, member: str, epoch: int, **fields: Any) -> dict[str, Any]:
        return self.pair.ask(self.request(member, epoch, **fields), StreamsGroupHeartbeatResponse, 0)

    def owning(self, member: str, epoch: int, active: Any, standby: Any = (), **fields: Any) -> dict[str, Any]:
        return self.beat(member, epoch, active_tasks=active, standby_tasks=standby, warmup_tasks=(), **fields)

    def until(self, member: str, epoch: int, is_done: CompletedBy, **fields: Any) -> dict[str, Any]:
        """Send heartbeats to each broker until the condition holds; then the responses must be equal."""
        answers = self._until(member, epoch, is_done, **fields)
        assert answers[1] == answers[0], f"klamm: {answers[1]}\nApache Kafka: {answers[0]}"
        return answers[0]

    def until_topics_are_known(self) -> None:
        """Wait until both coordinators know the topics of the topology, observed through another group."""
        Group(self.pair, f"{self.name}-before", self.topology)._until("m", 0, has_no_status)

    def _until(self, member: str, epoch: int, is_done: CompletedBy, **fields: Any) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        for peer in (self.pair.kafka, self.pair.klamm):
            deadline = time.monotonic() + 60
            while True:
                peer.send("", self.request(member, epoch, **fields), 0)
                answer = peer.named(peer.receive("", StreamsGroupHeartbeatResponse, 0))
                if is_done(answer):
                    break
                assert time.monotonic() < deadline, answer
                time.sleep(0.05)
            answers.append(answer)
        return answers

    def describe(self) -> dict[str, Any]:
        answer = self.pair.ask(StreamsGroupDescribeRequest((self.name,), True), StreamsGroupDescribeResponse, 0)
        group: dict[str, Any] = answer["groups"][0]
        return group

    def describes_nothing(self, peer: Peer) -> bool:
        peer.send("", StreamsGroupDescribeRequest((self.name,)), 0)
        [group] = peer.receive("", StreamsGroupDescribeResponse, 0).groups
        return bool(group.error_code)

    def alter_config(self, key: str, value: str) -> str:
        one = AlterConfigsResource(GROUP_RESOURCE, self.name, (AlterableConfig(key, value, 0),))
        answer = self.pair.ask(IncrementalAlterConfigsRequest((one,)), IncrementalAlterConfigsResponse, 1)
        return str(answer["responses"][0]["error_code"])

    def set_config(self, key: str, value: str) -> None:
        assert self.alter_config(key, value) == "NONE"

    def commit(self, member: str, epoch: int, *places: tuple[str, int], version: int = 9) -> dict[str, Any]:
        topics = tuple(CommitTopic(name, partitions=(CommitPartition(index, 7),)) for name, index in places)
        return self.pair.ask(OffsetCommitRequest(self.name, topics, epoch, member), OffsetCommitResponse, version)

    def fetch(self, member: str | None, epoch: int) -> dict[str, Any]:
        group = FetchGroup(self.name, (FetchTopic("input", partition_indexes=(0, 1)),), member, epoch)
        return self.pair.ask(OffsetFetchRequest((group,)), OffsetFetchResponse, 9)

    def delete(self) -> dict[str, Any]:
        return self.pair.ask(DeleteGroupsRequest((self.name,)), DeleteGroupsResponse, 2)


def create_topic(pair: Pair, name: str, partitions: int) -> None:
    request = CreateTopicsRequest((CreatableTopic(name, partitions, 1),))
    for peer in (pair.kafka, pair.klamm):
        peer.send("", request, 7)
        [topic] = peer.receive("", CreateTopicsResponse, 7).topics
        assert topic.error_code == 0


def ids(*partitions: int, subtopology: str = "0") -> tuple[TaskIds, ...]:
    return (TaskIds(subtopology, partitions),) if partitions else ()


def statuses(answer: dict[str, Any]) -> list[int]:
    return sorted(one["status_code"] for one in answer["status"])


def active(answer: dict[str, Any]) -> list[int] | None:
    lists = answer["active_tasks"]
    return None if lists is None else [partition for one in lists for partition in one["partitions"]]


def has_no_status(answer: dict[str, Any]) -> bool:
    return not answer["status"]


def test_a_missing_source_topic(pair: Pair) -> None:
    group = Group(pair, "g78", Topology(0, (Subtopology("0", ("source78", "input")),)))
    assert statuses(group.beat("m", 0)) == [1]
    assert group.describe()["group_state"] == "NotReady"
    create_topic(pair, "source78", 2)
    group.until("m", 2, has_no_status)
    assert group.describe()["group_state"] == "Stable"


def test_internal_topics_are_created(pair: Pair) -> None:
    log = InternalTopic("store79-changelog", topic_configs=(KeyValue("cleanup.policy", "compact"),))
    subtopologies = (
        Subtopology("0", ("input",), repartition_sink_topics=("by79-repartition",)),
        Subtopology("1", repartition_source_topics=(InternalTopic("by79-repartition"),), state_changelog_topics=(log,)),
    )
    group = Group(pair, "g79", Topology(0, subtopologies))
    first = pair.kafka, pair.klamm
    for peer in first:
        peer.send("", group.request("m", 0), 0)
        answer = peer.receive("", StreamsGroupHeartbeatResponse, 0)
        assert [one.status_code for one in answer.status] == [3]
    group.until("m", 2, has_no_status)
    described = group.describe()
    counts = [
        topic["partitions"]
        for one in described["topology"]["subtopologies"]
        for topic in (*one["repartition_source_topics"], *one["state_changelog_topics"])
    ]
    assert counts == [4, 4]


def test_wrong_requests(pair: Pair) -> None:
    group = Group(pair, "g80")
    wrong: list[dict[str, Any]] = [
        {"instance_id": "i"},
        {"warmup_tasks": ids(1)},
        {"topology": None},
        {"rebalance_timeout_ms": -1},
        {"active_tasks": None},
        {"active_tasks": ids(1)},
        {"topology": Topology(0, (Subtopology("0", (), ("in.*",)),))},
        {"topology": Topology(0, (Subtopology("0", ("__consumer_offsets",)),))},
        {"topology": Topology(0, (Subtopology("0", ("no/topic",)),))},
        {"topology": Topology(0, (Subtopology("0", ("input",), (), (InternalTopic("log80", 3),)),))},
        {"topology": Topology(0, (Subtopology("0", ("input",), (), (), (), (InternalTopic("r80"),)),))},
        {"rack_id": ""},
    ]
    for fields in wrong:
        assert group.beat("m", 0, **fields)["error_code"] != "NONE", fields
    assert group.beat("", 0)["error_code"] == "INVALID_REQUEST"
    assert group.beat("m", -3)["error_code"] == "INVALID_REQUEST"
    assert group.beat("m", -2)["error_code"] == "INVALID_REQUEST"
    assert group.beat("m", 4)["error_code"] == "GROUP_ID_NOT_FOUND"
    assert group.beat("m", -1)["error_code"] == "GROUP_ID_NOT_FOUND"
    group.beat("m", 0)
    for fields in ({"topology": STATELESS}, {"active_tasks": ()}, {"instance_id": "i"}):
        assert group.beat("m", 2, **fields)["error_code"] == "INVALID_REQUEST"


def test_topologies(pair: Pair) -> None:
    group = Group(pair, "g81", Topology(3, STATELESS.subtopologies))
    group.beat("m", 0)
    other = (Subtopology("0", ("input", "more")),)
    for topology in (Topology(3, other), Topology(4, STATELESS.subtopologies)):
        assert group.beat("n", 0, topology=topology)["error_code"] == "INVALID_REQUEST"
    assert statuses(group.beat("n", 0, topology=Topology(2, other))) == [0]


def test_the_first_target_is_delayed(pair: Pair) -> None:
    group = Group(pair, "g82")
    group.set_config("streams.initial.rebalance.delay.ms", "3000")
    for peer in (pair.kafka, pair.klamm):
        deadline = time.monotonic() + 60
        # Until the config is applied there is no delay, and the member has to leave again.
        while True:
            peer.send("", group.request("m", 0), 0)
            answer = peer.receive("", StreamsGroupHeartbeatResponse, 0)
            if [one.status_code for one in answer.status] == [5]:
                break
            assert time.monotonic() < deadline
            peer.send("", group.request("m", -1), 0)
            peer.receive("", StreamsGroupHeartbeatResponse, 0)
            peer.send("", DeleteGroupsRequest((group.name,)), 2)
            peer.receive("", DeleteGroupsResponse, 2)
    assert statuses(group.beat("m", 1)) == [5]
    after = group.until("m", 1, has_no_status)
    assert (after["member_epoch"], active(after)) == (2, [0, 1, 2, 3])


def test_unknown_tasks(pair: Pair) -> None:
    group = Group(pair, "g83")
    group.beat("m", 0)
    for tasks in (ids(0, subtopology="9"), ids(4), ids(-1)):
        assert group.owning("m", 2, tasks)["error_code"] == "INVALID_REQUEST"


def test_shutdown(pair: Pair) -> None:
    group = Group(pair, "g84")
    group.beat("m", 0)
    group.beat("n", 0)
    assert statuses(group.beat("m", 2, shutdown_application=True)) == [4]
    assert statuses(group.beat("n", 3)) == [4]
    group.beat("m", -1)
    assert statuses(group.beat("n", 3)) == [4]
    group.beat("n", -1)
    assert statuses(group.beat("o", 0)) == []


def test_standbys(pair: Pair) -> None:
    log = InternalTopic("store85-changelog")
    group = Group(pair, "g85", Topology(0, (Subtopology("0", ("input",), state_changelog_topics=(log,)),)))
    create_topic(pair, "store85-changelog", 4)
    group.until_topics_are_known()
    group.beat("m", 0)
    group.beat("n", 0)
    group.beat("m", 2)
    epoch = group.owning("m", 2, ids(0, 1))["member_epoch"]
    assert active(group.beat("n", 3)) == [2, 3]
    group.set_config("streams.num.standby.replicas", "1")
    group.until("m", epoch, lambda answer: bool(answer["standby_tasks"]))
    group.until("n", epoch, lambda answer: bool(answer["standby_tasks"]))
    assert group.describe()["group_state"] == "Stable"


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("num.standby.replicas", ("0", "2", "3", "-1", "x")),
        ("session.timeout.ms", ("45000", "60000", "44999", "60001")),
        ("heartbeat.interval.ms", ("5000", "15000", "4999", "15001")),
        ("assignment.interval.ms", ("0", "15000", "-1", "15001")),
        ("initial.rebalance.delay.ms", ("0", "100000", "-1")),
        ("nothing", ("1",)),
    ],
)
def test_configs_of_a_group(pair: Pair, key: str, values: tuple[str, ...]) -> None:
    group = Group(pair, f"configs-{key}")
    codes = {group.alter_config(f"streams.{key}", value) for value in values}
    assert "INVALID_CONFIG" in codes


def test_tasks_move_between_members(pair: Pair) -> None:
    group = Group(pair, "moves")
    assert active(group.beat("m", 0)) == [0, 1, 2, 3]
    assert active(group.beat("n", 0)) == []
    assert active(group.beat("m", 2)) == [0, 1]
    assert group.describe()["group_state"] == "Reconciling"
    assert group.owning("m", 2, ids(0, 1, 2, 3))["member_epoch"] == 2
    group.beat("n", 3)
    group.beat("o", 0)
    group.owning("m", 2, ids(0, 1))
    for member, epoch in (("n", 3), ("o", 4), ("m", 4), ("n", 4), ("o", 4)):
        group.beat(member, epoch)
    group.describe()
    group.beat("n", -1)
    for member in "mo":
        group.beat(member, 4)
        group.beat(member, 5)
    group.describe()
    assert group.beat("m", 9)["error_code"] == "FENCED_MEMBER_EPOCH"
    assert group.beat("m", 2)["error_code"] == "FENCED_MEMBER_EPOCH"
    # Apache Kafka does not send tasks again after their response was lost.
    owned = {"active_tasks": ids(0), "standby_tasks": (), "warmup_tasks": ()}
    kafka, klamm = group._until("m", 4, lambda answer: True, **owned)
    assert kafka["active_tasks"] is kafka["standby_tasks"] is kafka["warmup_tasks"] is None
    assert active(klamm) == [0, 1]
    assert klamm == kafka | {key: klamm[key] for key in owned}
    group.beat("m", 0)


def test_a_full_group(pair: Pair) -> None:
    group = Group(pair, "full")
    for member in "mno":
        group.beat(member, 0)
    for member in "pm":
        assert group.beat(member, 0)["error_code"] == "GROUP_MAX_SIZE_REACHED"


def test_members_that_can_be_queried(pair: Pair) -> None:
    group = Group(pair, "endpoints")
    group.beat("m", 0, user_endpoint=Endpoint("host", 65_535))
    group.beat("n", 0)
    group.beat("m", 2)
    group.owning("m", 2, ids(0, 1))
    for epoch in (0, 1, 2):
        group.beat("n", 3, endpoint_information_epoch=epoch)


def test_offsets(pair: Pair) -> None:
    group = Group(pair, "offsets")
    group.beat("m", 0)
    group.beat("n", 0)
    group.beat("m", 2)
    group.owning("m", 2, ids(0, 1))
    for member, epoch, version in (("m", 3, 9), ("m", 2, 9), ("m", 4, 9), ("m", 1, 9), ("m", 3, 8), ("x", 3, 9)):
        group.commit(member, epoch, ("input", 0), version=version)
    group.commit("m", 2, ("input", 0), ("input", 3))
    group.commit("", -1, ("input", 0))
    for asked, epoch in (("m", 3), ("m", 2), ("x", 3), (None, -1)):
        group.fetch(asked, epoch)
    deletion = OffsetDeleteRequest(group.name, (DeleteTopic("input", (DeletePartition(0),)),))
    pair.ask(deletion, OffsetDeleteResponse, 0)
    group.delete()
    for member in "mn":
        group.beat(member, -1)
    pair.ask(deletion, OffsetDeleteResponse, 0)
    group.commit("", -1, ("input", 1))
    group.fetch(None, -1)
    group.describe()
    group.delete()
    group.describe()


def test_ids_of_other_groups(pair: Pair) -> None:
    group = Group(pair, "ids")
    group.commit("", -1, ("input", 0))
    group.beat("m", 0)
    group.fetch(None, -1)
    join = JoinGroupRequest(group.name, 30_000, "", "consumer", (JoinProtocol("range", b""),), 30_000)
    pair.ask(join, JoinGroupResponse, 9)
    group.beat("m", -1)
    pair.ask(ListGroupsRequest((), ("STREAMS",)), ListGroupsResponse, 5)
    joined = pair.ask(join, JoinGroupResponse, 9, name="classic")
    assert joined["error_code"] == "MEMBER_ID_REQUIRED"
    # Apache Kafka may respond before the tombstones of the streams group are committed.
    wait_until(lambda: group.describes_nothing(pair.kafka), bound_s=30)
    group.describe()
    group.fetch(None, -1)
