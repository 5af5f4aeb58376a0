"""klamm takes over the streams groups that Apache Kafka 4.3.1 wrote, and hands them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from klamm.protocol.messages.group_messages import (
    CommitPartition,
    CommitTopic,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FetchGroup,
    FetchTopic,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from klamm.protocol.messages.streams_messages import (
    DescribedStreamsGroup,
    InternalTopic,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.interop import apache_kafka
from tests.interop.group_peers import Peer
from tests.support.foreign import require
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

CONFIG = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}
TOPOLOGY = Topology(0, (Subtopology("0", ("input",), state_changelog_topics=(InternalTopic("store-changelog"),)),))
GROUPS = LIVE, EMPTY, DELETED = "live", "empty", "deleted"


class Client:
    """Sends requests to one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._peer = Peer(bootstrap)

    def ask(self, request: Any, response: Any, version: int) -> Any:
        self._peer.send("", request, version)
        return self._peer.receive("", response, version)

    def wait_for_groups(self) -> None:
        """Wait until the group coordinator has loaded the partitions of the groups."""

        def is_ready() -> bool:
            self.ask(FindCoordinatorRequest(coordinator_keys=GROUPS), FindCoordinatorResponse, 6)
            found = self.ask(StreamsGroupDescribeRequest(GROUPS), StreamsGroupDescribeResponse, 0).groups
            return all(group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) for group in found)

        wait_until(is_ready, bound_s=60)

    def beat(self, group: str, member: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatResponse:
        if epoch == 0:
            joining: dict[str, Any] = {"topology": TOPOLOGY, "rebalance_timeout_ms": 60_000, "process_id": member}
            fields = joining | {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()}
        request = StreamsGroupHeartbeatRequest(group, member, epoch, **fields)
        answer: StreamsGroupHeartbeatResponse = self.ask(request, StreamsGroupHeartbeatResponse, 0)
        assert not answer.error_code, answer
        return answer

    def owning(self, group: str, member: str, epoch: int, active: Any, standby: Any) -> StreamsGroupHeartbeatResponse:
        return self.beat(group, member, epoch, active_tasks=active, standby_tasks=standby, warmup_tasks=())

    def until(self, beat: Callable[[], Any], is_done: Callable[[Any], bool]) -> Any:
        answers: list[Any] = []

        def is_answered() -> bool:
            answers[:] = [beat()]
            return is_done(answers[0])

        wait_until(is_answered, lambda: answers, bound_s=60)
        return answers[0]

    def describe(self, group: str) -> DescribedStreamsGroup:
        """The sorted description without partition counts, which are known only after the first heartbeat."""
        request = StreamsGroupDescribeRequest((group,))
        [found] = self.ask(request, StreamsGroupDescribeResponse, 0).groups
        members = tuple(sorted(found.members, key=lambda one: str(one.member_id)))
        described: DescribedStreamsGroup = replace(found, topology=None, members=members)
        return described

    def commit(self, group: str, member: str, epoch: int, offset: int) -> int:
        topic = CommitTopic("input", partitions=(CommitPartition(0, offset),))
        answer = self.ask(OffsetCommitRequest(group, (topic,), epoch, member), OffsetCommitResponse, 9)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    def fetch(self, group: str) -> int:
        asked = FetchGroup(group, (FetchTopic("input", partition_indexes=(0,)),))
        [found] = self.ask(OffsetFetchRequest((asked,)), OffsetFetchResponse, 9).groups
        offset: int = found.topics[0].partitions[0].committed_offset
        return offset

    def listed(self) -> set[ListedGroup]:
        return set(self.ask(ListGroupsRequest((), ("streams",)), ListGroupsResponse, 5).groups)


def ids(*partitions: int) -> tuple[TaskIds, ...]:
    return (TaskIds("0", partitions),) if partitions else ()


def prepare(client: Client) -> None:
    """Create a group in the middle of a rebalance, an empty one with an offset, and a deleted one."""
    request = CreateTopicsRequest((CreatableTopic("input", 4, 1), CreatableTopic("store-changelog", 4, 1)))
    client.ask(request, CreateTopicsResponse, 7)
    client.wait_for_groups()
    for group in (EMPTY, DELETED):
        client.until(lambda group=group: client.beat(group, "m", 0), lambda answer: not answer.status)  # type: ignore[misc]
        assert client.commit(group, "m", client.describe(group).members[0].member_epoch, 5) == 0
        client.beat(group, "m", -1)
    client.ask(DeleteGroupsRequest((DELETED,)), DeleteGroupsResponse, 2)
    client.beat(LIVE, "m", 0)
    client.beat(LIVE, "n", 0)
    assert client.beat(LIVE, "m", 2).active_tasks == ids(0, 1)
    assert client.commit(LIVE, "m", 2, 7) == 0


def test_groups_survive_both_takeovers(tmp_path: Path) -> None:
    require("java", "mvn")
    data = tmp_path / "data"
    kafka = apache_kafka.KafkaNode(data, overrides=CONFIG)
    kafka.format("4L6g3nShT-eMCtK--X86sw")
    with kafka:
        client = Client(kafka.bootstrap)
        prepare(client)
        written = [client.describe(group) for group in GROUPS], client.listed()
    node = NodeProcess(data, overrides=CONFIG)
    with node:
        client = Client(node.bootstrap)
        client.wait_for_groups()
        assert ([client.describe(group) for group in GROUPS], client.listed()) == written
        assert (client.fetch(LIVE), client.fetch(EMPTY), client.fetch(DELETED)) == (7, 5, -1)
        moved = client.owning(LIVE, "m", 2, ids(0, 1), ())
        assert moved.member_epoch == 3
        taken = client.beat(LIVE, "n", 3)
        assert taken.active_tasks == ids(2, 3)
        client.until(
            lambda: client.owning(LIVE, "m", 3, ids(0, 1), ids(2, 3)),
            lambda _: client.describe(LIVE).group_state == "Stable",
        )
        assert client.commit(LIVE, "m", 3, 9) == 0
        client.beat(EMPTY, "o", 0)
        written = [client.describe(group) for group in GROUPS], client.listed()
        assert node.stop() == 0, node.log()
    with kafka:
        client = Client(kafka.bootstrap)
        client.wait_for_groups()
        assert ([client.describe(group) for group in GROUPS], client.listed()) == written
        assert (client.fetch(LIVE), client.fetch(EMPTY)) == (9, 5)
        client.beat(LIVE, "m", 3)
        client.beat(LIVE, "n", -1)
