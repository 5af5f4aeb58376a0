"""The same random requests about replicas to Apache Kafka 4.3.1's controller and to ours: equal responses and metadata.

The test plays the brokers. Kafka's metadata are read from its controller's log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from klamm._engine.metadata import Image, PartitionInfo
from klamm.metadata.log.history import History
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import directory_assignments as directories
from klamm.protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from klamm.protocol.messages.partition_changes import AlterPartitionRequest, AlterPartitionResponse
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from klamm.protocol.messages.registration import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from klamm.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from klamm.protocol.wire.codec import read, write_request
from tests.interop.apache_kafka import KafkaNode
from tests.interop.test_controller_answers import FEATURES, Wire
from tests.support.foreign import require
from tests.support.replica_life import BROKERS, CAUGHT_UP, ReplicaLife, Translation, register_request
from tests.support.waiting import wait_until
from tests.unit.controller.cluster import Cluster

pytestmark = pytest.mark.timeout(600)

SETTINGS = {
    "broker.session.timeout.ms": "36000000",
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.interval.ms": "36000000",
}
RESPONSES: dict[type, type] = {
    AlterPartitionRequest: AlterPartitionResponse,
    AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
    BrokerHeartbeatRequest: BrokerHeartbeatResponse,
    BrokerRegistrationRequest: BrokerRegistrationResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    CreatePartitionsRequest: CreatePartitionsResponse,
    DeleteTopicsRequest: DeleteTopicsResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
    UnregisterBrokerRequest: UnregisterBrokerResponse,
    ElectLeadersRequest: ElectLeadersResponse,
}
STEPS_PER_LOOK = 40


class Both:
    """Kafka's controller and ours, with the same brokers and topics."""

    def __init__(self, node: KafkaNode, features: dict[str, int]) -> None:
        self.wire = Wire(("127.0.0.1", node.port))
        self.data = node.data
        self.ours = Cluster(features, node_id=1, static=SETTINGS)
        self.translation = Translation(self.ours)
        self.done: list[object] = []
        self.has_deleted_topics = False
        first = register_request(BROKERS[0], BROKERS[0])
        wait_until(lambda: self.theirs(first, 4).error_code is not ErrorCode.NOT_CONTROLLER)
        for broker_id in BROKERS:
            self.ask(register_request(broker_id, broker_id), 4)
            self.beat(broker_id)

    def beat(self, broker_id: int) -> None:
        """Send it twice: Kafka forgets a broker's offset when it replays the record that unfences it."""
        broker = self.ours.image.broker(broker_id)
        assert broker is not None
        for _ in range(2):
            self.ask(BrokerHeartbeatRequest(broker_id, broker.epoch, CAUGHT_UP), 1)

    def take(self, request: Any, version: int) -> None:
        """One random request."""
        if isinstance(request, UnregisterBrokerRequest) and self.has_deleted_topics and self.ours.image.is_elr_enabled:
            return  # Kafka's controller fails when it finds a deleted topic in its index of eligible replicas
        before = self.ours.image
        answer = self.ask(request, version)
        self.delete_where_kafka_counts_on_removed_replicas(before)
        if isinstance(answer, BrokerHeartbeatResponse) and not answer.is_fenced and not request.want_shut_down:
            self.beat(request.broker_id)

    def theirs(self, request: Any, version: int) -> Any:
        request = self.translation.request(request)
        if isinstance(request, AssignReplicasToDirsRequest):
            message = directories.to_wire(request)
            return directories.answer_from_wire(
                request, self.wire.ask(message, directories.DirectoriesResponse, version)
            )
        return self.wire.ask(request, RESPONSES[type(request)], version)

    def ask(self, request: Any, version: int) -> Any:
        theirs = self.theirs(request, version)
        self.has_deleted_topics |= isinstance(request, DeleteTopicsRequest)
        if not isinstance(request, AssignReplicasToDirsRequest):
            request = read(type(request), version, write_request(request, version))
        ours = self.ours.ask(request, version)
        self.done.append((request, version, ours, theirs))
        if isinstance(ours, CreateTopicsResponse):
            for mine, other in zip(ours.topics, theirs.topics, strict=True):
                assert mine.error_code == other.error_code, self.done[-1]
                if mine.error_code is ErrorCode.NONE:
                    self.translation.topic_ids[mine.topic_id] = other.topic_id
        elif isinstance(ours, BrokerRegistrationResponse):
            assert ours.error_code == theirs.error_code, self.done[-5:]
            if ours.error_code is ErrorCode.NONE:
                self.translation.epochs[request.broker_id] = theirs.broker_epoch
        else:
            assert seen(self.translation.answer(ours)) == seen(theirs), self.done[-5:]
        return ours

    def delete_where_kafka_counts_on_removed_replicas(self, before: Image) -> None:
        """Delete topics for which Kafka keeps removed replicas as eligible or last known leaders."""
        for name in removed_from(before, self.ours.image):
            topic_id = self.theirs_image.topic_id(name)
            found = () if topic_id is None else self.theirs_image.partitions(topic_id)
            if any({*each.elr, *each.last_known_elr} - set(each.replicas) for each in found):
                self.ask(DeleteTopicsRequest((DeleteTopicState(name),)), 6)

    @property
    def theirs_image(self) -> Image:
        return History(self.data).state_at("end").image

    def compare_partitions(self) -> None:
        theirs = self.theirs_image
        ours = self.ours.image
        assert brokers(ours) == brokers(theirs), self.done[-STEPS_PER_LOOK:]
        assert ours.topic_names() == theirs.topic_names()
        for name in ours.topic_names():
            assert partitions(ours, name) == partitions(theirs, name), (name, self.done[-STEPS_PER_LOOK:])


def removed_from(before: Image, after: Image) -> Iterator[str]:
    """The topics with a partition that lost a replica."""
    for name in after.topic_names():
        topic_id = after.topic_id(name)
        old, new = before.topic_id(name), () if topic_id is None else after.partitions(topic_id)
        if old == topic_id and old is not None:
            pairs = ((before.partition(old, each.index), each) for each in new)
            if any(set(was.replicas) - set(now.replicas) for was, now in pairs if was is not None):
                yield name


def seen(answer: Any) -> Any:
    """A response without texts, its items sorted."""
    match answer:
        case AlterPartitionReassignmentsResponse():
            return (
                answer.error_code,
                answer.allow_replication_factor_change,
                [
                    (each.name, [(one.partition_index, one.error_code) for one in each.partitions])
                    for each in answer.responses
                ],
            )
        case ListPartitionReassignmentsResponse():
            topics = {each.name: sorted(each.partitions, key=lambda one: one.partition_index) for each in answer.topics}
            return answer.error_code, topics
        case CreatePartitionsResponse():
            return [(each.name, each.error_code) for each in answer.results]
        case DeleteTopicsResponse():
            return [(each.name, each.error_code) for each in answer.responses]
        case IncrementalAlterConfigsResponse():
            return [(each.resource_name, each.error_code) for each in answer.responses]
        case UnregisterBrokerResponse():
            return answer.error_code
        case ElectLeadersResponse():
            results = answer.replica_election_results
            return answer.error_code, {
                each.topic: sorted((one.partition_id, one.error_code) for one in each.partition_result)
                for each in results
            }
        case AssignReplicasToDirsResponse():
            return answer
        case _:
            return replace(answer, throttle_time_ms=0)


def partitions(image: Image, topic: str) -> list[dict[str, object]]:
    topic_id = image.topic_id(topic)
    assert topic_id is not None
    names = [name for name in dir(PartitionInfo) if not name.startswith("_")]
    return [{name: getattr(each, name) for name in names} for each in image.partitions(topic_id)]


def brokers(image: Image) -> dict[int, list[object]]:
    found = {each: image.broker(each) for each in image.broker_ids()}
    names = "fenced", "in_controlled_shutdown", "log_dirs", "cordoned_log_dirs"
    return {each: [getattr(one, name) for name in names] for each, one in found.items()}


@pytest.fixture(scope="module", params=["with ELR", "without ELR"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaNode, dict[str, int]]]:
    require("java", "mvn")
    features = FEATURES if request.param == "with ELR" else {**FEATURES, "eligible.leader.replicas.version": 0}
    node = KafkaNode(tmp_path_factory.mktemp("kafka") / "data", overrides=SETTINGS)
    node.settings |= {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{node.bootstrap}",
        "advertised.listeners": f"CONTROLLER://{node.bootstrap}",
        "controller.quorum.voters": f"1@{node.bootstrap}",
    }
    level = features["eligible.leader.replicas.version"]
    node.format("4L6g3nShT-eMCtK--X86sw", "--feature", f"eligible.leader.replicas.version={level}")
    with node:
        yield node, features


def test_random_requests(kafka: tuple[KafkaNode, dict[str, int]], request: pytest.FixtureRequest) -> None:
    both = Both(*kafka)
    life = ReplicaLife(both.ours, Random(20), may_contradict=False)
    for step in range(1_000):
        both.take(*life.next())
        if step % STEPS_PER_LOOK == 0:
            both.compare_partitions()
    both.compare_partitions()
