"""An operator of the cluster: elects leaders and moves replicas, as an administrative client does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klamm.controller.operations.configs import INCREMENTAL_ALTER_CONFIGS
from klamm.controller.operations.replicas import ALTER_PARTITION_REASSIGNMENTS
from klamm.controller.operations.topics import CREATE_TOPICS, DELETE_TOPICS, ELECT_LEADERS
from klamm.protocol.apis import APIS
from klamm.protocol.messages.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectionType,
    ElectLeadersRequest,
)
from klamm.protocol.resource_types import ResourceType
from klamm.testing.simulator.brokers.controller import Asked, is_of_another_controller
from klamm.testing.simulator.brokers.network import CLIENT, Request

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.scene import Scene

TIMEOUT_US = 1_000_000


class Operator:
    """Sends requests to the controller, and ignores the responses."""

    id = CLIENT

    def __init__(self, scene: Scene, topic: CreatableTopic, broker_ids: Sequence[int]) -> None:
        self._scene, self._topic, self._broker_ids = scene, topic, broker_ids

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """It always lives."""
        return act

    def create(self, topic: CreatableTopic | None = None) -> None:
        """Create the topic, or another one, unless it exists."""
        request = CreateTopicsRequest((self._topic if topic is None else topic,))
        self._ask(Asked(CREATE_TOPICS, request, APIS[CREATE_TOPICS.api_key].versions[1]))

    def recreate(self) -> None:
        """Delete the topic, and create one with the same name."""
        self._scene.say("an operator deletes the topic and creates it again")
        state = DeleteTopicState(self._topic.name)
        version = APIS[DELETE_TOPICS.api_key].versions[1]
        self._ask(Asked(DELETE_TOPICS, DeleteTopicsRequest((state,)), version), self.create)

    def change_min_isr(self) -> None:
        """Set another min.insync.replicas."""
        self.set_min_isr(self._scene.rng.randint(1, len(self._broker_ids)))

    def set_min_isr(self, value: int) -> None:
        """Set min.insync.replicas."""
        self._scene.say(f"an operator sets min.insync.replicas to {value}")
        changed = AlterableConfig("min.insync.replicas", str(value))
        resource = AlterConfigsResource(ResourceType.TOPIC, self._topic.name, (changed,))
        self._ask(Asked(INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest((resource,)), 1))

    def configure_groups(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Set configs of groups."""
        resources = tuple(
            AlterConfigsResource(
                ResourceType.GROUP, group_id, tuple(AlterableConfig(key, value) for key, value in values.items())
            )
            for group_id, values in configs.items()
        )
        self._ask(Asked(INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources), 1))

    def elect(self, election: ElectionType) -> None:
        """Elect the preferred leaders of all partitions, or unclean leaders."""
        self._scene.say(f"an operator elects {election.name.lower()} leaders")
        if election is ElectionType.UNCLEAN:
            self._scene.on_unclean_election_asked()
        self._ask(Asked(ELECT_LEADERS, ElectLeadersRequest(None, election), 2))

    def reassign(self) -> None:
        """Assign a partition to other replicas, or cancel its reassignment."""
        rng = self._scene.rng
        image = self._scene.controller.image
        topic_id = image.topic_id(self._topic.name)
        if topic_id is None:
            return
        index = rng.choice([partition.index for partition in image.partitions(topic_id)])
        replicas = None
        if rng.random() < 0.8:
            replicas = tuple(rng.sample(self._broker_ids, rng.randint(1, len(self._broker_ids))))
        self._scene.say(f"an operator assigns partition {index} to {replicas or 'what it was'}")
        topic = ReassignableTopic(self._topic.name, (ReassignablePartition(index, replicas),))
        self._ask(Asked(ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest((topic,)), 1))

    def _ask(self, asked: Asked, then: Callable[[], None] = lambda: None) -> None:
        """Send a request; what follows it is done after any answer, and without one."""
        controllers = self._scene.controller
        controller = controllers.chosen_by(self.id)

        def give_up() -> None:
            if controllers.chosen_by(self.id) is controller:  # another request has not done so yet
                controllers.on_failed(self.id)

        def answered(answer: Any) -> None:
            if is_of_another_controller(answer):
                give_up()
            then()

        def failed() -> None:
            give_up()
            then()

        request = Request(lambda reply: controller.ask(asked, reply), answered, failed, TIMEOUT_US)
        self._scene.network.call(self, controller, request)
