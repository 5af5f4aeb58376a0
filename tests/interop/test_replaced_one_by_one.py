"""The nodes of an Apache Kafka 4.3.1 cluster are replaced by klamm on the same directory one by one, and later back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.admin import reassignments
from klamm.admin.client import Client
from klamm.formats.storage import random_cluster_id
from klamm.metadata.log.history import History
from klamm.protocol.topic_partition import TopicPartition
from tests.interop.apache_kafka import KafkaNode, dump, tool
from tests.interop.test_replicas_under_klamm import BOUND_S, Writer, read_all
from tests.support import foreign
from tests.support.node_process import NodeProcess
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(900)

NODES: Final = (1, 2, 3)
TOPIC: Final = "t"
PARTITIONS: Final = 6
ELR: Final = "eligible.leader.replicas.version"


class Node:
    """A node of both roles, whose directory and configuration file klamm and Apache Kafka use in turn."""

    def __init__(self, folder: Path, node_id: int, port: int, settings: dict[str, str]) -> None:
        self.java = KafkaNode(folder / str(node_id))
        self.java.settings = settings | {"node.id": str(node_id), "log.dirs": str(folder / str(node_id))}
        self.java.port = port
        self.klamm = FileNode(folder, node_id, port, settings)
        self._running: KafkaNode | NodeProcess | None = None

    def start(self, kind: KafkaNode | NodeProcess) -> None:
        """Start one of the two systems, and wait until it listens."""
        self._running = kind
        kind.start(timeout_s=BOUND_S)

    def stop(self) -> None:
        """A controlled shutdown."""
        assert self._running is not None
        self._running.stop()

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        if self._running is not None:
            self._running.kill()


class Replaced:
    """Three nodes of both roles, formatted by Apache Kafka."""

    def __init__(self, folder: Path) -> None:
        ports = {each: (free_port(), free_port()) for each in NODES}
        voters = ",".join(f"{each}@{HOST}:{controller}" for each, (_, controller) in ports.items())
        self.nodes: dict[int, Node] = {}
        for each, (port, controller) in ports.items():
            listeners = f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}"
            settings = {
                "process.roles": "broker,controller",
                "listeners": listeners,
                "advertised.listeners": listeners,
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "min.insync.replicas": "2",
                "default.replication.factor": "3",
                "offsets.topic.replication.factor": "3",
                "offsets.topic.num.partitions": "2",
                "group.initial.rebalance.delay.ms": "0",
            }
            self.nodes[each] = Node(folder, each, port, settings)
        cluster_id = random_cluster_id()
        self.bootstrap = ",".join(f"{HOST}:{port}" for port, _ in ports.values())
        for node in self.nodes.values():
            tool("storage", "format", "-t", cluster_id, "-c", str(node.java.write_properties()), "-f", f"{ELR}=1")
        starts = [threading.Thread(target=node.start, args=(node.java,)) for node in self.nodes.values()]
        for thread in starts:
            thread.start()
        for thread in starts:
            thread.join()
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self) -> None:
        """Create the topic once all brokers are registered."""
        wait_until(lambda: len(self.admin.list_topics(timeout=BOUND_S).brokers) == len(NODES), bound_s=BOUND_S)
        new = NewTopic(TOPIC, PARTITIONS, 3)
        self.admin.create_topics([new], request_timeout=BOUND_S)[TOPIC].result(BOUND_S)

    def is_in_sync(self) -> bool:
        """Whether all replicas of every partition, including those of __consumer_offsets, are in sync."""
        try:
            topics = self.admin.list_topics(timeout=10).topics.values()
        except KafkaException:
            return False
        partitions = [each for topic in topics for each in topic.partitions.values()]
        return len(partitions) > PARTITIONS and all(len(each.isrs) == len(NODES) for each in partitions)

    def replace(self, kind: Callable[[Node], KafkaNode | NodeProcess], end: Callable[[Node], None]) -> Iterator[int]:
        """Stop each node in turn, and start the other system on its directory; yields once its replicas are in sync."""
        for each, node in self.nodes.items():
            end(node)
            node.start(kind(node))
            wait_until(self.is_in_sync, bound_s=BOUND_S)
            yield each

    def elect(self, broker: int) -> None:
        """Make the broker the leader of every partition."""
        others = tuple(each for each in NODES if each != broker)
        wanted = {TopicPartition(TOPIC, each): (broker, *others) for each in range(PARTITIONS)}
        with Client(self.bootstrap) as client:
            reassignments.reassign(client, wanted)
        election = "--election-type", "preferred", "--topic", TOPIC
        for partition in range(PARTITIONS):
            at = "--bootstrap-server", self.bootstrap
            tool("leader-election", *at, *election, "--partition", str(partition), check=False)

        def leads() -> bool:
            partitions = self.admin.list_topics(TOPIC, timeout=BOUND_S).topics[TOPIC].partitions
            return {each.leader for each in partitions.values()} == {broker}

        wait_until(leads, bound_s=BOUND_S)

    def batches_of(self, values: set[bytes], broker: int) -> str:
        """Where the broker stores these records, with the producer epochs and sequences of their batches.

        Duplicates within one producer epoch are the broker's fault. A producer with a new epoch sends unacknowledged
        records again.
        """
        found: list[str] = []
        for log in sorted(self.nodes[broker].java.data.glob(f"{TOPIC}-*/*.log")):
            batch = ""
            for line in dump([log], "--print-data-log").splitlines():
                if line.startswith("baseOffset:"):
                    batch = line
                elif line.rpartition("payload: ")[2].encode() in values:
                    found.append(f"{log.parent.name}: {line.strip()} in {batch}")
        return "\n".join(found)

    def close(self) -> None:
        """Kill every process."""
        for node in self.nodes.values():
            node.kill()


class Reader:
    """A group member that commits its offsets; it may receive records again, and misses none."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "log_level": 0,
        }
        self.found: set[bytes] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                self.found.add(value)
        consumer.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Replaced]:
    foreign.require("java", "mvn")
    made = Replaced(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("end", ["stop", pytest.param("kill", marks=pytest.mark.slow)])
def test_no_record_is_lost_or_duplicated(cluster: Replaced, end: str) -> None:
    def end_it(node: Node) -> None:
        node.stop() if end == "stop" else node.kill()

    cluster.create()
    with Reader(cluster.bootstrap) as reader:
        with Writer(cluster.bootstrap, TOPIC) as writer:
            wait_until(lambda: len(writer.written) > 100 and len(reader.found) > 100, bound_s=BOUND_S)
            for kind in (lambda node: node.klamm, lambda node: node.java):
                for _ in cluster.replace(kind, end_it):
                    count = len(writer.written)
                    wait_until(lambda: len(writer.written) > count + 100, bound_s=BOUND_S)  # noqa: B023
                if kind(cluster.nodes[1]) is cluster.nodes[1].klamm:
                    assert History(cluster.nodes[1].klamm.data).state_at("end").image.is_elr_enabled
        assert writer.failed == []
        wait_until(lambda: reader.found >= set(writer.written), bound_s=BOUND_S)
    for leader in NODES:
        cluster.elect(leader)
        found, written = Counter(read_all(cluster.bootstrap, TOPIC, PARTITIONS)), Counter(writer.written)
        lost, doubled = sorted(written - found), sorted(found - written)
        if lost or doubled:
            where = cluster.batches_of({*lost, *doubled}, leader)
            pytest.fail(f"at {leader}, of {written.total()} records, lost {lost}, doubled {doubled}:\n{where}")
