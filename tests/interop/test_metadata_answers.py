"""A broker of Apache Kafka and one of klamm in one cluster describe its brokers and partitions in the same way.

The test itself plays the other brokers: in sync, fenced, in a controlled shutdown, or without a directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm._engine.metadata import Image
from klamm.config.rules import checked
from klamm.config.sources import read_file
from klamm.formats.storage import FormatRequest, format_storage, random_cluster_id
from klamm.metadata.log.history import History
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partition_changes import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    ProposedPartition,
    ProposedTopic,
)
from klamm.protocol.messages.registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.interop.apache_kafka import KafkaNode
from tests.interop.peers import Peer, versions
from tests.interop.test_controller_answers import Wire
from tests.interop.test_roles import properties
from tests.support import foreign
from tests.support.node_process import VERSIONS
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode
from tests.support.replica_life import CAUGHT_UP, register_request
from tests.support.waiting import wait_until
from tests.unit.controller.cluster import assigned

pytestmark = pytest.mark.timeout(300)

BOUND_S = 60.0
SETTINGS = {"broker.session.timeout.ms": "3600000", "auto.leader.rebalance.enable": "false"}
PLAYED = (11, 12, 13, 14)
UNKNOWN_TO_BOTH = "nope"


class Mixed:
    """Controller 9 and broker 2 of klamm, broker 1 of Kafka, and brokers that the test plays."""

    def __init__(self, folder: Path) -> None:
        self.cluster_id = random_cluster_id()
        ports = {9: free_port()}
        self.controller = FileNode(folder, 9, ports[9], properties("controller", 9, ports[9], ports) | SETTINGS)
        self.java = KafkaNode(folder / "java")
        self.java.settings = properties("broker", 1, self.java.port, ports) | {"log.dirs": str(self.java.data)}
        port = free_port()
        self.klamm = FileNode(folder, 2, port, properties("broker", 2, port, ports))
        self.controller.format(self.cluster_id)
        self.controller.launch()
        self.java.format(self.cluster_id)
        self.java.start()
        format_storage(checked(read_file(self.klamm.file)), FormatRequest(self.cluster_id))
        self.klamm.start(timeout_s=BOUND_S, request=VERSIONS)
        self.wire = Wire((HOST, ports[9]))
        for broker_id in PLAYED:
            features = register_request(broker_id, broker_id, cluster_id=self.cluster_id)
            answer = self.wire.ask(features, BrokerRegistrationResponse, 4)
            assert answer.error_code is ErrorCode.NONE
            self.beat(broker_id)

    def close(self) -> None:
        self.java.kill()
        self.klamm.kill()
        self.controller.kill()

    @property
    def image(self) -> Image:
        return History(self.controller.data).state_at("end").image

    def epoch(self, broker_id: int) -> int:
        broker = self.image.broker(broker_id)
        assert broker is not None
        return broker.epoch

    def beat(self, broker_id: int, **changed: Any) -> None:
        request = BrokerHeartbeatRequest(broker_id, self.epoch(broker_id), CAUGHT_UP, **changed)
        assert self.wire.ask(request, BrokerHeartbeatResponse, 2).error_code is ErrorCode.NONE

    def create(self, *topics: CreatableTopic) -> None:
        for result in self.wire.ask(CreateTopicsRequest(topics), CreateTopicsResponse, 7).topics:
            assert result.error_code is ErrorCode.NONE, result

    def set_isr(self, topic: str, index: int, *isr: int) -> None:
        image = self.image
        topic_id = image.topic_id(topic)
        assert topic_id is not None
        now = image.partition(topic_id, index)
        assert now is not None
        wanted = ProposedPartition(index, now.leader_epoch, now.partition_epoch, tuple(map(BrokerState, isr)))
        request = AlterPartitionRequest(now.leader, self.epoch(now.leader), (ProposedTopic(topic_id, (wanted,)),))
        [[found]] = [each.partitions for each in self.wire.ask(request, AlterPartitionResponse, 3).topics]
        assert found.error_code is ErrorCode.NONE


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    foreign.require("java", "mvn")
    mixed = Mixed(tmp_path_factory.mktemp("mixed"))
    mixed.create(
        assigned("t", (11, 12, 13), (12, 13, 14), (13, 14, 11), (14, 11, 12), min_insync_replicas="3"),
        assigned("single", (12,), (13,), (14,)),
        assigned("wide", *[(11, 12)] * 30),
    )
    mixed.set_isr("t", 0, 11, 12)
    mixed.set_isr("t", 0, 11)
    mixed.set_isr("t", 2, 13, 11)
    mixed.beat(12, want_fence=True)
    lost = mixed.image.broker(13)
    assert lost is not None
    mixed.beat(13, offline_log_dirs=tuple(lost.log_dirs))
    mixed.beat(14, want_shut_down=True)
    yield mixed
    mixed.close()


def same(cluster: Mixed, key: int, version: int, **fields: Any) -> dict[str, Any]:
    """Both respond alike once both have applied the newest metadata; returns Kafka's response."""
    java, ours = Peer(cluster.java.port), Peer(cluster.klamm.port)

    def answers() -> tuple[Any, Any]:
        return ordered(java.ask(key, version, fields)), ordered(ours.ask(key, version, fields))

    def are_same() -> bool:
        theirs, mine = answers()
        return bool(theirs == mine)

    try:
        wait_until(are_same, 10)
    except TimeoutError:
        theirs, mine = answers()
        assert mine == theirs, (version, fields)
    return java.ask(key, version, fields)


def ordered(answer: Any) -> Any:
    """Topics, partitions and brokers sorted, because Kafka's hash tables are not; each node names itself."""
    if isinstance(answer, dict):
        return {name: ordered(value) for name, value in answer.items() if name != "controller_id"}
    if isinstance(answer, list):
        return sorted(map(ordered, answer), key=str) if answer and isinstance(answer[0], dict) else answer
    return answer


def test_describe_cluster(cluster: Mixed) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        for fenced in (False, True):
            answer = same(cluster, ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=1, include_fenced_brokers=fenced)
            shown = {each["broker_id"]: each.get("is_fenced", False) for each in answer["brokers"]}
            assert (12 in shown) == (fenced and version >= 2)
            assert {1, 2, 11} <= shown.keys()
            assert shown.get(12, True)


def test_metadata(cluster: Mixed) -> None:
    for version in versions(ApiKey.METADATA):
        every = [] if version == 0 else None
        for topics in (every, [{"name": "t"}, {"name": "single"}, {"name": UNKNOWN_TO_BOTH}]):
            same(cluster, ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=False)


def test_describe_topic_partitions(cluster: Mixed) -> None:
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    answer = same(cluster, key, 0, topics=[{"name": "t"}], response_partition_limit=2000)
    eligible = {each["partition_index"]: each["eligible_leader_replicas"] for each in answer["topics"][0]["partitions"]}
    assert any(eligible.values())
    same(cluster, key, 0, topics=[], response_partition_limit=2000)
    same(cluster, key, 0, topics=[{"name": "single"}, {"name": UNKNOWN_TO_BOTH}], response_partition_limit=2000)
    for limit in (1, 7, 30, 0, -1):
        cursor: dict[str, Any] | None = None
        for _ in range(3):
            found = same(cluster, key, 0, topics=[], response_partition_limit=limit, cursor=cursor)
            cursor = found["next_cursor"]
            if cursor is None:
                break
