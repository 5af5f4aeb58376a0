"""An operator of the cluster: elects leaders and moves replicas, as an administrative client does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from klamm.controller.operations.replicas import ALTER_PARTITION_REASSIGNMENTS
from klamm.controller.operations.topics import ELECT_LEADERS
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.protocol.messages.topics import ElectionType, ElectLeadersRequest
from klamm.testing.simulator.brokers.controller import Asked
from klamm.testing.simulator.brokers.network import CLIENT, Request

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.scene import Scene

TIMEOUT_US = 1_000_000


class Operator:
    """Sends requests to the controller, whose answers decide nothing."""

    id = CLIENT

    def __init__(self, scene: Scene, topic: str, broker_ids: Sequence[int]) -> None:
        self._scene, self._topic, self._broker_ids = scene, topic, broker_ids

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """It always lives."""
        return act

    def elect(self) -> None:
        """Elect the preferred leaders of all partitions, or unclean leaders."""
        is_unclean = self._scene.rng.random() < self._scene.faults.unclean_share
        election = ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED
        self._scene.say(f"an operator elects {election.name.lower()} leaders")
        if is_unclean:
            self._scene.on_unclean_election_asked()
        self._ask(Asked(ELECT_LEADERS, ElectLeadersRequest(None, election), 2))

    def reassign(self) -> None:
        """Assign a partition to other replicas, or cancel its reassignment."""
        rng = self._scene.rng
        image = self._scene.controller.image
        topic_id = image.topic_id(self._topic)
        if topic_id is None:
            return
        index = rng.choice([partition.index for partition in image.partitions(topic_id)])
        replicas = None
        if rng.random() < 0.8:
            replicas = tuple(rng.sample(self._broker_ids, rng.randint(1, len(self._broker_ids))))
        self._scene.say(f"an operator assigns partition {index} to {replicas or 'what it was'}")
        topic = ReassignableTopic(self._topic, (ReassignablePartition(index, replicas),))
        self._ask(Asked(ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest((topic,)), 1))

    def _ask(self, asked: Asked) -> None:
        controller = self._scene.controller

        def ignore(answer: Any) -> None:
            pass

        request = Request(lambda reply: controller.ask(asked, reply), ignore, lambda: None, TIMEOUT_US)
        self._scene.network.call(self, controller, request)
