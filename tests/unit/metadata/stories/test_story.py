"""Why a partition is as it is: every cause that records tell, from a controller that really decided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.controller.cluster import WITH_ELR, uuid
from tests.unit.metadata.written import WrittenCluster

from klamm.metadata import History, Story, tell_story
from klamm.metadata.log.entries import Entry
from klamm.metadata.stories.broker_events import BrokerEvent, BrokerEvents
from klamm.metadata.stories.causes import cause_of, is_unclean
from klamm.metadata.stories.partition_state import PartitionState
from klamm.protocol.generated.metadata_records import ClearElrRecord, PartitionChangeRecord
from klamm.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WrittenCluster]:
    found = WrittenCluster(tmp_path)
    found.lead(1)
    found.add_brokers(1, 2, 3)
    yield found
    found.native.close()


def story(cluster: WrittenCluster, tmp_path: Path, until: str = "end") -> Story:
    cluster.flush()
    return tell_story(History(tmp_path), "orders", 0, until)


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
    moved = story(cluster, tmp_path)
    assert [chapter.what.partition(":")[0] for chapter in moved.chapters[:1]] == ["created"]
    assert "leader 1 -> 2" in moved.chapters[1].what
    assert "broker 1 was fenced" in moved.chapters[1].because
    assert moved.now.startswith("broker 2 leads it")
    for _ in range(12):
        cluster.run_clock(1000)
        cluster.heartbeat(3)
    told = story(cluster, tmp_path)
    assert "leader 2 -> none" in told.chapters[2].what
    assert "broker 2 was fenced" in told.chapters[2].because
    assert "nobody else who is in sync is there" in told.chapters[2].because
    assert told.now.startswith("no leader: only 2 may lead")
    assert "broker 2 is fenced since offset" in told.now
    assert "start broker 2 again" in told.advice[0]
    assert len(told.chapters) == 3, "nothing of the other topic"
    assert story(cluster, tmp_path, str(moved.chapters[1].offset)).now == moved.now
    cluster.add_brokers(2)
    back = story(cluster, tmp_path)
    assert "leader none -> 2" in back.chapters[-1].what
    assert "broker 2 was unfenced" in back.chapters[-1].because


def test_a_controlled_shutdown_and_a_preferred_election(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    cluster.heartbeat(1, want_shut_down=True)
    told = story(cluster, tmp_path)
    assert "leader 1 -> 2" in told.chapters[1].what
    assert "broker 1 began its controlled shutdown" in told.chapters[1].because
    for _ in range(12):
        cluster.run_clock(1000)
        cluster.heartbeat(2)
    cluster.add_brokers(1)
    change(cluster, topic_id, isr=[2, 1])
    change(cluster, topic_id, leader=1)
    told = story(cluster, tmp_path)
    assert [chapter.because for chapter in told.chapters[-2:]] == [
        "broker 1 caught up with the leader",
        "preferred leader election",
    ]


def test_what_the_leader_says_and_reassignments(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    change(cluster, topic_id, isr=[1])
    three, two = [uuid(101), uuid(102), uuid(103)], [uuid(101), uuid(103)]
    change(cluster, topic_id, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[2], directories=three)
    done = {"adding_replicas": [], "removing_replicas": [], "directories": two}
    change(cluster, topic_id, isr=[1, 3], replicas=[1, 3], **done)
    change(cluster, topic_id, leader=1)
    causes = [chapter.because for chapter in story(cluster, tmp_path).chapters[1:]]
    assert causes == [
        "the leader says that broker 2 fell behind",
        "a reassignment begins: adding [3], removing [2]",
        "the reassignment is complete; broker 3 caught up with the leader",
        "",
    ]


def test_an_unclean_election_says_what_is_lost(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    change(cluster, topic_id, isr=[1])
    change(cluster, topic_id, leader=-1)
    change(cluster, topic_id, leader=2, isr=[2], leader_recovery_state=1)
    assert "recovers from an unclean election" in story(cluster, tmp_path).now
    change(cluster, topic_id, leader_recovery_state=0)
    told = story(cluster, tmp_path)
    assert told.chapters[-2].because == "unclean election: broker 2 was not in sync, what only broker 1 had is lost"
    assert told.chapters[-1].because == "the leader has recovered"


def test_a_leader_from_the_eligible_replicas_and_none_at_all(tmp_path: Path) -> None:
    cluster = WrittenCluster(tmp_path, features=WITH_ELR)
    cluster.add_brokers(1, 2, 3)
    topic_id = cluster.create_assigned("orders", [1, 2, 3], min_insync_replicas="2")
    change(cluster, topic_id, leader=-1, isr=[], eligible_leader_replicas=[2], last_known_elr=[1])
    told = story(cluster, tmp_path)
    assert told.now.startswith("no leader: only 2 may lead")
    assert "broker 2 is there, and the controller should elect it" in told.now
    assert "broker 1 or 3 is there but may lack records" in told.advice[1]
    change(cluster, topic_id, leader=2, isr=[2], eligible_leader_replicas=[])
    assert "elected from the eligible leader replicas" in story(cluster, tmp_path).chapters[-1].because
    change(cluster, topic_id, leader=-1, isr=[], eligible_leader_replicas=[], last_known_elr=[2])
    assert "the last that led was [2]" in story(cluster, tmp_path).now
    cluster.write(ClearElrRecord(topic_name="orders"))
    assert "cleared" in story(cluster, tmp_path).chapters[-1].what
    cluster.native.close()


def test_a_topic_that_is_deleted_and_made_again(cluster: WrittenCluster, tmp_path: Path) -> None:
    topic_id = cluster.create_assigned("orders", [1, 2])
    cluster.commit(cluster.controller.on_delete_topics(DeleteTopicsRequest((DeleteTopicState(None, topic_id),)), 6))
    assert story(cluster, tmp_path).now == "the topic is deleted"
    cluster.create_assigned("orders", [3])
    told = story(cluster, tmp_path)
    assert [chapter.what.partition(":")[0] for chapter in told.chapters] == [
        "created",
        "deleted, with its topic",
        "created",
    ]
    assert told.now.startswith("broker 3 leads it")


def test_a_cause_may_stand_in_a_later_batch_or_long_before() -> None:
    """A controller that fences a broker of many partitions needs several batches, its registration's change last."""
    before = PartitionState(1, (1, 2), (1, 2))
    after = before._replace(leader=2, isr=(2,))
    entry = Entry(50, 40, 3, 1_000, None, b"")

    def because(*events: BrokerEvent) -> str:
        return cause_of(entry, before, after, BrokerEvents(events))

    assert because(BrokerEvent(1, "fenced", 90, 60, 3, 1_400)) == "broker 1 was fenced (offset 90)"
    assert because(BrokerEvent(1, "fenced", 20, 20, 3, 500)) == "broker 1 was fenced (offset 20)"
    for unrelated in (
        BrokerEvent(1, "fenced", 90, 60, 3, 9_000),
        BrokerEvent(1, "fenced", 90, 60, 4, 1_400),
        BrokerEvent(2, "fenced", 41, 40, 3, 1_000),
        BrokerEvent(1, "unfenced", 20, 20, 3, 500),
    ):
        assert "broker 1 was fenced" not in because(unrelated)


def test_who_is_added_by_a_reassignment_may_lead_by_the_record_that_completes_it() -> None:
    before = PartitionState(1, (1, 2, 3), (1, 2), adding_replicas=(3,), removing_replicas=(1,))
    after = PartitionState(3, (2, 3), (2, 3))
    assert not is_unclean(before, after)
    assert is_unclean(before, after._replace(is_recovering=True))
    assert is_unclean(before._replace(adding_replicas=()), after)
