"""Controllers whose voters are in the log (KIP-853), each in its own process, started from the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from klamm.admin.quorum import Quorum, QuorumClient
from klamm.client import ClientError
from klamm.config.rules import checked
from klamm.config.sources import read_file
from klamm.formats.storage import FormatRequest, format_storage, random_cluster_id
from tests.support.node_process import VERSIONS
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode
from tests.support.waiting import wait_until

BROKER = 100


class DynamicQuorum:
    """Controllers from 1 on, and a broker if wanted. The first one is formatted as the only voter; others join.

    `settings` apply to all controllers.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        auto_join: Collection[int] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        folder.mkdir()
        self.cluster_id = random_cluster_id()
        self._has_begun = False
        ports = {node_id: free_port() for node_id in range(1, count + 1)}
        self.servers = ",".join(f"{HOST}:{port}" for port in ports.values())
        self.controllers = {
            each: FileNode(
                folder,
                each,
                port,
                {
                    "process.roles": "controller",
                    "listeners": f"CONTROLLER://{HOST}:{port}",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.bootstrap.servers": self.servers,
                    "controller.quorum.auto.join.enable": str(each in auto_join).lower(),
                    **settings,
                },
            )
            for each, port in ports.items()
        }
        port = free_port()
        self.broker = FileNode(
            folder,
            BROKER,
            port,
            {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://{HOST}:{port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": self.servers,
            },
        )

    def start_broker(self) -> None:
        """Format and start it; returns once it is registered."""
        format_storage(checked(read_file(self.broker.file)), FormatRequest(self.cluster_id))
        self.broker.start(request=VERSIONS)

    def start(self, node_id: int) -> None:
        """Format if necessary, and start."""
        node = self.controllers[node_id]
        if not (node.data / "meta.properties").exists():
            first, self._has_begun = not self._has_begun, True
            request = FormatRequest(self.cluster_id, standalone=first, no_initial_controllers=not first)
            format_storage(checked(read_file(node.file)), request)
        node.start(request=VERSIONS)

    def describe(self) -> Quorum | None:
        """The quorum as its leader describes it; None without a leader or an answer."""
        with contextlib.suppress(ClientError), QuorumClient(self.servers, is_controller=True) as client:
            return client.describe()
        return None

    def voters(self) -> list[int]:
        """The voters' ids; empty when no leader answers."""
        quorum = self.describe()
        return [] if quorum is None else [voter.node_id for voter in quorum.voters]

    def wait_for(self, voters: list[int]) -> Quorum:
        """Wait until one of these is the leader and reports exactly these voters."""
        told: list[Quorum] = []

        def is_led_by_them() -> bool:
            found = self.describe()
            if found is None or found.leader_id not in voters or [one.node_id for one in found.voters] != voters:
                return False
            told.append(found)
            return True

        wait_until(is_led_by_them, bound_s=60)
        return told[0]

    def wait_for_observer(self, node_id: int) -> None:
        """Wait until the leader reports an observer that has caught up once, as a new voter must have."""

        def has_caught_up() -> bool:
            found = self.describe()
            return found is not None and any(
                one.node_id == node_id and one.last_caught_up_ms >= 0 for one in found.observers
            )

        try:
            wait_until(has_caught_up, bound_s=60)
        except TimeoutError:
            raise AssertionError(f"node {node_id} does not catch up: {self.describe()}\n{self.log()}") from None

    def log(self) -> str:
        """The end of the output of all of them."""
        return "\n".join(f"--- {node.node_id}\n{node.log()}" for node in self.controllers.values())

    def __enter__(self) -> Self:
        self.start(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in (self.broker, *self.controllers.values()):
            node.kill()
