"""Clusters of processes, klamm's or Apache Kafka 4.3.1's with stock JVM flags.

A quorum is three controllers and a broker; replicated brokers are three nodes, each a broker and a controller.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from tests.interop import apache_kafka
from tests.support.node_process import VERSIONS
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode

from benches import client
from benches.servers import BOTH, KAFKA, KAFKA_CLUSTER_ID, STOCK_JVM, Bench, Server, cpu_seconds, flushing, resident_mb

QUORUM: Final = {2: ("controller",), 3: ("controller",), 4: ("controller",), 1: ("broker",)}
"""The roles of each node. The last one is the broker for the clients."""
REPLICATED: Final = dict.fromkeys((3, 2, 1), ("broker", "controller"))
OF_REPLICATED: Final = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}

Roles = Mapping[int, tuple[str, ...]]


class _Node(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class KlammNode(FileNode):
    """`klamm start FILE`, with compiled modules as in an installed package."""

    def __init__(self, folder: Path, node_id: int, port: int, properties: Mapping[str, str]) -> None:
        super().__init__(folder, node_id, port, properties)
        self.environment["PYTHONDONTWRITEBYTECODE"] = ""

    def start(self, timeout_s: float = 120, poll_s: float = 0.001, request: bytes = VERSIONS) -> None:
        """Start, and wait until ApiVersions is answered."""
        super().start(timeout_s, poll_s, request)


class _KafkaNode(apache_kafka.KafkaNode):
    def start(self, timeout_s: float = 120, jvm: object = None, poll_s: float = 0.005) -> None:
        """Start with stock JVM flags, and wait until it listens."""
        super().start(timeout_s, STOCK_JVM, poll_s)


class ClusterServer(Server):
    """The last node as a server; its resource usage is that of all nodes."""

    def __init__(self, kind: str, folder: Path, nodes: Sequence[_Node]) -> None:
        super().__init__(kind, folder, nodes[-1])  # type: ignore[arg-type]
        self.nodes = nodes

    @property
    def leaders(self) -> list[str]:
        """Host and port of each broker by id, if every node is a broker."""
        return [node.bootstrap for node in reversed(self.nodes)]

    def cpu_seconds(self) -> float:
        """Processor time of all nodes since they started."""
        return sum(cpu_seconds(node.pid) for node in self.nodes)

    def resident_mb_of_all(self) -> float:
        """Resident memory of all nodes."""
        return sum(resident_mb(node.pid) for node in self.nodes)


@contextlib.contextmanager
def quorum(bench: Bench, kind: str) -> Iterator[ClusterServer]:
    """Three controllers and a broker on empty folders that are removed at the end."""
    with _started(bench, kind, QUORUM, {**BOTH, "offsets.topic.replication.factor": "1"}) as server:
        yield server


@contextlib.contextmanager
def replicated(bench: Bench, kind: str, overrides: Mapping[str, str] | None = None) -> Iterator[ClusterServer]:
    """Three nodes of both roles on empty folders that are removed at the end; node 1 is the last of them."""
    durability = {} if kind == KAFKA else flushing(kind)
    with _started(bench, kind, REPLICATED, {**BOTH, **OF_REPLICATED, **durability, **(overrides or {})}) as server:
        yield server


@contextlib.contextmanager
def _started(bench: Bench, kind: str, roles: Roles, settings: Mapping[str, str]) -> Iterator[ClusterServer]:
    folder = bench.new_folder("cluster")
    ports = {(node_id, role): free_port() for node_id, own in roles.items() for role in own}
    nodes: list[_Node] = []
    try:
        make = _kafka if kind == KAFKA else _klamm
        for node_id, own in roles.items():
            port = ports.get((node_id, "broker")) or ports[node_id, "controller"]
            nodes.append(make(folder, node_id, port, {**_roles(node_id, own, ports), **settings}))
        # Start them together: a broker of Apache Kafka does not listen before there is an active controller.
        with ThreadPoolExecutor(len(nodes)) as pool:
            for started in [pool.submit(node.start) for node in nodes]:
                started.result()
        for node, own in zip(nodes, roles.values(), strict=True):
            if "broker" in own:
                client.until_answered(node.bootstrap)
        brokers = sum("broker" in own for own in roles.values())
        client.create_when_ready(nodes[-1].bootstrap, client.fresh_name("first"), brokers)
        yield ClusterServer(kind, folder, nodes)
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _roles(node_id: int, own: tuple[str, ...], ports: Mapping[tuple[int, str], int]) -> dict[str, str]:
    """The configuration of a node's roles, listeners and controllers."""
    names = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
    listeners = ",".join(f"{names[role]}://{HOST}:{ports[node_id, role]}" for role in own)
    voters = ",".join(f"{each}@{HOST}:{port}" for (each, role), port in ports.items() if role == "controller")
    return {
        "process.roles": ",".join(own),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
    }


def _klamm(folder: Path, node_id: int, port: int, settings: Mapping[str, str]) -> _Node:
    node = KlammNode(folder, node_id, port, settings)
    node.format(KAFKA_CLUSTER_ID)
    return node


def _kafka(folder: Path, node_id: int, port: int, settings: Mapping[str, str]) -> _Node:
    node = _KafkaNode(folder / str(node_id), node_id=node_id)
    node.port = port
    node.settings = {**settings, "node.id": str(node_id), "log.dirs": str(node.data)}
    node.format(KAFKA_CLUSTER_ID)
    return node
