"""Random requests about replicas: rejected ones change nothing, partitions stay valid, reassignments complete.

Invariants of all partitions are checked after every request; a failure prints the seed and the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.support.replica_life import BROKERS, CAUGHT_UP, ReplicaLife, register_request
from tests.unit.controller.cluster import LATEST, WITH_ELR, Cluster

from klamm._engine.metadata import Image, PartitionInfo
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partition_changes import (
    RECOVERED,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    ProposedPartition,
    ProposedTopic,
)
from klamm.protocol.messages.reassignments import AlterPartitionReassignmentsResponse
from klamm.protocol.messages.registration import AssignReplicasToDirsRequest, BrokerHeartbeatRequest
from klamm.protocol.wire.codec import read, write_request

STEPS = 250
KEPT_BY_ERRORS = (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
"""The codes of partitions that may have changed."""
NO_LEADER = -1
SESSION_MS = 9_500
"""After this time without a heartbeat a broker is fenced, and may register again."""
PAUSE_CHANCE = 0.05


def started(features: dict[str, int]) -> Cluster:
    cluster = Cluster(features)
    for broker_id in BROKERS:
        cluster.ask(register_request(broker_id, broker_id))
    return cluster


def beat(cluster: Cluster, broker_id: int) -> None:
    broker = cluster.image.broker(broker_id)
    assert broker is not None
    cluster.ask(BrokerHeartbeatRequest(broker_id, broker.epoch, CAUGHT_UP))


def partitions(image: Image) -> Iterator[tuple[bytes, PartitionInfo]]:
    for name in image.topic_names():
        topic_id = image.topic_id(name)
        assert topic_id is not None
        yield from ((topic_id, each) for each in image.partitions(topic_id))


def check_partition(image: Image, found: PartitionInfo) -> None:
    """Invariants of a partition in any image of a controller."""
    replicas, isr = found.replicas, found.isr
    assert replicas
    assert len(set(replicas)) == len(replicas)
    assert len(found.directories) == len(replicas)
    assert set(isr) <= set(replicas)
    assert len(set(isr)) == len(isr)
    assert not set(isr) & set(found.elr)
    assert isr or image.is_elr_enabled
    assert set(found.adding_replicas) | set(found.removing_replicas) <= set(replicas)
    assert not set(found.adding_replicas) & set(found.removing_replicas)
    assert found.leader_recovery_state == RECOVERED or len(isr) <= 1
    if found.leader != NO_LEADER:
        leader = image.broker(found.leader)
        assert found.leader in isr
        assert leader is not None
        # As in Kafka, a broker that is fenced in its controlled shutdown and keeps running is unfenced, and stays in
        # the ISR.
        assert not leader.fenced


def check_change(before: PartitionInfo, after: PartitionInfo) -> None:
    """A change raises the partition epoch; a new leader or the loss of a replica also raises the leader epoch."""
    differs = any(getattr(before, name) != getattr(after, name) for name in dir(before) if not name.startswith("_"))
    assert (after.partition_epoch > before.partition_epoch) == differs
    assert after.leader_epoch >= before.leader_epoch
    if after.leader != before.leader or not set(before.replicas) <= set(after.replicas):
        assert after.leader_epoch > before.leader_epoch


def changed_codes(answer: Any) -> list[ErrorCode]:
    """The codes of all partitions of a response; the top-level code if it has none."""
    match answer:
        case AlterPartitionResponse():
            return [each.error_code for topic in answer.topics for each in topic.partitions]
        case AlterPartitionReassignmentsResponse():
            return [each.error_code for topic in answer.responses for each in topic.partitions]
        case _:
            return [getattr(answer, "error_code", ErrorCode.NONE)]


def check_answer(image: Image, answer: Any) -> None:
    """An AlterPartition response contains the current state of each partition that it changed."""
    if not isinstance(answer, AlterPartitionResponse):
        return
    shown = ((topic.topic_id, each) for topic in answer.topics for each in topic.partitions)
    for topic_id, altered in ((topic_id, each) for topic_id, each in shown if each.error_code is ErrorCode.NONE):
        now = image.partition(topic_id, altered.partition_index)
        assert now is not None
        assert (now.leader, now.leader_epoch) == (altered.leader_id, altered.leader_epoch)
        assert (tuple(now.isr), now.leader_recovery_state) == (altered.isr, altered.leader_recovery_state)
        assert now.partition_epoch == altered.partition_epoch


def finish(cluster: Cluster) -> None:
    """Without faults: brokers return, and leaders propose all live replicas, until nothing changes."""
    cluster.pass_silently(SESSION_MS)
    for broker_id in BROKERS:
        answer = cluster.ask(register_request(broker_id, 1_000_000 + broker_id))
        assert answer.error_code is ErrorCode.NONE
        beat(cluster, broker_id)
    end = -1
    while end != len(cluster.log):
        end = len(cluster.log)
        for topic_id, found in list(partitions(cluster.image)):
            broker = cluster.image.broker(found.leader)
            if broker is not None:
                members = tuple(map(BrokerState, found.replicas))
                wanted = ProposedPartition(found.index, found.leader_epoch, found.partition_epoch, members)
                cluster.ask(AlterPartitionRequest(found.leader, broker.epoch, (ProposedTopic(topic_id, (wanted,)),)))


@pytest.mark.parametrize("features", [WITH_ELR, LATEST], ids=["with ELR", "without ELR"])
@pytest.mark.parametrize("seed", range(12))
def test_random_requests(seed: int, features: dict[str, int]) -> None:
    cluster = started(features)
    for broker_id in BROKERS:
        beat(cluster, broker_id)
    random = Random(seed)
    life = ReplicaLife(cluster, random, may_contradict=True)
    for step in range(STEPS):
        if random.random() < PAUSE_CHANCE:
            cluster.pass_silently(SESSION_MS // 3)
        request, version = life.next()
        if not isinstance(request, AssignReplicasToDirsRequest):
            request = read(type(request), version, write_request(request, version))
        before, start = cluster.image, len(cluster.log)
        answer = cluster.ask(request, version)
        context = seed, step, request, answer
        if not set(changed_codes(answer)) & set(KEPT_BY_ERRORS):
            assert len(cluster.log) == start, context
        check_answer(cluster.image, answer)
        old = {(topic_id, each.index): each for topic_id, each in partitions(before)}
        for topic_id, found in partitions(cluster.image):
            check_partition(cluster.image, found)
            if (topic_id, found.index) in old:
                check_change(old[topic_id, found.index], found)
    finish(cluster)
    led = [found for _, found in partitions(cluster.image) if found.leader != NO_LEADER]
    assert led, seed
    for found in led:
        assert (found.adding_replicas, found.removing_replicas) == ([], []), (seed, found)
        assert sorted(found.isr) == sorted(found.replicas), (seed, found)
