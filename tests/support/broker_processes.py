"""Nodes of both roles that replicate, each in its own process, in the folder of a `klamm cluster`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from klamm.cli.cluster.cluster_folder import ClusterFolder, NodeFolder
from klamm.formats import meta_properties
from klamm.formats.directories import new_directory_id
from tests.support.node_process import NodeProcess
from tests.support.ports import free_port
from tests.support.proxy import HOST, Proxy


class BrokerProcess(NodeProcess):
    """One node of the cluster folder."""

    def __init__(self, files: NodeFolder) -> None:
        super().__init__(files.path, port=files.config().client_listeners[0].port)
        self.properties = files.properties

    def advertise(self, host: str, port: int) -> None:
        """Advertise this address to clients from the next start on."""
        with self.properties.open("a") as file:
            file.write(f"advertised.listeners=PLAINTEXT://{host}:{port}\n")

    def add_log_dir(self, path: Path) -> None:
        """Add a log directory, formatted like the first one, from the next start on."""
        first = self.data / "data"
        path.mkdir(parents=True, exist_ok=True)
        meta = meta_properties.parse((first / meta_properties.FILE_NAME).read_text())
        another = replace(meta, directory_id=new_directory_id())
        (path / meta_properties.FILE_NAME).write_text(another.render())
        with self.properties.open("a") as file:
            file.write(f"log.dirs={first},{path}\n")

    def command(self) -> list[str]:
        """`klamm start FILE`."""
        return [sys.executable, "-m", "klamm", "start", str(self.properties)]


class ProxiedBroker(BrokerProcess):
    """A node that clients and followers reach through a proxy."""

    def __init__(self, files: NodeFolder) -> None:
        super().__init__(files)
        self.id = files.id
        self.proxy = Proxy(self.port)
        self.advertise(HOST, self.proxy.port)


def created(folder: Path, count: int, config: Mapping[str, str]) -> list[NodeFolder]:
    """Format the folders of `count` nodes, on free ports."""
    cluster = ClusterFolder(folder)
    first = free_port(*(10 * node + role for node in range(count) for role in (0, 1) if node + role))
    cluster.create(count, None, first, config)
    return cluster.nodes()
