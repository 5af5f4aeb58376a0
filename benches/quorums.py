"""Three controllers and a broker, a process each: klamm's, or Apache Kafka 4.3.1's with stock JVM flags."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.interop import apache_kafka
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode

from benches import client
from benches.servers import KAFKA, KAFKA_CLUSTER_ID, STOCK_JVM, Bench, Server

BROKER: Final = 1
CONTROLLERS: Final = (2, 3, 4)
OF_BROKERS: Final = {"offsets.topic.replication.factor": "1", "log.segment.delete.delay.ms": "1000"}


class _Node(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def bootstrap(self) -> str: ...

    def kill(self) -> None: ...


class KlammNode(FileNode):
    """`klamm start FILE`, its modules compiled as a package's are."""

    def __init__(self, folder: Path, node_id: int, port: int, properties: Mapping[str, str]) -> None:
        super().__init__(folder, node_id, port, properties)
        self.environment["PYTHONDONTWRITEBYTECODE"] = ""


class QuorumServer(Server):
    """The broker as a server; what it costs is what all four cost."""

    def __init__(self, kind: str, folder: Path, nodes: Sequence[_Node]) -> None:
        """The broker is the last of the nodes."""
        super().__init__(kind, folder, nodes[-1])  # type: ignore[arg-type]
        self.nodes = nodes

    def cpu_seconds(self) -> float:
        """Processor time of all four since they started."""
        return sum(cpu_seconds(node.pid) for node in self.nodes)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process since it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def fresh(bench: Bench, kind: str) -> Iterator[QuorumServer]:
    """Four processes over empty folders that go away with them."""
    folder = bench.new_folder("quorum")
    ports = {node_id: free_port() for node_id in (*CONTROLLERS, BROKER)}
    nodes: list[_Node] = []
    try:
        start = _start_kafka if kind == KAFKA else _start_klamm
        for node_id, port in ports.items():
            nodes.append(start(folder, node_id, port, properties(node_id, ports)))
        client.until_answered(nodes[-1].bootstrap)
        client.create_when_ready(nodes[-1].bootstrap, client.fresh_name("first"))
        yield QuorumServer(kind, folder, nodes)
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)


def properties(node_id: int, ports: Mapping[int, int]) -> dict[str, str]:
    """The configuration of a node but for its id and its folder."""
    listener = f"{'PLAINTEXT' if node_id == BROKER else 'CONTROLLER'}://{HOST}:{ports[node_id]}"
    return {
        "process.roles": "broker" if node_id == BROKER else "controller",
        "listeners": listener,
        "advertised.listeners": listener,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{each}@{HOST}:{ports[each]}" for each in CONTROLLERS),
        **OF_BROKERS,
    }


def _start_klamm(folder: Path, node_id: int, port: int, settings: Mapping[str, str]) -> _Node:
    node = KlammNode(folder, node_id, port, settings)
    node.format(KAFKA_CLUSTER_ID)
    node.launch()
    return node


def _start_kafka(folder: Path, node_id: int, port: int, settings: Mapping[str, str]) -> _Node:
    node = apache_kafka.KafkaNode(folder / str(node_id), node_id=node_id)
    node.port = port
    node.settings = {**settings, "node.id": str(node_id), "log.dirs": str(node.data)}
    node.format(KAFKA_CLUSTER_ID)
    node.start(120, STOCK_JVM, 0.005)
    return node
