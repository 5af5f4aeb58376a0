"""A quorum of controllers of klamm and of Apache Kafka, each in its own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop import apache_kafka
from tests.support.controller_processes import Quorum

# The controller with the short timeout campaigns before the others.
EAGER = {"controller.quorum.election.timeout.ms": "200"}
PATIENT = {"controller.quorum.election.timeout.ms": "20000"}
EARLY_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


class MixedQuorum(Quorum):
    """Controllers, some of which are Apache Kafka's; `overrides` are settings of single controllers."""

    def __init__(
        self,
        folder: Path,
        java: Sequence[int],
        overrides: Mapping[int, Mapping[str, str]] | None = None,
        size: int = 3,
    ) -> None:
        super().__init__(folder, size)
        self.java: dict[int, apache_kafka.KafkaNode] = {}
        for node_id, controller in self.controllers.items():
            controller.settings |= (overrides or {}).get(node_id, {})
            controller.format(self.cluster_id)
        self.run_by_java(java)

    def run_by_java(self, node_ids: Sequence[int]) -> None:
        """From their next start on, these run Apache Kafka on their folders, the others klamm."""
        self.java = {node_id: self._java(node_id) for node_id in node_ids}

    def _java(self, node_id: int) -> apache_kafka.KafkaNode:
        controller = self.controllers[node_id]
        node = apache_kafka.KafkaNode(controller.data, node_id=node_id)
        node.port = controller.port
        node.settings = controller.settings | {"advertised.listeners": controller.settings["listeners"]}
        return node

    def launch(self, node_id: int) -> None:
        """Start, and wait until it listens."""
        (self.java.get(node_id) or self.controllers[node_id]).start()

    def kill(self, node_id: int) -> None:
        """Kill the process, as in a crash."""
        (self.java.get(node_id) or self.controllers[node_id]).kill()

    def stop(self, node_id: int) -> None:
        """Stop by a controlled shutdown."""
        (self.java.get(node_id) or self.controllers[node_id]).stop()

    def others(self, node_id: int) -> list[int]:
        """All but one."""
        return [other for other in self.controllers if other != node_id]

    def close(self) -> None:
        """Kill all processes."""
        for node_id in self.controllers:
            self.kill(node_id)
