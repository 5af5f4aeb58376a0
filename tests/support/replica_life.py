"""Random requests about replicas to a controller: ISR changes, reassignments, elections, topics, brokers, directories.

Most of them are valid for the current state; the others have one invalid part. A request is made for one controller;
`Translation` makes the same request for another, with its topic ids and broker epochs.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from klamm._engine.metadata import BrokerInfo, Image, PartitionInfo
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.partition_changes import (
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    ProposedPartition,
    ProposedTopic,
)
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.protocol.messages.registration import (
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    UnregisterBrokerRequest,
)
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    TopicPartitions,
)
from klamm.protocol.resource_types import ResourceType
from tests.unit.controller.cluster import Cluster, registration, topic_configs, uuid

BROKERS = (11, 12, 13, 14, 15)
UNKNOWN_BROKER = 99
TOPICS_MIN = 3
TOPICS_MAX = 12
CAUGHT_UP = 1 << 40
"""An offset that every broker reports: none of them lags behind the metadata."""


def register_request(broker_id: int, incarnation: int, **changed: Any) -> BrokerRegistrationRequest:
    """Every other broker has two log directories."""
    dirs = tuple(uuid(1_000 * broker_id + at) for at in range(1 + broker_id % 2))
    return registration(broker_id, incarnation, log_dirs=dirs, **changed)


class ReplicaLife:
    """Generates the next request for a cluster, as (request, version)."""

    def __init__(self, cluster: Cluster, random: Random, *, may_contradict: bool) -> None:
        """`may_contradict`: also generate requests for which klamm deliberately decides otherwise than Kafka."""
        self._cluster, self._random, self._may_contradict = cluster, random, may_contradict
        self._topics = 0
        self._incarnations = 1_000

    @property
    def _image(self) -> Image:
        return self._cluster.image

    def next(self) -> tuple[Any, int]:
        """The next request; the first ones create topics."""
        if self._image.topic_count < TOPICS_MIN:
            return self._create()
        kinds = {
            self._alter_partition: 50,
            self._heartbeat: 16,
            self._reassign: 16,
            self._list: 3,
            self._elect: 5,
            self._register: 3,
            self._create: 2,
            self._grow: 2,
            self._assign_directories: 3,
            self._configure: 2,
            self._unregister: 0.3,
            self._delete: 0.5 if self._image.topic_count < TOPICS_MAX else 10,
        }
        (kind,) = self._random.choices(list(kinds), list(kinds.values()))
        made: tuple[Any, int] = kind()
        return made

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    # Topics

    def _create(self) -> tuple[CreateTopicsRequest, int]:
        self._topics += 1
        name = f"t{self._topics}" if self._chance(0.95) else f"t{self._topics - 1}"
        configs = {"min_insync_replicas": str(self._random.choice([1, 2, 2, 3]))}
        if self._chance(0.3):
            configs["unclean_leader_election_enable"] = "true"
        factor = self._random.choice([1, 2, 3, 3, 3, 4, 5])
        indexes = list(range(self._random.randint(1, 3)))
        if self._chance(0.1):
            indexes.append(self._random.randint(0, 9))
        count = -1 if self._chance(0.95) else 1
        if self._is_placed():
            topic = CreatableTopic(name, self._random.randint(-2, 3), self._random.randint(-2, 7))
            return CreateTopicsRequest((topic,), validate_only=True), 7
        assignments = tuple(CreatableReplicaAssignment(index, self._brokers_of_new(factor)) for index in indexes)
        topic = CreatableTopic(name, count, assignments=assignments, configs=topic_configs(**configs))
        return CreateTopicsRequest((topic,)), 7

    def _is_placed(self) -> bool:
        """Whether the controller shall place replicas; only with `validate_only`, because the placement is random.

        Kafka ignores the registration of a broker that was fenced in its controlled shutdown and keeps running.
        """
        brokers = map(self._image.broker, self._image.broker_ids())
        return self._chance(0.2) and not any(each.in_controlled_shutdown for each in brokers if each is not None)

    def _brokers_of_new(self, count: int) -> tuple[int, ...]:
        """The brokers of a new partition; mostly that many different ones."""
        brokers = self._random.sample(BROKERS, count)
        if self._chance(0.05):
            brokers.append(self._random.choice([*BROKERS, UNKNOWN_BROKER]))
        if self._chance(0.02):
            brokers.clear()
        return tuple(brokers)

    def _grow(self) -> tuple[CreatePartitionsRequest | CreateTopicsRequest, int]:
        name, topic_id, _ = self._partition()
        factors = {len(each.replicas) for each in self._image.partitions(topic_id)}
        if len(factors) > 1:
            return self._create()  # Kafka accepts the factor of any of them
        start = self._image.topic_partition_count(topic_id)
        count = start + self._random.choice([1, 1, 2, 0, -1])
        new = max(count - start, 0) + (0 if self._chance(0.9) else 1)
        assignments = tuple(CreatePartitionsAssignment(self._brokers_of_new(min(factors))) for _ in range(new))
        is_placed = self._is_placed()
        topic = CreatePartitionsTopic(name if self._chance(0.95) else "nope", count, None if is_placed else assignments)
        return CreatePartitionsRequest((topic,), validate_only=is_placed), 3

    def _delete(self) -> tuple[DeleteTopicsRequest, int]:
        return DeleteTopicsRequest((DeleteTopicState(self._partition()[0]),)), 6

    def _configure(self) -> tuple[IncrementalAlterConfigsRequest, int]:
        key, values = self._random.choice(
            [("min.insync.replicas", ["1", "2", "3", "9"]), ("unclean.leader.election.enable", ["true", "false"])]
        )
        change = AlterableConfig(key, self._random.choice(values), ConfigOperation.SET)
        resource = AlterConfigsResource(ResourceType.TOPIC, self._partition()[0], (change,))
        return IncrementalAlterConfigsRequest((resource,)), 1

    def _partition(self) -> tuple[str, bytes, PartitionInfo]:
        name = self._random.choice(self._image.topic_names())
        topic_id = self._image.topic_id(name)
        assert topic_id is not None
        return name, topic_id, self._random.choice(self._image.partitions(topic_id))

    def _epoch(self, broker_id: int) -> int:
        broker = self._image.broker(broker_id)
        return -1 if broker is None else broker.epoch

    # AlterPartition

    def _alter_partition(self) -> tuple[AlterPartitionRequest, int]:
        picked = [self._partition() for _ in range(self._random.choice([1, 2, 4, 8]))]
        sender = picked[0][2].leader if self._chance(0.95) else self._random.choice(BROKERS)
        sender = sender if sender >= 0 else self._random.choice(BROKERS)
        picked = [each for each in picked if each[2].leader == sender or self._chance(0.1)] or picked[:1]
        by_topic: dict[bytes, list[ProposedPartition]] = {}
        seen = set[tuple[bytes, int]]()
        for _, topic_id, partition in picked:
            place = topic_id, partition.index
            if place not in seen or (self._may_contradict and self._chance(0.5)):
                seen.add(place)
                id_ = topic_id if self._chance(0.98) else uuid(self._random.randint(0, 3))
                by_topic.setdefault(id_, []).append(self._proposed(partition))
        epoch = self._epoch(sender) + (0 if self._chance(0.97) else self._random.choice([-1, 1]))
        version = self._random.choice([2, 3, 3])
        topics = tuple(ProposedTopic(topic_id, tuple(each)) for topic_id, each in by_topic.items())
        return AlterPartitionRequest(sender, epoch, topics if self._chance(0.99) else ()), version

    def _proposed(self, partition: PartitionInfo) -> ProposedPartition:
        members = self._isr(partition)
        epochs = [self._member_epoch(each) for each in members]
        state = partition.leader_recovery_state if self._chance(0.5) else 0
        return ProposedPartition(
            partition.index if self._chance(0.98) else 7,
            partition.leader_epoch + self._slip(),
            partition.partition_epoch + self._slip(),
            tuple(map(BrokerState, members, epochs)),
            tuple(members),
            state if self._chance(0.97) else 1,
        )

    def _member_epoch(self, broker_id: int) -> int:
        if self._chance(0.4):
            return -1
        return self._epoch(broker_id) + (0 if self._chance(0.98) else 1)

    def _slip(self) -> int:
        return 0 if self._chance(0.97) else self._random.choice([-1, 1])

    def _isr(self, partition: PartitionInfo) -> list[int]:
        """Mostly the leader with other live replicas."""
        alive = [each for each in partition.replicas if self._is_active(each) or self._chance(0.05)]
        members = [each for each in alive if each == partition.leader or self._chance(0.75)]
        if self._chance(0.3):
            self._random.shuffle(members)
        if self._chance(0.02):
            members.append(self._random.choice([*BROKERS, UNKNOWN_BROKER, -1]))
        if self._chance(0.02):
            members.clear()
        return members

    def _is_active(self, broker_id: int) -> bool:
        broker = self._image.broker(broker_id)
        return broker is not None and broker.is_active

    # Brokers

    def _heartbeat(self) -> tuple[BrokerHeartbeatRequest, int]:
        broker_id = self._random.choice(BROKERS)
        (want,) = self._random.choices(["run", "fence", "shut down"], [16, 5, 1])
        broker = self._image.broker(broker_id)
        dirs = [*(broker.log_dirs if broker is not None else ()), uuid(7)]
        request = BrokerHeartbeatRequest(
            broker_id,
            self._epoch(broker_id),
            CAUGHT_UP,
            want_fence=want == "fence",
            want_shut_down=want == "shut down",
            offline_log_dirs=self._lost_directory(broker) if want == "run" else (),
            cordoned_log_dirs=tuple(each for each in dirs[:-1] if self._chance(0.5)) if self._chance(0.2) else None,
        )
        return request, 2

    def _lost_directory(self, broker: BrokerInfo | None) -> tuple[bytes, ...]:
        """Rarely one of an active broker, never its last one: Kafka fails when the same heartbeat changes the state."""
        if broker is None or not broker.is_active or len(broker.log_dirs) < 2 or self._chance(0.9):
            return ()
        return (self._random.choice(broker.log_dirs),)

    def _unregister(self) -> tuple[UnregisterBrokerRequest, int]:
        return UnregisterBrokerRequest(self._random.choice([*BROKERS, UNKNOWN_BROKER])), 0

    def _assign_directories(self) -> tuple[AssignReplicasToDirsRequest, int]:
        broker_id = self._random.choice(BROKERS)
        broker = self._image.broker(broker_id)
        dirs = [*(broker.log_dirs if broker is not None else ()), uuid(7)]
        picked = {self._partition()[1]: self._partition()[2].index for _ in range(3)}
        assignments = tuple((self._random.choice(dirs), topic_id, index) for topic_id, index in picked.items())
        return AssignReplicasToDirsRequest(broker_id, self._epoch(broker_id) + self._slip(), assignments), 0

    def _register(self) -> tuple[BrokerRegistrationRequest, int]:
        self._incarnations += 1
        broker_id = self._random.choice(BROKERS)
        previous = self._epoch(broker_id) if self._chance(0.5) else -1
        request = register_request(broker_id, self._incarnations, previous_broker_epoch=previous)
        known = self._image.broker(broker_id)
        if known is not None and self._chance(0.3):
            request = replace(request, incarnation_id=known.incarnation_id)
        return request, 4

    # Reassignments

    def _reassign(self) -> tuple[AlterPartitionReassignmentsRequest, int]:
        name, _, partition = self._partition()
        wanted = ReassignablePartition(partition.index, self._target(partition))
        partitions = [wanted]
        if self._may_contradict and self._chance(0.1):
            partitions.append(ReassignablePartition(partition.index, self._target(partition)))
        version = self._random.choice([0, 1, 1])
        is_free = version == 0 or self._chance(0.6)
        name = name if self._chance(0.97) else "nope"
        topic = ReassignableTopic(name, tuple(partitions))
        request = AlterPartitionReassignmentsRequest((topic,), allow_replication_factor_change=is_free)
        return request, version

    def _target(self, partition: PartitionInfo) -> tuple[int, ...] | None:
        if self._chance(0.25):
            return None
        brokers = [*BROKERS, *([UNKNOWN_BROKER] if self._chance(0.03) else [])]
        while True:
            target = self._random.sample(brokers, self._random.randint(1, 4))
            if self._chance(0.03):
                target.append(target[0])
            if self._chance(0.02):
                target.clear()
            if self._may_contradict or not contradicts(partition, target):
                return tuple(target)

    def _list(self) -> tuple[ListPartitionReassignmentsRequest, int]:
        if self._chance(0.5):
            return ListPartitionReassignmentsRequest(), 0
        topics = tuple(
            ListPartitionReassignmentsTopics(name, tuple(range(self._random.randint(0, 5))))
            for name in [*self._image.topic_names(), "nope"]
            if self._chance(0.5)
        )
        return ListPartitionReassignmentsRequest(topics), 0

    def _elect(self) -> tuple[ElectLeadersRequest, int]:
        name, _, partition = self._partition()
        wanted = (TopicPartitions(name, (partition.index,)),) if self._chance(0.7) else None
        return ElectLeadersRequest(wanted, self._random.choice([0, 0, 1])), 2


def contradicts(partition: PartitionInfo, target: list[int]) -> bool:
    """Whether Kafka would continue parts of the running reassignment that the new one cancels."""
    removing, adding = set(partition.replicas) - set(target), set(target) - set(partition.replicas)
    keeps_adding = not adding and bool(removing & set(partition.adding_replicas))
    keeps_removing = not removing and bool(partition.removing_replicas)
    return keeps_adding or keeps_removing


class Translation:
    """Translates a request for `ours` to the ids and epochs of another controller."""

    def __init__(self, ours: Cluster) -> None:
        self._ours = ours
        self.topic_ids: dict[bytes, bytes] = {}
        self.epochs: dict[int, int] = {}

    def _epoch(self, broker_id: int, epoch: int) -> int:
        broker = self._ours.image.broker(broker_id)
        if epoch == -1 or broker is None:
            return epoch
        return epoch - broker.epoch + self.epochs[broker_id]

    def request(self, request: Any) -> Any:
        """The same request for the other controller."""
        match request:
            case AlterPartitionRequest():
                epoch = self._epoch(request.broker_id, request.broker_epoch)
                return replace(request, broker_epoch=epoch, topics=tuple(map(self._topic, request.topics)))
            case BrokerHeartbeatRequest():
                return replace(request, broker_epoch=self._epoch(request.broker_id, request.broker_epoch))
            case AssignReplicasToDirsRequest():
                ids = self.topic_ids
                assignments = (
                    (each, ids.get(topic_id, topic_id), index) for each, topic_id, index in request.assignments
                )
                epoch = self._epoch(request.broker_id, request.broker_epoch)
                return replace(request, broker_epoch=epoch, assignments=tuple(assignments))
            case BrokerRegistrationRequest():
                previous = self._epoch(request.broker_id, request.previous_broker_epoch)
                return replace(request, previous_broker_epoch=previous)
            case _:
                return request

    def _topic(self, topic: ProposedTopic) -> ProposedTopic:
        topic_id = self.topic_ids.get(topic.topic_id, topic.topic_id)
        return replace(topic, topic_id=topic_id, partitions=tuple(map(self._partition, topic.partitions)))

    def _partition(self, partition: ProposedPartition) -> ProposedPartition:
        members = (
            replace(each, broker_epoch=self._epoch(each.broker_id, each.broker_epoch))
            for each in partition.new_isr_with_epochs
        )
        return replace(partition, new_isr_with_epochs=tuple(members))

    def answer(self, answer: Any) -> Any:
        """Our answer with the other controller's topic ids."""
        if not isinstance(answer, AlterPartitionResponse):
            return answer
        topics = (
            AlteredTopic(self.topic_ids.get(each.topic_id, each.topic_id), each.partitions) for each in answer.topics
        )
        return replace(answer, topics=tuple(topics))
