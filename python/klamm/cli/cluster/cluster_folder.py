"""The folder of a cluster on this machine: for each node its server.properties, data, output and process id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm._engine.quorum import StorageError
from klamm.client import ClientError
from klamm.config import properties, sources
from klamm.config.listeners import check_ports
from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.config.rules import check_supported, checked
from klamm.formats import meta_properties
from klamm.formats.directories import DirectoryLocks, lock_holder, new_directory_id, write_atomically
from klamm.formats.storage import FormatRequest, InitialController, format_storage, random_cluster_id

HOST: Final = "localhost"
DEFAULT_FOLDER: Final = Path("klamm-cluster")
CONTROLLER_LISTENER: Final = "CONTROLLER"
PORTS_PER_NODE: Final = 10
"""Node 1 has the ports 9092 and 9093, node 2 9102 and 9103, and so on."""
PORT_MAX: Final = 65_535
PROPERTIES: Final = "server.properties"
_PREFIX: Final = "node-"
_REPLICAS_MAX: Final = 3


class NodeFolder(NamedTuple):
    """The files of one node."""

    id: int
    path: Path

    @property
    def properties(self) -> Path:
        """Its configuration."""
        return self.path / PROPERTIES

    @property
    def output(self) -> Path:
        """The output of its process."""
        return self.path / "output.log"

    def config(self) -> NodeConfig:
        """Its configuration, checked. Raises ClientError."""
        try:
            return checked(sources.read_file(self.properties))
        except NodeConfigError as error:
            raise ClientError(f"node {self.id}: {error}") from None

    def pid(self) -> int | None:
        """The process that runs the node; None if none does."""
        return lock_holder(self.config().metadata_log_dir)


class ClusterFolder:
    """A folder with nodes. It may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def nodes(self) -> list[NodeFolder]:
        """The nodes, by id."""
        found = [
            NodeFolder(int(path.name.removeprefix(_PREFIX)), path)
            for path in self.path.glob(f"{_PREFIX}*")
            if path.name.removeprefix(_PREFIX).isdecimal() and (path / PROPERTIES).exists()
        ]
        return sorted(found)

    def existing(self) -> list[NodeFolder]:
        """The nodes. Raises ClientError if there are none."""
        nodes = self.nodes()
        if not nodes:
            raise ClientError(f"there is no cluster in {self.path}: `klamm cluster up` creates one")
        return nodes

    def create(self, brokers: int, controllers: int | None, port: int, overrides: Mapping[str, str]) -> None:
        """Write the configuration of every node, and format it. Raises ClientError, and then creates none."""
        planned = plan(self.path, brokers, controllers, port, overrides)
        configs = [_checked(given) for given in planned.values()]
        first = [
            InitialController(config.node_id, HOST, config.controller_listeners[0].port, new_directory_id())
            for config in configs
            if config.is_controller
        ]
        cluster_id = random_cluster_id()
        for config in configs:
            _format(config, FormatRequest(cluster_id, initial_controllers=first))
        for node_id, given in planned.items():
            self._write(node_id, given)

    def add_broker(self) -> NodeFolder:
        """Write and format another broker, configured like the first one. Raises ClientError."""
        nodes = self.existing()
        configs = [node.config() for node in nodes]
        model = next(node for node, config in zip(nodes, configs, strict=True) if config.is_broker)
        node_id = nodes[-1].id + 1
        lowest = min(listener.port for config in configs for listener in config.listeners)
        port = lowest + PORTS_PER_NODE * (node_id - nodes[0].id)
        given = sources.read_file(model.properties) | _of_node(self.path, node_id, "broker", _listeners(broker=port))
        [meta, *_] = meta_properties.load(configs[0].all_dirs).formatted.values()
        _format(_checked(given), FormatRequest(meta.cluster_id))
        return self._write(node_id, given)

    def lock(self) -> DirectoryLocks:
        """Hold the folder while its nodes run. Raises ClientError if another process does."""
        try:
            return DirectoryLocks([self.path])
        except StorageError:
            raise ClientError(
                f"the cluster in {self.path} runs already, under process {self.pid()}: "
                f"`klamm cluster status --data {self.path}` shows it, `klamm cluster down` ends it"
            ) from None

    def pid(self) -> int | None:
        """The process of `klamm cluster up`; None if there is none."""
        return lock_holder(self.path)

    def _write(self, node_id: int, given: Mapping[str, str]) -> NodeFolder:
        """Make the node part of the cluster, which it is from when its configuration is there."""
        node = NodeFolder(node_id, self.path / f"{_PREFIX}{node_id}")
        write_atomically(node.properties, properties.render(given).encode())
        return node


def plan(
    folder: Path, brokers: int, controllers: int | None, port: int, overrides: Mapping[str, str]
) -> dict[int, dict[str, str]]:
    """The keys of every node: of both roles, or brokers 1, 2 ... and then the controllers. Raises ClientError."""
    count = brokers + (controllers or 0)
    if port + PORTS_PER_NODE * (count - 1) + 1 > PORT_MAX:
        raise ClientError(
            f"--port {port} leaves no ports for {count} nodes, each {PORTS_PER_NODE} above the one before"
        )
    ports = {node_id: port + PORTS_PER_NODE * (node_id - 1) for node_id in range(1, count + 1)}
    voters = range(1, brokers + 1) if controllers is None else range(brokers + 1, count + 1)
    replicas = min(brokers, _REPLICAS_MAX)
    common = {
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{ports[voter] + 1}" for voter in voters),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(replicas - 1, 1)),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(replicas - 1, 1)),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(max(replicas - 1, 1)),
        "group.initial.rebalance.delay.ms": "0",
    }
    planned = {}
    for node_id, first in ports.items():
        is_broker, is_controller = node_id <= brokers, node_id in voters
        roles = ["broker"] * is_broker + ["controller"] * is_controller
        listeners = _listeners(broker=first if is_broker else None, controller=first + 1 if is_controller else None)
        planned[node_id] = common | dict(overrides) | _of_node(folder, node_id, ",".join(roles), listeners)
    return planned


def addresses(configs: Sequence[NodeConfig]) -> str:
    """Where clients connect: host:port, with commas between."""
    return ",".join(
        f"{config.client_listeners[0].host}:{config.client_listeners[0].port}" for config in configs if config.is_broker
    )


def _of_node(folder: Path, node_id: int, roles: str, listeners: str) -> dict[str, str]:
    data = (folder / f"{_PREFIX}{node_id}" / "data").absolute()
    return {"process.roles": roles, "node.id": str(node_id), "listeners": listeners, "log.dirs": str(data)}


def _listeners(broker: int | None = None, controller: int | None = None) -> str:
    named = [("PLAINTEXT", broker), (CONTROLLER_LISTENER, controller)]
    return ",".join(f"{name}://{HOST}:{port}" for name, port in named if port is not None)


def _checked(given: Mapping[str, str]) -> NodeConfig:
    try:
        config = checked(given)
        check_supported(config)
        check_ports(config.listeners)
    except NodeConfigError as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(f"{error.strerror}: choose other ports with --port") from None
    return config


def _format(config: NodeConfig, request: FormatRequest) -> None:
    config.metadata_log_dir.mkdir(parents=True, exist_ok=True)
    # Only controllers are formatted with the voters of a dynamic quorum.
    asked = request if config.is_controller else FormatRequest(request.cluster_id)
    try:
        format_storage(config, asked)
    except (StorageError, NodeConfigError) as error:
        raise ClientError(str(error)) from None
