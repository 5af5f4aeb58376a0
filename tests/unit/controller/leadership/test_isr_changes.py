"""AlterPartition: each check in Kafka's order, and the effect of a change (`ReplicationControlManager.alterPartition`).

tests/interop/test_replica_answers.py compares the same requests with Kafka's controller.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.cluster import WITH_ELR, Cluster, uuid

from klamm._engine.metadata import PartitionInfo
from klamm.controller.effects import Append, Reply
from klamm.controller.operations.replicas import ALTER_PARTITION
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import PartitionChangeRecord
from klamm.protocol.messages.partition_changes import (
    RECOVERED,
    RECOVERING,
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    ProposedPartition,
    ProposedTopic,
)
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 to 3 have topic t, broker 4 has no replica."""
    made = Cluster()
    made.add_brokers(1, 2, 3, 4)
    made.create_assigned("t", (1, 2, 3), (2, 3, 1), min_insync_replicas="2")
    return made


def topic_id(cluster: Cluster, name: str = "t") -> bytes:
    found = cluster.image.topic_id(name)
    assert found is not None
    return found


def partition(cluster: Cluster, index: int = 0) -> PartitionInfo:
    found = cluster.image.partition(topic_id(cluster), index)
    assert found is not None
    return found


def proposed(cluster: Cluster, isr: tuple[int, ...], index: int = 0, **changed: Any) -> ProposedPartition:
    """A valid proposal for an ISR, except for the given changes."""
    now = partition(cluster, index)
    values: dict[str, Any] = {
        "partition_index": index,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch,
        "new_isr_with_epochs": tuple(BrokerState(each, cluster.epochs.get(each, -1)) for each in isr),
        **changed,
    }
    return ProposedPartition(**values)


def alter(
    cluster: Cluster, *proposals: ProposedPartition, topic: bytes | None = None, sender: int = 1
) -> list[AlteredPartition]:
    topics = (ProposedTopic(topic or topic_id(cluster), proposals),)
    answer = cluster.ask(AlterPartitionRequest(sender, cluster.epochs[sender], topics))
    assert answer.error_code is ErrorCode.NONE
    return list(answer.topics[0].partitions)


def outcome(cluster: Cluster, isr: tuple[int, ...], sender: int = 1, **changed: Any) -> ErrorCode:
    """The code for one proposal; a rejected one changes nothing."""
    start = len(cluster.log)
    (answer,) = alter(cluster, proposed(cluster, isr, **changed), sender=sender)
    if answer.error_code is not ErrorCode.NONE:
        assert answer == AlteredPartition(answer.partition_index, answer.error_code)
        assert len(cluster.log) == start
    return answer.error_code


def test_an_isr_shrinks_and_expands(cluster: Cluster) -> None:
    (shrunk,) = alter(cluster, proposed(cluster, (1,)))
    assert shrunk == AlteredPartition(0, ErrorCode.NONE, 1, 0, (1,), RECOVERED, 1)
    (expanded,) = alter(cluster, proposed(cluster, (1, 3, 2)))
    assert expanded == AlteredPartition(0, ErrorCode.NONE, 1, 0, (1, 3, 2), RECOVERED, 2)
    changes = [each for each in cluster.records() if isinstance(each, PartitionChangeRecord)]
    assert [(each.isr, each.leader) for each in changes] == [((1,), -2), ((1, 3, 2), -2)]


def test_version_2_has_no_broker_epochs(cluster: Cluster) -> None:
    (answer,) = alter(cluster, proposed(cluster, (), new_isr=(1, 2)))
    assert answer.isr == (1, 2)


def test_an_unchanged_isr_is_answered_without_a_record(cluster: Cluster) -> None:
    start = len(cluster.log)
    (answer,) = alter(cluster, proposed(cluster, (1, 2, 3)))
    assert answer == AlteredPartition(0, ErrorCode.NONE, 1, 0, (1, 2, 3), RECOVERED, 0)
    assert len(cluster.log) == start


def test_a_broker_with_another_epoch_is_refused_as_a_whole(cluster: Cluster) -> None:
    topics = (ProposedTopic(topic_id(cluster), (proposed(cluster, (1,)),)),)
    for sender, epoch in ((1, cluster.epochs[1] + 1), (9, 1)):
        answer = cluster.ask(AlterPartitionRequest(sender, epoch, topics))
        assert answer == AlterPartitionResponse(ErrorCode.STALE_BROKER_EPOCH)
        assert cluster.ask(AlterPartitionRequest(sender, epoch, ())) == AlterPartitionResponse()


def test_a_partition_that_does_not_exist(cluster: Cluster) -> None:
    assert outcome(cluster, (1,), partition_index=2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome(cluster, (1,), partition_index=-1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (answer,) = alter(cluster, proposed(cluster, (1,)), topic=uuid(1))
    assert answer == AlteredPartition(0, ErrorCode.UNKNOWN_TOPIC_ID)
    (answer,) = alter(cluster, proposed(cluster, (1,)), topic=bytes(16))
    assert answer == AlteredPartition(0, ErrorCode.UNKNOWN_TOPIC_ID)


def test_epochs(cluster: Cluster) -> None:
    assert outcome(cluster, (1,), leader_epoch=1) is ErrorCode.NOT_CONTROLLER
    assert outcome(cluster, (1,), partition_epoch=1) is ErrorCode.NOT_CONTROLLER
    assert outcome(cluster, (1,), leader_epoch=-1, partition_epoch=1) is ErrorCode.NOT_CONTROLLER
    assert outcome(cluster, (1,), leader_epoch=-1, partition_epoch=-1) is ErrorCode.FENCED_LEADER_EPOCH
    assert outcome(cluster, (1,), partition_epoch=-1) is ErrorCode.INVALID_UPDATE_VERSION
    assert outcome(cluster, (2,), sender=2, leader_epoch=-1) is ErrorCode.FENCED_LEADER_EPOCH
    assert outcome(cluster, (2,), sender=2, partition_epoch=-1) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("isr", [(), (2, 3), (1, 1), (1, 4), (1, 99), (1, -1), (1, 2, 3, 1)])
def test_an_isr_is_a_set_of_replicas_with_the_leader(cluster: Cluster, isr: tuple[int, ...]) -> None:
    assert outcome(cluster, isr) is ErrorCode.INVALID_REQUEST


def test_only_brokers_that_live_can_be_in_sync(cluster: Cluster) -> None:
    alter(cluster, proposed(cluster, (1,)))
    stale = (BrokerState(1), BrokerState(2, cluster.epochs[2] + 1))
    assert outcome(cluster, (), new_isr_with_epochs=stale) is ErrorCode.INELIGIBLE_REPLICA
    assert outcome(cluster, (1, 2)) is ErrorCode.NONE
    cluster.heartbeat(3, want_fence=True)
    assert outcome(cluster, (1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(3)
    assert outcome(cluster, (1, 2, 3)) is ErrorCode.NONE
    assert not cluster.heartbeat(2, want_shut_down=True).should_shut_down
    assert cluster.image.broker(2).in_controlled_shutdown  # type: ignore[union-attr]
    assert outcome(cluster, (1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_recovers_once_and_alone(cluster: Cluster) -> None:
    assert outcome(cluster, (1,), leader_recovery_state=RECOVERING) is ErrorCode.INVALID_REQUEST
    assert outcome(cluster, (1,), leader_recovery_state=7) is ErrorCode.INVALID_REQUEST
    cluster.create_assigned("unclean", (1, 2), unclean_leader_election_enable="true")
    unclean = topic_id(cluster, "unclean")
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(2)
    now = cluster.image.partition(unclean, 0)
    assert now is not None
    assert (now.leader, now.leader_recovery_state) == (2, RECOVERING)

    def propose(isr: tuple[int, ...], state: int) -> AlteredPartition:
        members = tuple(map(BrokerState, isr))
        wanted = ProposedPartition(0, now.leader_epoch, now.partition_epoch, members, leader_recovery_state=state)
        return alter(cluster, wanted, topic=unclean, sender=2)[0]

    cluster.heartbeat(1)
    assert propose((2, 1), RECOVERING).error_code is ErrorCode.INVALID_REQUEST
    assert propose((2,), RECOVERING).partition_epoch == now.partition_epoch
    recovered = propose((2, 1), RECOVERED)
    assert (recovered.isr, recovered.leader_recovery_state) == ((2, 1), RECOVERED)


def test_replicas_that_leave_below_the_minimum_stay_eligible() -> None:
    cluster = Cluster(WITH_ELR)
    cluster.add_brokers(1, 2, 3)
    cluster.create_assigned("t", (1, 2, 3), min_insync_replicas="2")
    alter(cluster, proposed(cluster, (1, 2)))
    assert partition(cluster).elr == []
    alter(cluster, proposed(cluster, (1,)))
    assert (partition(cluster).isr, partition(cluster).elr) == ([1], [2])
    alter(cluster, proposed(cluster, (1, 3)))
    assert (partition(cluster).isr, partition(cluster).elr) == ([1, 3], [])


def test_each_partition_of_a_request_has_its_own_outcome(cluster: Cluster) -> None:
    start = len(cluster.log)
    proposals = [proposed(cluster, (1,)), proposed(cluster, (2,), 1), proposed(cluster, (1,), partition_index=5)]
    codes = [each.error_code for each in alter(cluster, *proposals)]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(cluster.log) == start + 1


def test_a_partition_changes_once_in_a_request(cluster: Cluster) -> None:
    start = len(cluster.log)
    answers = alter(cluster, proposed(cluster, (1, 2)), proposed(cluster, (1, 3)))
    assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert len(cluster.log) == start + 1
    assert partition(cluster).isr == [1, 2]


def test_an_isr_that_completes_a_reassignment(cluster: Cluster) -> None:
    def reassign(*replicas: int) -> None:
        topic = ReassignableTopic("t", (ReassignablePartition(0, replicas),))
        assert cluster.ask(AlterPartitionReassignmentsRequest((topic,))).error_code is ErrorCode.NONE

    reassign(1, 2, 4)
    (answer,) = alter(cluster, proposed(cluster, (1, 2, 3, 4)))
    # Replica 3 is removed, which raises the leader epoch.
    assert answer == AlteredPartition(0, ErrorCode.NONE, 1, 1, (1, 2, 4), RECOVERED, 2)
    assert partition(cluster).replicas == [1, 2, 4]
    reassign(2, 3, 4)
    (answer,) = alter(cluster, proposed(cluster, (1, 2, 4, 3)))
    assert answer == AlteredPartition(0, ErrorCode.NEW_LEADER_ELECTED)
    now = partition(cluster)
    assert (now.leader, now.leader_epoch, now.replicas, now.isr) == (2, 2, [2, 3, 4], [2, 4, 3])


def test_thousands_of_partitions_are_one_batch(cluster: Cluster) -> None:
    cluster.create_assigned("wide", *[(1, 2)] * 3_000)
    wide = topic_id(cluster, "wide")
    proposals = tuple(ProposedPartition(index, 0, 0, (BrokerState(1),)) for index in range(3_000))
    topics = (ProposedTopic(wide, proposals),)
    effects = cluster.controller.on_request(
        cluster.now_ms, "wide", ALTER_PARTITION, AlterPartitionRequest(1, cluster.epochs[1], topics), 3
    )
    assert [type(each) for each in effects] == [Append, Reply]
    assert isinstance(effects[0], Append)
    assert len(effects[0].records) == 3_000
