"""Reassignments: started, completed, changed, cancelled and listed (KIP-455, KIP-860).

tests/interop/test_replica_answers.py compares the same requests with Kafka's controller.
"""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster import WITH_ELR, Cluster

from klamm._engine.metadata import PartitionInfo
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partition_changes import (
    AlterPartitionRequest,
    BrokerState,
    ProposedPartition,
    ProposedTopic,
)
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


@pytest.fixture
def cluster() -> Cluster:
    """Six brokers, and topic t on the first three."""
    made = Cluster()
    made.add_brokers(1, 2, 3, 4, 5, 6)
    made.create_assigned("t", (1, 2, 3), (2, 3, 1))
    return made


def partition(cluster: Cluster, index: int = 0) -> PartitionInfo:
    topic_id = cluster.image.topic_id("t")
    assert topic_id is not None
    found = cluster.image.partition(topic_id, index)
    assert found is not None
    return found


def reassign(
    cluster: Cluster, replicas: tuple[int, ...] | None, *, index: int = 0, topic: str = "t", is_factor_free: bool = True
) -> ErrorCode:
    """The result for a partition; None cancels. A rejected one changes nothing, and has a message."""
    start = len(cluster.log)
    topics = (ReassignableTopic(topic, (ReassignablePartition(index, replicas),)),)
    answer = cluster.ask(AlterPartitionReassignmentsRequest(topics, allow_replication_factor_change=is_factor_free))
    assert answer.error_code is ErrorCode.NONE
    assert answer.allow_replication_factor_change is is_factor_free
    [(name, [found])] = [(each.name, each.partitions) for each in answer.responses]
    assert (name, found.partition_index) == (topic, index)
    if found.error_code is ErrorCode.NONE:
        assert found.error_message is None
    else:
        assert found.error_message
        assert len(cluster.log) == start
    code: ErrorCode = found.error_code
    return code


def report_isr(cluster: Cluster, *isr: int, index: int = 0) -> ErrorCode:
    """The leader proposes this ISR."""
    now, topic_id = partition(cluster, index), cluster.image.topic_id("t")
    assert topic_id is not None
    proposed = ProposedPartition(index, now.leader_epoch, now.partition_epoch, tuple(map(BrokerState, isr)))
    request = AlterPartitionRequest(now.leader, cluster.epochs[now.leader], (ProposedTopic(topic_id, (proposed,)),))
    code: ErrorCode = cluster.ask(request).topics[0].partitions[0].error_code
    return code


def shape(found: PartitionInfo) -> tuple[list[int], list[int], list[int]]:
    return found.replicas, found.adding_replicas, found.removing_replicas


def test_replicas_are_added_first_and_removed_when_the_new_ones_are_in_sync(cluster: Cluster) -> None:
    assert reassign(cluster, (4, 2, 5)) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([4, 2, 5, 1, 3], [4, 5], [1, 3])
    assert (partition(cluster).leader, partition(cluster).leader_epoch) == (1, 0)
    assert report_isr(cluster, 1, 2, 3, 4) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([4, 2, 5, 1, 3], [4, 5], [1, 3])
    assert report_isr(cluster, 1, 2, 3, 4, 5) is ErrorCode.NEW_LEADER_ELECTED
    now = partition(cluster)
    assert shape(now) == ([4, 2, 5], [], [])
    assert (now.isr, now.leader, now.leader_epoch) == ([2, 4, 5], 4, 1)
    assert len(now.directories) == 3


def test_an_added_replica_gets_its_brokers_only_directory(cluster: Cluster) -> None:
    assert reassign(cluster, (1, 2, 4)) is ErrorCode.NONE
    broker = cluster.image.broker(4)
    assert broker is not None
    assert partition(cluster).directories[2] == broker.log_dirs[0]


def test_replicas_only_removed_or_ordered_otherwise_need_no_wait(cluster: Cluster) -> None:
    assert reassign(cluster, (3, 1)) is ErrorCode.NONE
    now = partition(cluster)
    assert shape(now) == ([3, 1], [], [])
    assert (now.leader, now.leader_epoch) == (1, 1)
    assert reassign(cluster, (1, 3)) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([1, 3], [], [])
    assert partition(cluster).leader_epoch == 1
    start = len(cluster.log)
    assert reassign(cluster, (1, 3)) is ErrorCode.NONE
    assert len(cluster.log) == start


def test_a_partition_that_shrinks_waits_for_all_that_remain(cluster: Cluster) -> None:
    assert report_isr(cluster, 1) is ErrorCode.NONE
    assert reassign(cluster, (2, 3)) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([2, 3, 1], [], [1])
    assert report_isr(cluster, 1, 2) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([2, 3, 1], [], [1])
    assert report_isr(cluster, 1, 2, 3) is ErrorCode.NEW_LEADER_ELECTED
    assert shape(partition(cluster)) == ([2, 3], [], [])


def test_a_partition_that_does_not_shrink_waits_for_the_added_ones_only(cluster: Cluster) -> None:
    assert report_isr(cluster, 1) is ErrorCode.NONE
    assert reassign(cluster, (2, 3, 4)) is ErrorCode.NONE
    assert report_isr(cluster, 1, 4) is ErrorCode.NEW_LEADER_ELECTED
    assert shape(partition(cluster)) == ([2, 3, 4], [], [])
    assert partition(cluster).isr == [4]


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 99), (1, -1)])
def test_replicas_are_different_registered_brokers(cluster: Cluster, replicas: tuple[int, ...]) -> None:
    assert reassign(cluster, replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_fenced_broker_can_be_added(cluster: Cluster) -> None:
    cluster.heartbeat(4, want_fence=True)
    assert reassign(cluster, (1, 2, 4)) is ErrorCode.NONE


def test_unknown_topics_and_partitions(cluster: Cluster) -> None:
    assert reassign(cluster, (1,), topic="nope") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, (1,), index=2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, None, index=-1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_replication_factor_that_may_not_change(cluster: Cluster) -> None:
    assert reassign(cluster, (1, 2), is_factor_free=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, (3, 4, 5), is_factor_free=False) is ErrorCode.NONE
    # While a reassignment is in progress, the factor is that of its target.
    assert reassign(cluster, (3, 4, 5, 1, 2), is_factor_free=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, (3, 4, 6), is_factor_free=False) is ErrorCode.NONE


def test_a_cancelled_reassignment(cluster: Cluster) -> None:
    assert reassign(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(cluster, (1, 4, 5)) is ErrorCode.NONE
    assert report_isr(cluster, 1, 2, 3, 4) is ErrorCode.NONE
    assert reassign(cluster, None) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([1, 2, 3], [], [])
    assert partition(cluster).isr == [1, 2, 3]


def test_a_cancel_that_would_need_an_unclean_election(cluster: Cluster) -> None:
    for topic, is_unclean in (("safe", "false"), ("unsafe", "true")):
        cluster.create_assigned(topic, (1, 2), unclean_leader_election_enable=is_unclean)
        topics = (ReassignableTopic(topic, (ReassignablePartition(0, (3, 4)),)),)
        cluster.ask(AlterPartitionReassignmentsRequest(topics))
        topic_id = cluster.image.topic_id(topic)
        assert topic_id is not None
        proposed = ProposedPartition(0, 0, 1, (BrokerState(1), BrokerState(3)))
        topics_of_1 = (ProposedTopic(topic_id, (proposed,)),)
        cluster.ask(AlterPartitionRequest(1, cluster.epochs[1], topics_of_1))
    cluster.heartbeat(1, want_fence=True)
    assert reassign(cluster, None, topic="safe") is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, None, topic="unsafe") is ErrorCode.NONE
    topic_id = cluster.image.topic_id("unsafe")
    assert topic_id is not None
    now = cluster.image.partition(topic_id, 0)
    assert now is not None
    assert (shape(now), now.isr, now.leader) == (([1, 2], [], []), [2], 2)


def test_a_reassignment_that_is_changed_while_it_runs(cluster: Cluster) -> None:
    assert reassign(cluster, (1, 4)) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([1, 4, 2, 3], [4], [2, 3])
    # As in Kafka, replicas that were added already are not waited for when another one is added.
    assert reassign(cluster, (1, 4, 5)) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([1, 4, 5, 2, 3], [5], [2, 3])
    assert reassign(cluster, None) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([1, 4, 2, 3], [], [])


def test_a_reassignment_that_is_reverted_by_another(cluster: Cluster) -> None:
    """Kafka keeps waiting for the replica that it removes, and removes the one that it was to keep."""
    assert reassign(cluster, (2, 3, 4)) is ErrorCode.NONE
    assert reassign(cluster, (1, 2, 3)) is ErrorCode.NONE
    assert shape(partition(cluster)) == ([1, 2, 3], [], [])
    assert reassign(cluster, (2, 3, 4), index=1) is ErrorCode.NONE
    assert reassign(cluster, (1, 2, 3, 4), index=1) is ErrorCode.NONE
    assert shape(partition(cluster, 1)) == ([1, 2, 3, 4], [4], [])
    assert report_isr(cluster, 2, 1, 3, 4, index=1) is ErrorCode.NONE
    assert shape(partition(cluster, 1)) == ([1, 2, 3, 4], [], [])


def test_a_removed_replica_is_not_eligible_when_it_is_added_again() -> None:
    """Kafka keeps it eligible, so that it may become the leader with an empty log."""
    cluster = Cluster(WITH_ELR)
    cluster.add_brokers(1, 2, 3, 4)
    cluster.create_assigned("t", (1, 2, 3), min_insync_replicas="3")
    report_isr(cluster, 1)
    assert partition(cluster).elr == [2, 3]
    reassign(cluster, (2, 3, 4))
    assert report_isr(cluster, 1, 4) is ErrorCode.NEW_LEADER_ELECTED
    assert (partition(cluster).isr, partition(cluster).elr) == ([4], [2, 3])
    reassign(cluster, (2, 3, 4, 1))
    for broker_id in (2, 3, 4):
        cluster.heartbeat(broker_id, want_fence=True)
    assert (partition(cluster).leader, partition(cluster).elr) == (-1, [2, 3, 4])


def test_each_partition_of_a_request_has_its_own_outcome(cluster: Cluster) -> None:
    start = len(cluster.log)
    wanted = ReassignableTopic(
        "t",
        (
            ReassignablePartition(0, (4, 5)),
            ReassignablePartition(7, (4, 5)),
            ReassignablePartition(1, None),
            ReassignablePartition(0, (1, 2)),
        ),
    )
    nope = ReassignableTopic("nope", ())
    answer = cluster.ask(AlterPartitionReassignmentsRequest((wanted, nope)))
    codes = [[(one.partition_index, one.error_code) for one in each.partitions] for each in answer.responses]
    assert codes == [
        [
            (0, ErrorCode.NONE),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
            (0, ErrorCode.INVALID_REQUEST),
        ],
        [],
    ]
    assert len(cluster.log) == start + 1


def test_a_request_is_one_batch_or_too_large(cluster: Cluster) -> None:
    cluster.create_assigned("wide", *[(1, 2)] * 6_000)
    cluster.create_assigned("wider", *[(1, 2)] * 6_000)
    start = len(cluster.log)
    wanted = tuple(ReassignablePartition(index, (3, 4)) for index in range(6_000))
    topics = (ReassignableTopic("wide", wanted), ReassignableTopic("wider", wanted))
    refused = cluster.ask(AlterPartitionReassignmentsRequest(topics))
    assert refused.error_code is ErrorCode.POLICY_VIOLATION
    assert len(cluster.log) == start
    assert cluster.ask(AlterPartitionReassignmentsRequest(topics[:1])).error_code is ErrorCode.NONE
    assert len(cluster.log) == start + 6_000


def test_a_request_whose_time_is_over(cluster: Cluster) -> None:
    topics = (ReassignableTopic("t", (ReassignablePartition(0, (4,)),)),)
    text = "The request's time was over before its turn came."
    answer = cluster.ask(AlterPartitionReassignmentsRequest(topics, timeout_ms=0))
    code = ErrorCode.REQUEST_TIMED_OUT
    refused = ReassignableTopicResponse("t", (ReassignablePartitionResponse(0, code, text),))
    assert answer == AlterPartitionReassignmentsResponse((refused,), code, text)
    nothing = AlterPartitionReassignmentsResponse(error_message="")
    assert cluster.ask(AlterPartitionReassignmentsRequest((), timeout_ms=0)) == nothing


def test_reassignments_are_listed(cluster: Cluster) -> None:
    def listed(*topics: ListPartitionReassignmentsTopics) -> tuple[OngoingTopicReassignment, ...]:
        answer: ListPartitionReassignmentsResponse = cluster.ask(ListPartitionReassignmentsRequest(topics or None))
        assert answer.error_code is ErrorCode.NONE
        return answer.topics

    assert listed() == ()
    reassign(cluster, (1, 2, 4))
    ongoing = OngoingTopicReassignment("t", (OngoingPartitionReassignment(0, (1, 2, 4, 3), (4,), (3,)),))
    assert listed() == (ongoing,)
    unknown = ListPartitionReassignmentsTopics("nope", (0,))
    assert listed(unknown, ListPartitionReassignmentsTopics("t", (1, 0, 9))) == (ongoing,)
    assert listed(ListPartitionReassignmentsTopics("t", (1,)), ListPartitionReassignmentsTopics("t", ())) == ()
    assert cluster.ask(ListPartitionReassignmentsRequest(())).topics == ()
