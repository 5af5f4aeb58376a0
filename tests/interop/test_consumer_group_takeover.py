"""klamm takes over the consumer groups of a `__consumer_offsets` that Apache Kafka 4.3.1 wrote, and hands them back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopic,
)
from klamm.protocol.messages.group_messages import (
    JoinGroupResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    SyncAssignment,
    SyncGroupResponse,
)
from tests.interop import apache_kafka
from tests.interop.group_peers import Peer
from tests.interop.test_consumer_group_answers import Assignment, TopicPartitions, classic, encode_assignment, synced
from tests.interop.test_group_answers import TOPIC_IDS, commit, fetch, peer_key, prepare
from tests.support.foreign import require
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}

pytestmark = pytest.mark.timeout(300)


class Groups:
    """A broker with groups, and the state of their clients."""

    def __init__(self, bootstrap: str, before: Groups | None = None) -> None:
        """`before` is the previous broker on this directory: its names and ids are expected."""
        self.peer = Peer(bootstrap)
        prepare(self.peer)
        TOPIC_IDS.pop(peer_key(self.peer), None)
        if before is not None:
            self.peer.names, self.peer.topic_ids = before.peer.names, before.peer.topic_ids

    def ask(self, request: Any, response: Any, version: int) -> Any:
        self.peer.send("", request, version)
        return self.peer.receive("", response, version)

    def beat(self, group: str, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group, member, epoch, **fields)
        answer: ConsumerGroupHeartbeatResponse = self.ask(request, ConsumerGroupHeartbeatResponse, 1)
        assert not answer.error_code, answer
        return answer

    def join(self, group: str, member: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        whole = {"rebalance_timeout_ms": 60_000, "topic_partitions": (), "server_assignor": "range"}
        names = {} if "subscribed_topic_regex" in fields else {"subscribed_topic_names": ("orders",)}
        return self.beat(group, member, 0, **(whole | names | fields))

    def described(self, *groups: str) -> Any:
        """The descriptions of the groups, with sorted members."""
        answer = self.ask(ConsumerGroupDescribeRequest(groups), ConsumerGroupDescribeResponse, 1)
        return self.peer.named(answer)["groups"]

    def offsets(self, group: str) -> Any:
        return self.peer.named(self.ask(fetch(group), OffsetFetchResponse, 10))


GROUPS = ("settled", "moving", "patterned", "static", "mixed", "emptied")


def until(groups: Groups, member: tuple[str, str, int], is_reached: Callable[[Any], bool]) -> Any:
    """Send heartbeats until the condition on the response holds."""
    answers: list[Any] = []

    def beat() -> bool:
        answers.append(groups.beat(*member, topic_partitions=()))
        return is_reached(answers[-1])

    wait_until(beat, f"{member} does not get there", bound_s=60)
    return answers[-1]


def fill(groups: Groups) -> None:
    """Create groups in all states."""
    groups.join("settled", "a")
    groups.ask(commit("settled", 0, 1, generation_id_or_member_epoch=2, member_id="a"), OffsetCommitResponse, 10)
    groups.join("moving", "a")
    groups.join("moving", "b")
    groups.beat("moving", "a", 2)
    groups.join("patterned", "a", subscribed_topic_regex="ord.*|pay.*")
    until(groups, ("patterned", "a", 1), lambda answer: answer.member_epoch == 2)
    groups.join("static", "a", instance_id="i")
    groups.beat("static", "a", -2, instance_id="i")
    joined = groups.ask(classic("mixed"), JoinGroupResponse, 9)
    groups.peer.names["old"] = joined.member_id
    groups.ask(classic("mixed", "old"), JoinGroupResponse, 9)
    plan = encode_assignment(Assignment((TopicPartitions("orders", (0, 1, 2)),)))
    groups.ask(synced("mixed", "old", 1, assignments=(SyncAssignment("old", plan),)), SyncGroupResponse, 5)
    groups.join("mixed", "new")
    groups.join("emptied", "a")
    groups.ask(commit("emptied", 1, generation_id_or_member_epoch=2, member_id="a"), OffsetCommitResponse, 10)
    groups.beat("emptied", "a", -1)


def known(groups: Groups) -> Any:
    return groups.described(*GROUPS), groups.offsets("settled"), groups.offsets("emptied")


def test_groups_survive_both_takeovers(tmp_path: Path) -> None:
    require("java", "mvn")
    data = tmp_path / "data"
    kafka = apache_kafka.KafkaNode(data, overrides=SETTINGS)
    kafka.format(CLUSTER_ID)
    with kafka:
        theirs = Groups(kafka.bootstrap)
        fill(theirs)
        before = known(theirs)
    node = NodeProcess(data, overrides=SETTINGS)
    with node:
        ours = Groups(node.bootstrap, theirs)
        assert known(ours) == before
        assert ours.beat("settled", "a", 2).member_epoch == 2
        orders = next(topic_id for topic_id, name in ours.peer.topic_ids.items() if name == "orders")
        kept = (OwnedTopic(orders, (0, 1)),)
        assert ours.beat("moving", "a", 2, topic_partitions=kept).member_epoch == 3
        assert ours.beat("moving", "b", 3).assignment is not None
        assert ours.join("static", "b", instance_id="i").assignment is not None
        assert ours.ask(classic("mixed", "old", 0, 1, 2), JoinGroupResponse, 9).generation_id == 1
        ours.join("emptied", "b")
        ours.beat("patterned", "a", 2, subscribed_topic_regex="", topic_partitions=())
        ours.join("ours", "a")
        before = known(ours), ours.described("ours")
        assert node.stop() == 0, node.log()
    with kafka:
        theirs = Groups(kafka.bootstrap, ours)
        assert (known(theirs), theirs.described("ours")) == before
        assert theirs.beat("settled", "a", 2).member_epoch == 2
        assert theirs.beat("moving", "b", 3).member_epoch == 3
        assert theirs.beat("ours", "a", 2).member_epoch == 2
        assert theirs.beat("static", "b", 2, instance_id="i").member_epoch == 2
