"""Leader elections on request and by timer (KIP-460, `PartitionChangeBuilder`)."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster import Cluster

from klamm.controller.effects import Append
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import PartitionChangeRecord, encode
from klamm.protocol.messages.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from klamm.protocol.messages.topics import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    return cluster


def elect(
    cluster: Cluster, election_type: int, *topics: TopicPartitions, everything: bool = False
) -> ElectLeadersResponse:
    request = ElectLeadersRequest(None if everything else topics, election_type)
    return cluster.ask(request)


def codes(answer: ElectLeadersResponse) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    }


def move_leaders(cluster: Cluster) -> None:
    """Broker 1 loses its leaderships to broker 2, and returns."""
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(1)


def back_in_isr(cluster: Cluster, topic_id: bytes, partition: int) -> None:
    """The leader's AlterPartition after broker 1 has caught up."""
    record = PartitionChangeRecord(partition_id=partition, topic_id=topic_id, isr=[2, 1])
    cluster.carry_out([Append([encode(record, 2)])])


def test_preferred_leaders(cluster: Cluster) -> None:
    topic_id = cluster.create_assigned("foo", [1, 2], [2, 1], [1, 2])
    move_leaders(cluster)
    back_in_isr(cluster, topic_id, 0)
    answer = elect(cluster, ElectionType.PREFERRED, TopicPartitions("foo", (0, 1, 2, 3)), TopicPartitions("bar", (0,)))
    assert answer.error_code is ErrorCode.NONE
    assert codes(answer) == {
        ("foo", 0): ErrorCode.NONE,
        ("foo", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("foo", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("foo", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("bar", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [partition.leader for partition in cluster.image.partitions(topic_id)] == [1, 2, 2]


def test_unclean_leaders_are_only_for_partitions_without_any(cluster: Cluster) -> None:
    topic_id = cluster.create_assigned("foo", [1, 2])
    cluster.create_assigned("bar", [2])
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(2)
    # The ISR of foo-0 is only broker 1, which is down: broker 2 may lack records.
    assert cluster.image.partitions(topic_id)[0].leader == -1
    answer = elect(cluster, ElectionType.UNCLEAN, TopicPartitions("foo", (0,)), TopicPartitions("bar", (0,)))
    assert codes(answer) == {("foo", 0): ErrorCode.NONE, ("bar", 0): ErrorCode.ELECTION_NOT_NEEDED}
    partition = cluster.image.partitions(topic_id)[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, [2], 1)


def test_an_unclean_election_without_any_broker_alive(cluster: Cluster) -> None:
    cluster.create_assigned("foo", [1])
    cluster.heartbeat(1, want_fence=True)
    answer = elect(cluster, ElectionType.UNCLEAN, TopicPartitions("foo", (0,)))
    assert codes(answer) == {("foo", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_an_election_for_all_partitions_omits_those_without_need(cluster: Cluster) -> None:
    topic_id = cluster.create_assigned("foo", [1, 2], [2, 1], [1, 2])
    cluster.create_assigned("bar", [2])
    move_leaders(cluster)
    back_in_isr(cluster, topic_id, 2)
    answer = elect(cluster, ElectionType.PREFERRED, everything=True)
    assert codes(answer) == {("foo", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ("foo", 2): ErrorCode.NONE}
    assert sorted(each.topic for each in answer.replica_election_results) == ["bar", "foo"], "every topic is named"


def test_an_unknown_election_type(cluster: Cluster) -> None:
    cluster.create_assigned("foo", [1])
    answer = elect(cluster, 2, TopicPartitions("foo", (0,)))
    assert answer.error_code is ErrorCode.INVALID_REQUEST
    assert codes(answer) == {("foo", 0): ErrorCode.INVALID_REQUEST}


def test_the_same_partition_twice_is_elected_once(cluster: Cluster) -> None:
    topic_id = cluster.create_assigned("foo", [1, 2])
    move_leaders(cluster)
    back_in_isr(cluster, topic_id, 0)
    start = len(cluster.log)
    answer = elect(cluster, ElectionType.PREFERRED, TopicPartitions("foo", (0, 0)))
    assert codes(answer) == {("foo", 0): ErrorCode.NONE}
    assert len(cluster.log) == start + 1


def test_preferred_leaders_are_elected_periodically() -> None:
    cluster = Cluster(static={"leader.imbalance.check.interval.seconds": "5"})
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2])
    move_leaders(cluster)
    back_in_isr(cluster, topic_id, 0)
    cluster.run_clock(4_900)
    assert cluster.image.imbalanced_partition_count == 1
    cluster.run_clock(200)
    assert cluster.image.imbalanced_partition_count == 0


def test_a_run_that_is_too_long_continues_at_once() -> None:
    cluster = Cluster(static={"leader.imbalance.check.interval.seconds": "1"})
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", *([1, 2] for _ in range(1_500)))
    move_leaders(cluster)
    for partition in range(1_500):
        back_in_isr(cluster, topic_id, partition)
    cluster.run_clock(1_010)
    assert cluster.image.imbalanced_partition_count == 0


def test_no_leader_moves_when_rebalancing_is_disabled() -> None:
    cluster = Cluster(static={"leader.imbalance.check.interval.seconds": "1", "auto.leader.rebalance.enable": "false"})
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2])
    move_leaders(cluster)
    back_in_isr(cluster, topic_id, 0)
    cluster.run_clock(3_000)
    assert cluster.image.imbalanced_partition_count == 1


@pytest.mark.parametrize("allows", [True, False])
def test_periodic_unclean_elections_only_if_the_topic_allows_them(allows: bool) -> None:
    cluster = Cluster(static={"unclean.leader.election.interval.ms": "1000"})
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2])
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(2)
    if allows:
        set_unclean(cluster, "foo")
    cluster.run_clock(1_100)
    assert cluster.image.partitions(topic_id)[0].leader == (2 if allows else -1)


def set_unclean(cluster: Cluster, topic: str) -> None:
    change = AlterConfigsResource(2, topic, (AlterableConfig("unclean.leader.election.enable", "true"),))
    cluster.ask(IncrementalAlterConfigsRequest((change,)))
