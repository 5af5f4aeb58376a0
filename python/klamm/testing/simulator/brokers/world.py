"""A simulated cluster: brokers, a controller, clients, the network between them, and what befalls them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    ElectionType,
)
from klamm.protocol.resource_types import ResourceType
from klamm.testing.simulator.brokers.broker import Broker
from klamm.testing.simulator.brokers.clients import Clients
from klamm.testing.simulator.brokers.controller import SimulatedController
from klamm.testing.simulator.brokers.history import PartitionHistory
from klamm.testing.simulator.brokers.looks import Looks
from klamm.testing.simulator.brokers.network import CONTROLLER
from klamm.testing.simulator.brokers.operator import Operator
from klamm.testing.simulator.brokers.scene import Leader, Scene
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm.testing.simulator.brokers.faults import BrokerFaults
    from klamm.testing.simulator.brokers.history import Key

TOPIC: Final = "t"
SERVING_US: Final = 60_000_000


class ClusterPlan(NamedTuple):
    """What a run begins with."""

    broker_count: int
    partition_count: int
    replica_count: int
    min_insync_replicas: int
    elects_unclean: bool
    settings: Mapping[str, str]
    features: Mapping[str, int]
    without: str | None = None
    """The guard that all brokers lack."""
    replicas: Sequence[int] = ()
    """Of the only partition, the preferred leader first; otherwise the controller places them."""


class BrokerWorld(Scene):
    """Everything of one run."""

    def __init__(
        self,
        rng: random.Random,
        faults: BrokerFaults,
        folder: Path,
        plan: ClusterPlan,
    ) -> None:
        super().__init__(rng, faults)
        self._plan = plan
        self._folder = folder
        self.brokers: dict[int, Broker] = {}
        self.looks = Looks(self.brokers)
        self.acknowledged_count = 0
        self._are_faults_over = False

    def begin(self) -> None:
        """Start controller and brokers, and create a topic."""
        self.controller = SimulatedController(self, self._plan.settings, self._plan.features)
        self.controller.on_committed = self._on_committed
        self.controller.on_appended = self._on_appended
        self.clients = Clients(self, TOPIC, self.brokers, self.looks.histories)
        self.operator = Operator(self, self._topic(), list(range(1, self._plan.broker_count + 1)))
        for node_id in range(1, self._plan.broker_count + 1):
            folder = self._folder / str(node_id)
            self.brokers[node_id] = Broker(self, node_id, folder, self._plan.settings, self._plan.without)
            self.brokers[node_id].start()
        if not self.run(SERVING_US, lambda: all(broker.is_serving for broker in self.brokers.values())):
            raise AssertionError("the brokers do not serve")
        while not self.keys:
            self.operator.create()  # the request may be lost
            self.run(self.now_us + 1_000_000, lambda: bool(self.keys))

    def _topic(self) -> CreatableTopic:
        values = {"min.insync.replicas": str(self._plan.min_insync_replicas)}
        if self._plan.elects_unclean:
            values["unclean.leader.election.enable"] = "true"
            self.looks.may_elect_unclean = True
        configs = tuple(CreatableTopicConfig(key, value) for key, value in values.items())
        if self._plan.replicas:
            assignment = CreatableReplicaAssignment(0, tuple(self._plan.replicas))
            return CreatableTopic(TOPIC, -1, -1, (assignment,), configs)
        return CreatableTopic(TOPIC, self._plan.partition_count, self._plan.replica_count, configs=configs)

    def _on_appended(self, before: Image, after: Image) -> None:
        topic_id = after.topic_id(TOPIC)
        if topic_id is not None and before.topic_id(TOPIC) != topic_id:
            is_flushed = self._plan.settings.get("klamm.flush.before.ack") != "none"
            for partition in after.partitions(topic_id):
                history = PartitionHistory(f"{TOPIC}-{partition.index}", is_flushed=is_flushed)
                self.looks.add((topic_id, partition.index), history)
        self.looks.on_appended(before, after)

    @property
    def keys(self) -> list[Key]:
        """All partitions of the topic."""
        image = self.controller.image
        topic_id = image.topic_id(TOPIC)
        return [] if topic_id is None else [(topic_id, partition.index) for partition in image.partitions(topic_id)]

    # Faults

    def begin_load(self) -> None:
        """From now on clients send requests, and faults happen."""
        self.clients.begin()
        faults = self.faults
        self.every(lambda: faults.partition_every_us, self._change_partition)
        self.every(lambda: faults.crash_every_us, self._crash)
        self.every(lambda: faults.pause_every_us, self._pause)
        self.every(lambda: faults.shutdown_every_us, self._shut_down)
        self.every(lambda: faults.reassign_every_us, self.operator.reassign)
        self.every(lambda: faults.recreate_every_us, self.operator.recreate)
        self.every(lambda: faults.min_isr_every_us, self.operator.change_min_isr)
        self.every(lambda: faults.elect_every_us, self._elect)

    def _elect(self) -> None:
        is_unclean = self.rng.random() < self.faults.unclean_share
        self.operator.elect(ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED)

    def _change_partition(self) -> None:
        self.network.change_partition([CONTROLLER, *self.brokers])

    def _running(self) -> Broker | None:
        up = [broker for broker in self.brokers.values() if broker.is_up]
        return self.rng.choice(up) if up else None

    def _crash(self) -> None:
        broker = self._running()
        if broker is None:
            return
        if self.rng.random() < self.faults.power_cut_share:
            broker.cut_power()
        else:
            broker.kill()
        self._restart_later(broker)

    def _restart_later(self, broker: Broker) -> None:
        away_us = 1 + (0 if self._are_faults_over else self.rng.randrange(max(1, self.faults.away_us_max)))

        def restart() -> None:
            if not broker.is_up:
                broker.start()

        self.at(away_us, restart)

    def _pause(self) -> None:
        broker = self._running()
        if broker is not None:
            broker.paused_until_us = self.now_us + self.rng.randrange(self.faults.pause_us_max)
            self.say(f"broker {broker.id} is paused until {broker.paused_until_us / 1000:.3f} ms")

    def _shut_down(self) -> None:
        broker = self._running()
        if broker is not None and broker.is_serving:
            broker.begin_shutdown()

    def on_stopped(self, broker_id: int) -> None:
        """A controlled shutdown has ended."""
        self._restart_later(self.brokers[broker_id])

    def heal(self) -> None:
        """End all faults."""
        self.say("all faults end")
        self.faults.stop()
        self._are_faults_over = True
        self.network.cut = set()
        for broker in self.brokers.values():
            if not broker.is_up:
                broker.start()
        self.every(lambda: 500_000, self._repair)

    def _repair(self) -> None:
        """What an operator has to do by hand."""
        if not self.keys:  # it was deleted, and too few brokers were there to create it again
            self.operator.create()
        partitions = [self.controller.image.partition(*key) for key in self.keys]
        # As in Apache Kafka, a change of the min ISR clears the ELR, also where no replica is in the ISR.
        if any(each is not None and not (each.isr or each.elr or each.last_known_elr) for each in partitions):
            self.operator.elect(ElectionType.UNCLEAN)

    # Events

    def _on_committed(self) -> None:
        for broker in self.brokers.values():
            if broker.is_up:
                self.at(self.rng.randrange(self.metadata_delay_us), broker.while_alive(broker.fetch_metadata))

    def leader(self, broker_id: int) -> Leader:
        """The broker with this id."""
        return self.brokers[broker_id]

    def on_ended(self, broker_id: int) -> None:
        """A life of a broker has ended."""
        self.looks.forget(broker_id)

    def on_power_cut(self, broker_id: int) -> None:
        """The power of a broker was cut."""
        self.looks.on_power_cut(broker_id, self.controller.image)

    def on_unclean_election_asked(self) -> None:
        """An operator asks for unclean elections."""
        self.looks.may_elect_unclean = True

    def on_produced(self, broker_id: int, key: Key) -> None:
        """A leader has appended a batch with acks=all."""
        image = self.brokers[broker_id].image
        gauges, partition = self.looks.gauges(broker_id, key), image.partition(*key)
        if gauges is None or partition is None:
            return
        min_isr = image.config(ResourceType.TOPIC, TOPIC, "min.insync.replicas")
        if len(gauges.isr) < min(int(min_isr or 1), len(partition.replicas)):
            raise InvariantViolatedError(f"broker {broker_id} appends a batch with the ISR {gauges.isr}")

    def on_acked(self, broker_id: int, key: Key, batch: bytes, code: int, end_offset: int) -> None:
        """A leader answers an append with acks=all."""
        if code == 0:
            self.check(broker_id)
            gauges = self.looks.gauges(broker_id, key)
            assert gauges is not None, "it acknowledges as a leader"
            self.looks.histories[key].check_acked(broker_id, gauges, batch, end_offset)
            self.acknowledged_count += 1

    def check(self, broker_id: int) -> None:
        """A broker took a step: check the invariants."""
        self.looks.check(self.brokers[broker_id], self.controller.committed[1])

    # Liveness

    def is_settled(self) -> bool:
        """Whether every replica is in the ISR, and holds what its leader holds, all of it committed."""
        image = self.controller.committed[1]
        if not self.keys:
            return False
        for key in self.keys:
            partition = image.partition(*key)
            if partition is None or partition.leader < 0 or set(partition.isr) != set(partition.replicas):
                return False
            found = [self.looks.gauges(replica, key) for replica in partition.replicas if self.brokers[replica].is_up]
            if partition.replicas == [partition.leader] and self.looks.gauges(partition.leader, key) is None:
                continue  # it was never used, so that it is not open
            held_end = self.looks.histories[key].held_end
            ends = {(one.log_end_offset, one.high_watermark, held_end(one)) for one in found if one is not None}
            if None in found or len(found) < len(partition.replicas) or len(ends) != 1 or len(set(*ends)) != 1:
                return False
        return True
