"""Controllers and a broker, each in its own process, started from the command line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from klamm.client import ClientError
from klamm.client.peer import PeerConfig, Peers
from klamm.config.rules import checked
from klamm.config.sources import read_file
from klamm.formats.storage import FormatRequest, format_storage, random_cluster_id
from klamm.protocol.messages.cluster import DescribeQuorumRequest, DescribeQuorumResponse, QuorumPartition, QuorumTopic
from tests.support.node_process import VERSIONS, NodeProcess
from tests.support.ports import free_port

BROKER = 1
HOST = "127.0.0.1"


class FileNode(NodeProcess):
    """`klamm start FILE`."""

    def __init__(self, folder: Path, node_id: int, port: int, properties: Mapping[str, str]) -> None:
        super().__init__(folder / str(node_id), port=port)
        self.node_id = node_id
        self.file = folder / f"{node_id}.properties"
        own = {"node.id": str(node_id), "log.dirs": str(self.data)}
        self.file.write_text("".join(f"{key}={value}\n" for key, value in {**properties, **own}.items()))

    def format(self, cluster_id: str) -> None:
        """What `klamm storage format` does."""
        format_storage(checked(read_file(self.file)), FormatRequest(cluster_id))

    def command(self) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "klamm", "start", str(self.file)]


class QuorumProcesses:
    """A broker, 1, and the controllers of a static quorum, from 2 on."""

    def __init__(self, folder: Path, controllers: int = 3) -> None:
        folder.mkdir()
        ports = {node_id: free_port() for node_id in range(2, 2 + controllers)}
        common = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{each}@{HOST}:{port}" for each, port in ports.items()),
            "offsets.topic.replication.factor": "1",
            # A killed broker can restart once its session has expired.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
        }
        self.controllers = {
            each: FileNode(
                folder,
                each,
                port,
                {**common, "process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{port}"},
            )
            for each, port in ports.items()
        }
        port = free_port()
        properties = {**common, "process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{port}"}
        self.broker = FileNode(folder, BROKER, port, properties)

    @property
    def nodes(self) -> list[FileNode]:
        """All nodes; the broker is the last."""
        return [*self.controllers.values(), self.broker]

    def leader_id(self) -> int | None:
        """The active controller, according to the broker."""
        return asyncio.run(self._leader_id())

    async def _leader_id(self) -> int | None:
        client = Peers(PeerConfig("test"))
        request = DescribeQuorumRequest((QuorumTopic("__cluster_metadata", (QuorumPartition(0),)),))
        try:
            answer = await client.ask((HOST, self.broker.port), request, DescribeQuorumResponse, (0, 2), 30_000)
        except ClientError:
            return None
        finally:
            client.close()
        return answer.topics[0].partitions[0].leader_id if answer.topics else None

    def log(self) -> str:
        """The end of the output of all nodes."""
        return "\n".join(f"--- {node.node_id}\n{node.log()}" for node in self.nodes)

    def __enter__(self) -> Self:
        cluster_id = random_cluster_id()
        for node in self.nodes:
            node.format(cluster_id)
        for node in self.nodes[:-1]:
            node.launch()
        self.broker.start(request=VERSIONS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.broker.kill()
        for node in self.controllers.values():
            node.kill()
