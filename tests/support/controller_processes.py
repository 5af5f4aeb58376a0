"""A quorum of klamm controllers, each in its own process, with the voters in their configuration files."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.config import sources
from klamm.formats import storage
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
    QuorumPartitionData,
    QuorumTopic,
)
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.node_process import VERSIONS, NodeProcess
from tests.support.ports import free_port

CLIENT_METRICS = 16
RETRIED = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
BOUND_S = 60.0


def write(connection: Connection, name: str, value: int) -> bool:
    """Set a value; True: acknowledged; False: refused. Raises ClientError when the outcome is unknown."""
    config = AlterableConfig("interval.ms", str(value))
    request = IncrementalAlterConfigsRequest((AlterConfigsResource(CLIENT_METRICS, name, (config,)),))
    [answer] = connection.ask(request, IncrementalAlterConfigsResponse, 1).responses
    assert answer.error_code in (ErrorCode.NONE, *RETRIED), answer
    return answer.error_code is ErrorCode.NONE


class Controller(NodeProcess):
    """A node that is only a controller, `klamm start FILE`; `port` is that of its controller listener."""

    def __init__(self, data: Path, node_id: int, voters: str, port: int, overrides: Mapping[str, str]) -> None:
        super().__init__(data, port=port)
        self.id = node_id
        self.properties = data.parent / f"{data.name}.properties"
        self.settings = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": voters,
            "log.dirs": str(data),
            **overrides,
        }

    def become_dynamic(self, servers: str) -> None:
        """Find the quorum by `servers`, with the voters in its log (KIP-853); the formatted directory is deleted."""
        self.settings.pop("controller.quorum.voters", None)
        self.settings["controller.quorum.bootstrap.servers"] = servers
        shutil.rmtree(self.data, ignore_errors=True)
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def format(self, cluster_id: str, *, no_initial_controllers: bool = False) -> None:
        """Format its directory again if it was formatted before."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        request = storage.FormatRequest(cluster_id, no_initial_controllers=no_initial_controllers)
        storage.format_storage(sources.load(file=self.properties), request)

    def command(self) -> Sequence[str]:
        """The command line."""
        return [sys.executable, "-m", "klamm", "start", str(self.properties)]

    def start(self, timeout_s: float = 30, poll_s: float = 0.02, request: bytes = VERSIONS) -> None:
        """Start, and wait until it answers; it may need other controllers before there is a leader."""
        super().start(timeout_s, poll_s, request)

    def ask_quorum(self) -> QuorumPartitionData | None:
        """Its DescribeQuorum response; None when it is not the leader or does not answer."""
        topics = (QuorumTopic("__cluster_metadata", (QuorumPartition(0),)),)
        with contextlib.suppress(ClientError), Connection("127.0.0.1", self.port, 5) as connection:
            answer = connection.ask(DescribeQuorumRequest(topics), DescribeQuorumResponse, 2)
            if answer.error_code is ErrorCode.NONE and answer.topics[0].partitions[0].error_code is ErrorCode.NONE:
                return answer.topics[0].partitions[0]
        return None

    def write(self, name: str, value: int) -> bool:
        """Set a value in the metadata; see `write`."""
        with Connection("127.0.0.1", self.port, 10) as connection:
            return write(connection, name, value)

    def read(self, names: Sequence[str]) -> dict[str, int | None]:
        """The values that this node has committed."""
        resources = tuple(DescribeConfigsResource(CLIENT_METRICS, name) for name in names)
        with Connection("127.0.0.1", self.port, 10) as connection:
            found = connection.ask(DescribeConfigsRequest(resources), DescribeConfigsResponse, 4).results
        values = {}
        for result in found:
            assert result.error_code is ErrorCode.NONE, result
            own = [one.value for one in result.configs if one.name == "interval.ms" and one.config_source == 7]
            values[result.resource_name] = int(own[0]) if own and own[0] else None
        return values


class Quorum:
    """Controllers by id, and their leader."""

    def __init__(self, folder: Path, size: int = 3, overrides: Mapping[str, str] | None = None) -> None:
        ports = {node_id: free_port() for node_id in range(1, size + 1)}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
        self.controllers = {
            node_id: Controller(folder / f"c{node_id}", node_id, voters, port, overrides or {})
            for node_id, port in ports.items()
        }
        self.cluster_id = storage.random_cluster_id()
        for controller in self.controllers.values():
            controller.format(self.cluster_id)

    def leader(self, among: Sequence[int] = ()) -> tuple[Controller, QuorumPartitionData]:
        """Wait for an active controller; return it and its DescribeQuorum response."""
        asked = [self.controllers[node_id] for node_id in among or self.controllers]
        deadline = time.monotonic() + BOUND_S
        while time.monotonic() < deadline:
            found = [(one, told) for one in asked if (told := one.ask_quorum()) is not None]
            if found:
                return max(found, key=lambda pair: pair[1].leader_epoch)
            time.sleep(0.01)
        raise AssertionError("no controller is the leader:\n" + "\n".join(one.log() for one in asked))

    def write(self, name: str, value: int, among: Sequence[int] = ()) -> int:
        """Set a value on one controller after the other until one acknowledges it; return its id."""
        deadline = time.monotonic() + BOUND_S
        while time.monotonic() < deadline:
            for node_id in among or self.controllers:
                with contextlib.suppress(ClientError):
                    if self.controllers[node_id].write(name, value):
                        return node_id
        raise AssertionError(f"{name}={value} was not acknowledged:\n" + "\n".join(self.logs()))

    def wait_for(self, node_id: int, values: Mapping[str, int]) -> None:
        """Wait until that controller has committed these values."""
        deadline = time.monotonic() + BOUND_S
        found: Mapping[str, int | None] = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(ClientError):
                found = self.controllers[node_id].read(list(values))
                if found == values:
                    return
            time.sleep(0.01)
        raise AssertionError(f"controller {node_id} has {found}, not {values}:\n" + "\n".join(self.logs()))

    def logs(self) -> list[str]:
        """The output of all of them."""
        return [one.log() for one in self.controllers.values()]


@contextlib.contextmanager
def running(folder: Path, size: int = 3, overrides: Mapping[str, str] | None = None) -> Iterator[Quorum]:
    """A running quorum."""
    quorum = Quorum(folder, size, overrides)
    try:
        for controller in quorum.controllers.values():
            controller.launch()
        yield quorum
    finally:
        for controller in quorum.controllers.values():
            controller.kill()
