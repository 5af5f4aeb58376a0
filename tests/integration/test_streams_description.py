"""The output of `klamm groups` for streams groups (KIP-1071)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from klamm import Cluster
from klamm.admin import groups as group_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.cli.main import run
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.streams_messages import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from klamm.protocol.topic_partition import TopicPartition
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 3
GROUP = "counts"
MEMBER = "first"
TOPOLOGY = Topology(0, (Subtopology("0", ("wide", "narrow")),))
CONFIG = {
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
}


def joined(client: Client) -> Callable[[], bool]:
    """Send a heartbeat; true once the member reports its tasks."""
    epoch, tasks = 0, tuple[TaskIds, ...]()

    def beat() -> bool:
        nonlocal epoch, tasks
        request = StreamsGroupHeartbeatRequest(
            GROUP,
            MEMBER,
            epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            topology=TOPOLOGY if epoch == 0 else None,
            active_tasks=tasks,
            standby_tasks=(),
            warmup_tasks=(),
            process_id="machine" if epoch == 0 else None,
        )
        answer = client.coordinator(GROUP).ask(request, StreamsGroupHeartbeatResponse, 0)
        if answer.error_code is not ErrorCode.NONE:
            return False
        epoch = answer.member_epoch
        had, tasks = tasks, answer.active_tasks if answer.active_tasks is not None else tasks
        return bool(tasks) and had == tasks

    return beat


def test_members_with_tasks_and_lag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess(tmp_path / "data", overrides=CONFIG) as node, Client(node.bootstrap) as client:
        topic_admin.create(client, ["wide"], partitions=PARTITIONS)
        topic_admin.create(client, ["narrow"], partitions=1)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for at in range(PARTITIONS):
            producer.produce("wide", str(at), partition=at)
            producer.produce("wide", str(at), partition=at)
        assert producer.flush(60) == 0
        wait_until(joined(client), "the member has its tasks", bound_s=60)
        generation = group_admin.describe(client, GROUP).members[0].epoch
        assert generation is not None
        committed = {TopicPartition("wide", 0): 2, TopicPartition("wide", 1): 1}
        group_admin.commit(client, GROUP, committed, member_id=MEMBER, generation=generation, version=9)
        assert run(["groups", "describe", GROUP, "--json", "-b", node.bootstrap]) == 0
        found = json.loads(capsys.readouterr().out)
        assert run(["groups", "describe", GROUP, "-b", node.bootstrap]) == 0
        text = " ".join(capsys.readouterr().out.split())
    assert (found["type"], found["state"], found["epoch"]) == ("streams", "Stable", found["assignment_epoch"])
    [member] = found["members"]
    assert (member["id"], member["process_id"], member["subscribed"]) == (MEMBER, "machine", ["narrow", "wide"])
    active = [{"subtopology": "0", "partition": at} for at in range(PARTITIONS)]
    assert member["tasks"] == member["target_tasks"] == {"active": active, "standby": [], "warmup": []}
    lags = {(one["topic"], one["partition"]): (one["committed"], one["lag"]) for one in found["offsets"]}
    assert lags == {("narrow", 0): (-1, 0), ("wide", 0): (2, 0), ("wide", 1): (1, 1), ("wide", 2): (-1, 2)}
    assert "0-0..2" in text


def test_a_cluster_shows_its_streams_groups() -> None:
    with Cluster(config=CONFIG) as cluster, Client(cluster.bootstrap_servers) as client:
        for topic, count in (("wide", PARTITIONS), ("narrow", 1)):
            cluster.create_topic(topic, partitions=count)
        wait_until(joined(client), "the member has its tasks", bound_s=60)
        partition = TopicPartition("wide", 1)
        group_admin.commit(client, GROUP, {partition: 4}, member_id=MEMBER, generation=2, version=9)
        found = cluster.group(GROUP)
    assert (found.kind, found.state, found.epoch) == ("streams", "Stable", found.assignment_epoch)
    [member] = found.members
    assert (member.member_id, member.protocol, member.epoch) == (MEMBER, "streams", found.epoch)
    assert member.assigned == member.target
    assert {partition} < set(member.assigned)
    assert found.committed == {partition: 4}
    wide = {TopicPartition("wide", at): None for at in range(PARTITIONS)}
    assert found.lag == wide | {TopicPartition("narrow", 0): None, partition: 0}
