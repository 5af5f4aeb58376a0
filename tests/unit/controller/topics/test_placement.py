"""Properties of replica placement for any cluster (`StripedReplicaPlacer`)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.cluster import Cluster

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.topics import CreatableTopic

RACKS = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=7)


def cluster_of(brokers: list[tuple[str | None, bool]]) -> Cluster:
    """Brokers by rack and fencing; ids from 0."""
    cluster = Cluster()
    for broker_id, (rack, is_fenced) in enumerate(brokers):
        cluster.register(broker_id, rack=rack)
        if not is_fenced:
            cluster.heartbeat(broker_id)
    return cluster


@settings(max_examples=60, deadline=None)
@given(RACKS, st.integers(1, 5), st.integers(1, 20))
def test_placements_are_valid(brokers: list[tuple[str | None, bool]], factor: int, count: int) -> None:
    cluster = cluster_of(brokers)
    active = {broker_id for broker_id, (_, is_fenced) in enumerate(brokers) if not is_fenced}
    (result,) = cluster.create(CreatableTopic("foo", count, factor))
    if factor > len(brokers) or not active:
        assert result.error_code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    assert result.error_code is ErrorCode.NONE
    racks = {rack for rack, _ in brokers}
    for partition in cluster.image.partitions(result.topic_id):
        assert len(set(partition.replicas)) == len(partition.replicas) == factor
        assert partition.leader == partition.replicas[0]
        assert partition.leader in active
        assert partition.isr == [replica for replica in partition.replicas if replica in active]
        # No rack gets a second replica before each has one.
        assert len({brokers[replica][0] for replica in partition.replicas}) == min(factor, len(racks))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6))
def test_leaders_are_spread_evenly(broker_count: int, rounds: int) -> None:
    cluster = cluster_of([(None, False)] * broker_count)
    (result,) = cluster.create(CreatableTopic("foo", broker_count * rounds, 1))
    leaders = Counter(partition.leader for partition in cluster.image.partitions(result.topic_id))
    assert leaders == dict.fromkeys(range(broker_count), rounds)


def test_a_broker_in_controlled_shutdown_gets_no_new_replica() -> None:
    cluster = cluster_of([(None, False)] * 3)
    cluster.create_assigned("old", [1, 0])
    cluster.heartbeat(1, want_shut_down=True)
    (result,) = cluster.create(CreatableTopic("foo", 30, 2))
    assert {replica for each in cluster.image.partitions(result.topic_id) for replica in each.replicas} == {0, 2}
    assert cluster.create(CreatableTopic("bar", 1, 3))[0].error_code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_broker_with_all_directories_cordoned_gets_no_new_replica() -> None:
    cluster = cluster_of([(None, False)] * 2)
    broker = cluster.image.broker(1)
    assert broker is not None
    cluster.heartbeat(1, cordoned_log_dirs=tuple(broker.log_dirs))
    (result,) = cluster.create(CreatableTopic("foo", 10, 1))
    assert {each.leader for each in cluster.image.partitions(result.topic_id)} == {0}
