"""The causes of a partition's state, found in records that a controller wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.controller.cluster import WITH_ELR, uuid
from tests.unit.metadata.written import WrittenCluster

from klamm.metadata import History, PartitionHistory, partition_history
from klamm.metadata.log.entries import Entry
from klamm.metadata.partitions.broker_events import BrokerEvent, BrokerEvents
from klamm.metadata.partitions.causes import cause_of, is_unclean
from klamm.metadata.partitions.partition_state import PartitionState
from klamm.protocol.generated.metadata_records import ClearElrRecord, PartitionChangeRecord
from klamm.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WrittenCluster]:
    found = WrittenCluster(tmp_path)
    found.lead(1)
    found.add_brokers(1, 2, 3)
    yield found
    found.native.close()


def history_of(cluster: WrittenCluster, tmp_path: Path, until: str = "end") -> PartitionHistory:
    cluster.flush()
    return partition_history(History(tmp_path), "orders", 0, until)


def change(cluster: WrittenCluster, topic_id: bytes, **changed: object) -> int:
    return cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, **changed))  # type: ignore[arg-type]


def test_brokers_that_are_fenced_one_by_one(cluster: WrittenCluster, tmp_path: Path) -> None:
    cluster.create_assigned("orders", [1, 2], [3, 1])
    cluster.create_assigned("other", [1, 2])
    for broker in (3, 2):
        cluster.heartbeat(broker)
    for _ in range(12):
        cluster.run_clock(1000)
        cluster.heartbeat(2)
        cluster.heartbeat(3)
    moved = history_of(cluster, tmp_path)
    assert [change.change.partition(":")[0] for change in moved.changes[:1]] == ["created"]
    assert "leader 1 -> 2" in moved.changes[1].change
    assert "broker 1 was fenced" in moved.changes[1].cause
    assert moved.state.startswith("broker 2 leads it")
    for _ in range(12):
        cluster.run_clock(1000)
        cluster.heartbeat(3)
    history = history_of(cluster, tmp_path)
    assert "leader 2 -> none" in history.changes[2].change
    assert "broker 2 was fenced" in history.changes[2].cause
    assert "no other replica of the ISR is alive" in history.changes[2].cause
    assert history.state.startswith("no leader: only 2 may lead")
    assert "broker 2 is fenced since offset" in history.state
    assert "start broker 2 again" in history.advice[0]
    assert len(history.changes) == 3, "nothing of the other topic"
    assert history_of(cluster, tmp_path, str(moved.changes[1].offset)).state == moved.state
    cluster.add_brokers(2)
    back = history_of(cluster, tmp_path)
    assert "leader none -> 2" in back.changes[-1].change
    assert "broker 2 was unfenced" in back.changes[-1].cause


def test_a_controlled_shutdown_and_a_preferred_election(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    cluster.heartbeat(1, want_shut_down=True)
    history = history_of(cluster, tmp_path)
    assert "leader 1 -> 2" in history.changes[1].change
    assert "broker 1 began its controlled shutdown" in history.changes[1].cause
    for _ in range(12):
        cluster.run_clock(1000)
        cluster.heartbeat(2)
    cluster.add_brokers(1)
    change(cluster, topic_id, isr=[2, 1])
    change(cluster, topic_id, leader=1)
    history = history_of(cluster, tmp_path)
    assert [change.cause for change in history.changes[-2:]] == [
        "broker 1 caught up with the leader",
        "preferred leader election",
    ]


def test_alter_partition_and_reassignments(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    change(cluster, topic_id, isr=[1])
    three, two = [uuid(101), uuid(102), uuid(103)], [uuid(101), uuid(103)]
    change(cluster, topic_id, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[2], directories=three)
    done = {"adding_replicas": [], "removing_replicas": [], "directories": two}
    change(cluster, topic_id, isr=[1, 3], replicas=[1, 3], **done)
    change(cluster, topic_id, leader=1)
    causes = [change.cause for change in history_of(cluster, tmp_path).changes[1:]]
    assert causes == [
        "the leader reported that broker 2 fell behind",
        "a reassignment begins: adding [3], removing [2]",
        "the reassignment is complete; broker 3 caught up with the leader",
        "",
    ]


def test_an_unclean_election_names_what_is_lost(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    change(cluster, topic_id, isr=[1])
    change(cluster, topic_id, leader=-1)
    change(cluster, topic_id, leader=2, isr=[2], leader_recovery_state=1)
    assert "recovers from an unclean election" in history_of(cluster, tmp_path).state
    change(cluster, topic_id, leader_recovery_state=0)
    history = history_of(cluster, tmp_path)
    assert history.changes[-2].cause == "unclean election: broker 2 was not in sync, what only broker 1 had is lost"
    assert history.changes[-1].cause == "the leader has recovered"


def test_a_leader_from_the_eligible_replicas_and_none_at_all(tmp_path: Path) -> None:
    cluster = WrittenCluster(tmp_path, features=WITH_ELR)
    cluster.add_brokers(1, 2, 3)
    topic_id = cluster.create_assigned("orders", [1, 2, 3], min_insync_replicas="2")
    change(cluster, topic_id, leader=-1, isr=[], eligible_leader_replicas=[2], last_known_elr=[1])
    history = history_of(cluster, tmp_path)
    assert history.state.startswith("no leader: only 2 may lead")
    assert "broker 2 is running, and the controller should elect it" in history.state
    assert "broker 1 or 3 is running but may lack records" in history.advice[1]
    change(cluster, topic_id, leader=2, isr=[2], eligible_leader_replicas=[])
    assert "elected from the eligible leader replicas" in history_of(cluster, tmp_path).changes[-1].cause
    change(cluster, topic_id, leader=-1, isr=[], eligible_leader_replicas=[], last_known_elr=[2])
    assert "the last that led was [2]" in history_of(cluster, tmp_path).state
    cluster.write(ClearElrRecord(topic_name="orders"))
    assert "cleared" in history_of(cluster, tmp_path).changes[-1].change
    cluster.native.close()


def test_a_recreated_topic(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    cluster.ask(DeleteTopicsRequest((DeleteTopicState(None, topic_id),)), 6)
    assert history_of(cluster, tmp_path).state == "the topic is deleted"
    cluster.create_assigned("orders", [3])
    history = history_of(cluster, tmp_path)
    assert [change.change.partition(":")[0] for change in history.changes] == [
        "created",
        "deleted, with its topic",
        "created",
    ]
    assert history.state.startswith("broker 3 leads it")


def test_a_cause_may_be_in_a_later_batch_or_long_before() -> None:
    """A controller that fences a broker of many partitions writes several batches, the broker's change last."""
    before = PartitionState(1, (1, 2), (1, 2))
    after = before._replace(leader=2, isr=(2,))
    entry = Entry(50, 40, 3, 1_000, None, b"")

    def cause(*events: BrokerEvent) -> str:
        return cause_of(entry, before, after, BrokerEvents(events))

    assert cause(BrokerEvent(1, "fenced", 90, 60, 3, 1_400)) == "broker 1 was fenced (offset 90)"
    assert cause(BrokerEvent(1, "fenced", 20, 20, 3, 500)) == "broker 1 was fenced (offset 20)"
    for unrelated in (
        BrokerEvent(1, "fenced", 90, 60, 3, 9_000),
        BrokerEvent(1, "fenced", 90, 60, 4, 1_400),
        BrokerEvent(2, "fenced", 41, 40, 3, 1_000),
        BrokerEvent(1, "unfenced", 20, 20, 3, 500),
    ):
        assert "broker 1 was fenced" not in cause(unrelated)


def test_an_added_replica_may_become_the_leader_when_the_reassignment_completes() -> None:
    before = PartitionState(1, (1, 2, 3), (1, 2), adding_replicas=(3,), removing_replicas=(1,))
    after = PartitionState(3, (2, 3), (2, 3))
    assert not is_unclean(before, after)
    assert is_unclean(before, after._replace(is_recovering=True))
    assert is_unclean(before._replace(adding_replicas=()), after)
