"""Brokers of klamm and Apache Kafka 4.3.1 lead and follow the same partitions, while brokers of both are killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from klamm._engine.metadata import PartitionInfo
from klamm.formats.storage import random_cluster_id
from klamm.metadata.log.history import History
from tests.interop.apache_kafka import KafkaNode, Tools
from tests.interop.applications.replica_verification import ReplicaVerification
from tests.interop.test_replicas_under_klamm import BOUND_S, Writer, read_all
from tests.interop.test_roles import properties
from tests.support import foreign
from tests.support.ports import free_port
from tests.support.quorum_processes import FileNode
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

CONTROLLER = 11
KLAMM = (1, 2)
JAVA = 3
BROKERS = (*KLAMM, JAVA)
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}


class MixedBrokers:
    """A controller of klamm, two brokers of klamm and one of Apache Kafka."""

    def __init__(self, folder: Path, tools: Tools) -> None:
        self.tools = tools
        cluster_id = random_cluster_id()
        ports = {CONTROLLER: free_port()}
        own = properties("controller", CONTROLLER, ports[CONTROLLER], ports) | SETTINGS
        self.controller = FileNode(folder, CONTROLLER, ports[CONTROLLER], own)
        self.klamm = {
            each: FileNode(folder, each, port, properties("broker", each, port, ports) | SETTINGS)
            for each, port in ((each, free_port()) for each in KLAMM)
        }
        self.java = KafkaNode(folder / "java")
        self.java.settings = (
            properties("broker", JAVA, self.java.port, ports) | SETTINGS | {"log.dirs": str(self.java.data)}
        )
        for node in (self.controller, *self.klamm.values()):
            node.format(cluster_id)
            node.launch()
        self.java.format(cluster_id)
        self.java.start()
        addresses = [f"127.0.0.1:{node.port}" for node in self.klamm.values()]
        self.bootstrap = ",".join([*addresses, self.java.bootstrap])
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wait_until(lambda: len(self.admin.list_topics(timeout=BOUND_S).brokers) == len(BROKERS), bound_s=BOUND_S)

    def close(self) -> None:
        self.java.kill()
        for node in (*self.klamm.values(), self.controller):
            node.kill()

    def kill(self, broker: int) -> None:
        """Kill a broker's process."""
        (self.java if broker == JAVA else self.klamm[broker]).kill()

    def start(self, broker: int) -> None:
        """Restart it on its data."""
        if broker == JAVA:
            self.java.start()
        else:
            self.klamm[broker].launch()

    def create(self, topic: str) -> None:
        """Create a topic of three partitions, each led by another broker."""
        assignment = [list(BROKERS[at:] + BROKERS[:at]) for at in range(len(BROKERS))]
        new = NewTopic(topic, len(BROKERS), replica_assignment=assignment)
        try:
            self.admin.create_topics([new], request_timeout=BOUND_S)[topic].result(BOUND_S)
        except KafkaException as error:  # the client repeated a request after its connection was closed
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """The partitions in the controller's log."""
        image = History(self.controller.data).state_at("end").image
        topic_id = image.topic_id(topic)
        return [] if topic_id is None else image.partitions(topic_id)

    def until_isr(self, topic: str, isr: Sequence[int]) -> None:
        """Wait until each partition has this ISR."""

        def is_there() -> bool:
            found = self.partitions(topic)
            return bool(found) and all(sorted(each.isr) == sorted(isr) for each in found)

        wait_until(is_there, bound_s=BOUND_S)

    def elect(self, topic: str, broker: int) -> None:
        """Make `broker` the leader of each partition: reassign so that it is preferred, then elect it."""
        for index in range(len(BROKERS)):
            first = [broker, *(each for each in BROKERS if each != broker)]
            plan = f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":{index},"replicas":{first}}}]}}'
            file = self.controller.data.parent / f"plan-{topic}-{index}.json"
            file.write_text(plan)
            at = "--bootstrap-server", self.bootstrap
            self.tools("reassign-partitions", *at, "--reassignment-json-file", str(file), "--execute")
            wait_until(lambda: self.partitions(topic)[index].replicas == first, bound_s=BOUND_S)  # noqa: B023
            if self.partitions(topic)[index].leader != broker:
                election = "--election-type", "preferred", "--topic", topic, "--partition", str(index)
                self.tools("leader-election", *at, *election)
        wait_until(lambda: {each.leader for each in self.partitions(topic)} == {broker}, bound_s=BOUND_S)


@pytest.fixture
def brokers(tools: Tools, tmp_path: Path) -> Iterator[MixedBrokers]:
    foreign.require("java", "mvn")
    made = MixedBrokers(tmp_path, tools)
    try:
        yield made
    finally:
        made.close()


def test_kills_lose_and_duplicate_no_records(brokers: MixedBrokers) -> None:
    brokers.create("t")
    brokers.until_isr("t", BROKERS)
    with Writer(brokers.bootstrap, "t") as writer:
        for killed in (JAVA, *KLAMM):
            count = len(writer.written)
            wait_until(lambda: len(writer.written) > count + 100, bound_s=BOUND_S)  # noqa: B023
            brokers.kill(killed)
            rest = [each for each in BROKERS if each != killed]
            brokers.until_isr("t", rest)
            assert {each.leader for each in brokers.partitions("t")} <= set(rest)
            count = len(writer.written)
            wait_until(lambda: len(writer.written) > count + 100, bound_s=BOUND_S)  # noqa: B023
            brokers.start(killed)
            brokers.until_isr("t", BROKERS)
    assert writer.failed == []
    # Each leader has the same records.
    for leader in BROKERS:
        brokers.elect("t", leader)
        assert sorted(read_all(brokers.bootstrap, "t", 3)) == sorted(writer.written), f"lost or doubled at {leader}"


def test_the_tool_that_compares_replicas_finds_no_difference(brokers: MixedBrokers, tmp_path: Path) -> None:
    brokers.create("t")
    brokers.until_isr("t", BROKERS)
    with Writer(brokers.bootstrap, "t") as writer:
        wait_until(lambda: len(writer.written) > 1000, bound_s=BOUND_S)
    assert writer.failed == []
    logs = {each: sorted(p.read_bytes() for p in data.glob("t-*/*.log")) for each, data in data_of(brokers).items()}
    assert logs[1] == logs[2] == logs[JAVA], "the same batches, byte for byte, on each broker"
    verification = ReplicaVerification(tmp_path, brokers.bootstrap, "t")
    verification.start()
    try:
        # It has compared everything when no replica lags any more.
        wait_until(lambda: 0 in verification.reports(), verification.log, bound_s=BOUND_S)
    finally:
        verification.kill()
    assert verification.differences() == [], verification.log()


def data_of(brokers: MixedBrokers) -> dict[int, Path]:
    """The log directory of each broker."""
    return {each: node.data for each, node in brokers.klamm.items()} | {JAVA: brokers.java.data}
