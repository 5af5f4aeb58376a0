"""A simulated cluster: brokers, a controller, clients, the network between them, and what befalls them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.node.groups import GROUPS_TOPIC
from klamm.node.share_states import SHARE_STATES_TOPIC
from klamm.node.transactions import TRANSACTIONS_TOPIC
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    ElectionType,
)
from klamm.protocol.resource_types import ResourceType
from klamm.testing.simulator.brokers.broker import Broker
from klamm.testing.simulator.brokers.clients import Clients
from klamm.testing.simulator.brokers.compaction import Compaction, CompactionPlan
from klamm.testing.simulator.brokers.controller import SimulatedController
from klamm.testing.simulator.brokers.coordinators import node_config
from klamm.testing.simulator.brokers.history import PartitionHistory, batches_of
from klamm.testing.simulator.brokers.looks import Looks
from klamm.testing.simulator.brokers.membership import Membership
from klamm.testing.simulator.brokers.operator import Operator
from klamm.testing.simulator.brokers.quorum import ControllerQuorum
from klamm.testing.simulator.brokers.scene import Coordinating, Leader, Scene
from klamm.testing.simulator.brokers.sharing import Sharing
from klamm.testing.simulator.brokers.streams_group import StreamsMemberGroup
from klamm.testing.simulator.brokers.transactions import Transactions
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm._engine.simulation import ReplicaGauges
    from klamm.config.node_config import NodeConfig
    from klamm.testing.simulator.brokers.faults import BrokerFaults
    from klamm.testing.simulator.brokers.history import Key

TOPIC: Final = "t"
TOPICS: Final = (TOPIC, TRANSACTIONS_TOPIC, GROUPS_TOPIC, SHARE_STATES_TOPIC)
SERVING_US: Final = 60_000_000
READ_EVERY_US: Final = 200_000


class ClusterPlan(NamedTuple):
    """The initial state of a run."""

    broker_count: int
    partition_count: int
    replica_count: int
    min_insync_replicas: int
    elects_unclean: bool
    settings: Mapping[str, str]
    features: Mapping[str, int]
    without: str | None = None
    """The guard that all brokers lack."""
    topic_configs: Mapping[str, str] = MappingProxyType({})
    dir_count: int = 1
    """Log directories of each broker."""
    may_be_damaged: bool = False
    transaction_version: int | None = None
    """With it, brokers have coordinators, and there are transactions."""
    compaction: CompactionPlan | None = None
    """With it, there is a compacted topic too."""
    has_groups: bool = False
    """Brokers have group coordinators."""
    has_members: bool = False
    """There are consumer groups with members."""
    delivery_limit: int = 0
    """With it, there are share groups, which deliver a record so often."""
    has_quorum: bool = False
    """Three controllers that fail, instead of one that does not."""
    replicas: Sequence[int] = ()
    """Of each partition, the preferred leader first; otherwise the controller places them."""


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
        self.looks = Looks(self.brokers, keeps_chains=plan.may_be_damaged)
        self.damaged: str | None = None  # the partition of which a replica is damaged
        self._reads_again_us = 0
        self.acknowledged_count = 0
        self._are_faults_over = False
        self.transactions: Transactions | None = None
        self.compaction = None if plan.compaction is None else Compaction(self, plan.compaction, self.brokers)
        self.looks.compaction = self.compaction
        self.membership: Membership | None = None
        self.sharing: Sharing | None = None

    def begin(self) -> None:
        """Start controller and brokers, and create a topic."""
        controllers = ControllerQuorum if self._plan.has_quorum else SimulatedController
        self.controller = controllers(self, self._plan.settings, self._plan.features)
        self.controller.on_committed = self._on_committed
        self.controller.on_appended = self._on_appended
        self.clients = Clients(self, TOPIC, self.brokers, self.looks.histories)
        self.operator = Operator(self, self._topic(), list(range(1, self._plan.broker_count + 1)))
        if self._plan.transaction_version is not None:
            self.transactions = Transactions(
                self, TOPIC, self.brokers, self.looks.histories, version=self._plan.transaction_version
            )
        if self._plan.has_members:
            self.membership = Membership(self, TOPIC, self.brokers, self.looks.histories, StreamsMemberGroup)
        if self._plan.delivery_limit:
            limit = self._plan.delivery_limit
            self.sharing = Sharing(self, TOPIC, self.brokers, self.looks.histories, delivery_limit=limit)
            self.sharing.transactions = self.transactions
        for node_id in range(1, self._plan.broker_count + 1):
            folder = self._folder / str(node_id)
            plan = self._plan
            self.brokers[node_id] = Broker(
                self,
                node_id,
                folder,
                plan.settings,
                plan.without,
                dir_count=plan.dir_count,
                may_be_damaged=plan.may_be_damaged,
                node_config=self._node_config(node_id),
                has_shares=self.sharing is not None,
            )
            self.brokers[node_id].start()
        if not self.run(SERVING_US, lambda: all(broker.is_serving for broker in self.brokers.values())):
            raise AssertionError("the brokers do not serve")
        while not self.keys:
            self.operator.create()  # the request may be lost
            self.run(self.now_us + 1_000_000, lambda: bool(self.keys))
        others = self._other_topics()
        while any(self.controller.image.topic_id(topic.name) is None for topic in others):
            for topic in others:
                self.operator.create(topic)
            self.run(self.now_us + 1_000_000)
        while self.sharing is not None and not self.sharing.configure(self.operator, self.controller.committed[1]):
            self.run(self.now_us + 1_000_000)

    def _node_config(self, node_id: int) -> NodeConfig | None:
        plan = self._plan
        if plan.transaction_version is None and not plan.has_groups:
            return None
        replicas, min_isr = str(plan.replica_count), str(min(plan.min_insync_replicas, plan.replica_count))
        return node_config(
            node_id,
            {
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": min_isr,
                "offsets.topic.replication.factor": replicas,
                "share.coordinator.state.topic.replication.factor": replicas,
                "share.coordinator.state.topic.min.isr": min_isr,
            },
        )

    def _other_topics(self) -> list[CreatableTopic]:
        coordinators = next(iter(self.brokers.values())).coordinators
        topics: list[CreatableTopic] = []
        if coordinators is not None and self._plan.transaction_version is not None:
            topics.append(coordinators.transactions.new_topic())
        if coordinators is not None and self._plan.has_groups:
            topic = coordinators.groups.new_topic()
            # An operator may set it; then appends of group coordinators are refused at times.
            min_isr = CreatableTopicConfig("min.insync.replicas", str(self._plan.min_insync_replicas))
            topics.append(replace(topic, configs=(*topic.configs, min_isr)))
        if coordinators is not None and self.sharing is not None:
            topics.append(coordinators.share_states.new_topic())
        if self.compaction is not None:
            topics.append(self.compaction.topic(self._plan.replica_count, self._plan.min_insync_replicas))
        return topics

    def _topic(self) -> CreatableTopic:
        values = {"min.insync.replicas": str(self._plan.min_insync_replicas)}
        if self._plan.elects_unclean:
            values["unclean.leader.election.enable"] = "true"
            self.looks.may_elect_unclean = True
        values |= self._plan.topic_configs
        configs = tuple(CreatableTopicConfig(key, value) for key, value in values.items())
        if self._plan.replicas:
            replicas = tuple(self._plan.replicas)
            assignments = (CreatableReplicaAssignment(index, replicas) for index in range(self._plan.partition_count))
            return CreatableTopic(TOPIC, -1, -1, tuple(assignments), configs)
        return CreatableTopic(TOPIC, self._plan.partition_count, self._plan.replica_count, configs=configs)

    def _on_appended(self, before: Image, after: Image) -> None:
        for topic in TOPICS:
            topic_id = after.topic_id(topic)
            if topic_id is not None and before.topic_id(topic) != topic_id:
                is_flushed = self._plan.settings.get("klamm.flush.before.ack") != "none"
                for partition in after.partitions(topic_id):
                    history = PartitionHistory(f"{topic}-{partition.index}", is_flushed=is_flushed)
                    self.looks.add((topic_id, partition.index), history)
        if self.compaction is not None:
            self.compaction.on_appended(after)
        self.looks.on_appended(before, after)

    @property
    def keys(self) -> list[Key]:
        """All partitions of the topic."""
        image = self.controller.image
        topic_id = image.topic_id(TOPIC)
        return [] if topic_id is None else [(topic_id, partition.index) for partition in image.partitions(topic_id)]

    @property
    def all_keys(self) -> list[Key]:
        """The same, and all partitions of internal topics."""
        image = self.controller.image
        topic_ids = [topic_id for topic in TOPICS if (topic_id := image.topic_id(topic)) is not None]
        return [(topic_id, partition.index) for topic_id in topic_ids for partition in image.partitions(topic_id)]

    # Faults

    def begin_load(self) -> None:
        """From now on clients send requests, and faults happen."""
        self.clients.begin()
        if self.transactions is not None:
            self.transactions.begin()
        if self.compaction is not None:
            self.compaction.begin()
        if self.membership is not None:
            self.membership.begin()
        if self.sharing is not None:
            self.sharing.begin()
        self.controller.begin_faults()
        faults = self.faults
        self.every(lambda: faults.partition_every_us, self._change_partition)
        self.every(lambda: faults.crash_every_us, self._crash_one)
        self.every(lambda: faults.pause_every_us, self._pause)
        self.every(lambda: faults.pause_controller_every_us, self._pause_controller)
        self.every(lambda: faults.shutdown_every_us, self._shut_down)
        self.every(lambda: faults.reassign_every_us, self.operator.reassign)
        self.every(lambda: faults.recreate_every_us, self.operator.recreate)
        self.every(lambda: faults.min_isr_every_us, self.operator.change_min_isr)
        self.every(lambda: faults.elect_every_us, self._elect)
        self.every(lambda: faults.stall_every_us, self._stall)
        self.every(lambda: faults.move_every_us, self._move)
        self.every(lambda: faults.fail_dir_every_us, self._fail_directory)

    def _elect(self) -> None:
        is_unclean = self.rng.random() < self.faults.unclean_share
        self.operator.elect(ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED)

    def _change_partition(self) -> None:
        self.network.change_partition([*self.controller.ids, *self.brokers])
        self.controller.on_cut(self.network.cut)

    def _running(self) -> Broker | None:
        up = [broker for broker in self.brokers.values() if broker.is_up]
        return self.rng.choice(up) if up else None

    def _crash_one(self) -> None:
        broker = self._running()
        if broker is not None:
            self._crash(broker)

    def _crash(self, broker: Broker) -> None:
        if self.rng.random() < self.faults.power_cut_share:
            broker.cut_power()
        else:
            broker.kill()
        self._restart_later(broker)

    def _restart_later(self, broker: Broker) -> None:
        away_us = 1 + (0 if self._are_faults_over else self.rng.randrange(max(1, self.faults.away_us_max)))

        def restart() -> None:
            if not broker.is_up:
                self._maybe_damage(broker)
                broker.start()

        self.at(away_us, restart)

    def _pause(self) -> None:
        broker = self._running()
        if broker is not None:
            broker.paused_until_us = self.now_us + self.rng.randrange(self.faults.pause_us_max)
            self.say(f"broker {broker.id} is paused until {broker.paused_until_us / 1000:.3f} ms")

    def _pause_controller(self) -> None:
        self.controller.pause(self.rng.randrange(self.faults.pause_controller_us_max))

    def _move(self) -> None:
        broker = self._running()
        if broker is None or not broker.is_serving or not self.keys or self._plan.dir_count == 1:
            return
        broker.move_replica(TOPIC, self.rng.choice(self.keys)[1], self.rng.randrange(self._plan.dir_count))

    def _fail_directory(self) -> None:
        broker = self._running()
        if broker is None or not broker.is_serving or len(broker.failed_dirs) + 1 >= self._plan.dir_count:
            return
        if broker.paused_until_us > self.now_us:  # it would be after all faults ended
            return
        online = [dir for dir in range(self._plan.dir_count) if dir not in broker.failed_dirs]
        broker.fail_directory(self.rng.choice(online))

    def _maybe_damage(self, broker: Broker) -> None:
        if self.damaged is None and self.rng.random() < self.faults.damage_chance:
            self.damage(broker)

    def damage(self, broker: Broker, ends: Mapping[str, int] | None = None) -> None:
        """Change a bit in a complete segment of a broker that is down.

        The batch is committed, so that it is on two disks at least: what is on one only cannot be repaired.
        Otherwise it ends at the offset that `ends` has for its partition, or below.
        """
        committed = {history.name: history.committed_end for history in self.looks.histories.values()}
        self.damaged = broker.engine.flip_bit(self.rng.randrange(1 << 60), committed if ends is None else ends)
        self.say(f"a bit of {self.damaged} of broker {broker.id} has changed" if self.damaged is not None else "")

    def _stall(self) -> None:
        broker = self.rng.choice(list(self.brokers.values()))
        broker.stalled_until_us = self.now_us + self.rng.randrange(self.faults.stall_us_max)
        self.say(f"broker {broker.id} gets no metadata until {broker.stalled_until_us / 1000:.3f} ms")

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
        self.controller.on_cut(set())
        self.controller.heal()
        for broker in self.brokers.values():
            broker.stalled_until_us = 0
            if broker.failed_dirs and broker.is_up:
                broker.kill()
            if not broker.is_up:
                broker.start()
        self.every(lambda: 500_000, self._repair)

    def _repair(self) -> None:
        """What an operator has to do by hand."""
        if not self.keys:  # it was deleted, and too few brokers were there to create it again
            self.operator.create()
        partitions = [self.controller.image.partition(*key) for key in self.all_keys]
        # As in Apache Kafka, a change of the min ISR clears the ELR, also where no replica is in the ISR.
        if any(each is not None and not (each.isr or each.elr or each.last_known_elr) for each in partitions):
            self.operator.elect(ElectionType.UNCLEAN)

    # Events

    def _on_committed(self) -> None:
        for broker in self.brokers.values():
            if broker.is_up:
                self.at(self.rng.randrange(self.metadata_delay_us), broker.while_alive(broker.fetch_metadata))

    def lives(self) -> dict[int, int]:
        """Which life each broker is in, of those that are up."""
        return {broker.id: broker.life for broker in self.brokers.values() if broker.is_up}

    def gauges(self, broker_id: int, key: Key) -> ReplicaGauges | None:
        """The state of a replica after the last step of its broker."""
        return self.looks.gauges(broker_id, key)

    def leader(self, broker_id: int) -> Leader:
        """The broker with this id."""
        return self.brokers[broker_id]

    def coordinating(self, broker_id: int) -> Coordinating:
        """The broker with this id."""
        return self.brokers[broker_id]

    def on_coordinator_effect(self, broker_id: int) -> None:
        """A coordinator has appended something: its broker may crash before anything else happens there."""
        broker = self.brokers[broker_id]
        if self.rng.random() < self.faults.effect_crash_chance:
            life = broker.life
            self.at(0, lambda: self._crash(broker) if broker.is_up and broker.life == life else None)

    def on_own_acked(self, broker_id: int, key: Key, batch: bytes, code: int, end_offset: int) -> None:
        """The result of a coordinator's append is known."""
        if code == 0:
            self.check(broker_id)
            gauges = self.looks.gauges(broker_id, key)
            assert gauges is not None, "it acknowledges as a leader"
            self.looks.histories[key].check_acked(broker_id, gauges, batch, end_offset)

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
        if gauges is None or partition is None or key not in self.looks.histories:
            return
        min_isr = image.config(ResourceType.TOPIC, TOPIC, "min.insync.replicas")
        if len(gauges.isr) < min(int(min_isr or 1), len(partition.replicas)):
            raise InvariantViolatedError(f"broker {broker_id} appends a batch with the ISR {gauges.isr}")

    def on_acked(self, broker_id: int, key: Key, batch: bytes, code: int, end_offset: int) -> None:
        """A leader answers an append with acks=all."""
        if code == 0:
            self.check(broker_id)
        if self.compaction is not None and self.compaction.on_acked(broker_id, key, code, end_offset):
            return
        if code == 0:
            gauges = self.looks.gauges(broker_id, key)
            assert gauges is not None, "it acknowledges as a leader"
            is_unique = self.transactions is None or not self.transactions.may_repeat_epochs()
            self.looks.histories[key].check_acked(broker_id, gauges, batch, end_offset, has_own_epoch=is_unique)
            self.acknowledged_count += 1

    def on_end_offset(self, broker_id: int, key: Key, end_offset: int) -> None:
        """A leader tells a consumer where its log ends."""
        gauges = self.looks.gauges(broker_id, key)
        if gauges is not None:
            self.looks.histories[key].check_end_offset(broker_id, gauges, end_offset)

    def on_deleting(self, broker_id: int, key: Key, offset: int) -> None:
        """A leader has moved its log start up."""
        self.check(broker_id)
        self.say(f"broker {broker_id} deletes the records of partition {key[1]} up to {offset}")

    def on_deleted(self, broker_id: int, key: Key, offset: int, lives: dict[int, int]) -> None:
        """A leader answers DeleteRecords, which arrived when these lives were there."""
        image = self.brokers[broker_id].image
        partition = image.partition(*key)
        for replica in partition.replicas if partition is not None else ():
            registered, gauges = image.broker(replica), self.looks.gauges(replica, key)
            is_alive = registered is not None and not registered.fenced and not registered.in_controlled_shutdown
            if not is_alive or gauges is None or self.brokers[replica].life != lives.get(replica):
                continue
            # A replica that is new to its broker, which the leader may not know yet, has nothing to delete.
            if gauges.log_start_offset < offset and gauges.log_end_offset > gauges.log_start_offset:
                raise InvariantViolatedError(
                    f"broker {broker_id} has deleted up to {offset}, and broker {replica} begins at "
                    f"{gauges.log_start_offset}"
                )

    def check(self, broker_id: int) -> None:
        """A broker took a step: check the invariants."""
        self.looks.check(self.brokers[broker_id], self.controller.committed[1])

    # Liveness

    def is_settled(self) -> bool:
        """Whether every replica is in the ISR, and holds what its leader holds, all of it committed."""
        image = self.controller.committed[1]
        if not self.keys:
            return False
        for key in self.all_keys:
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
        return self._is_readable() and (self.compaction is None or self.compaction.is_settled())

    def _is_readable(self) -> bool:
        """Whether no damage is left: each log is read as a whole.

        What some leader has deleted may stay damaged: a power cut may bring it back on one disk alone.
        """
        if self.damaged is None:
            return True
        if self.now_us < self._reads_again_us:
            return False
        self._reads_again_us = self.now_us + READ_EVERY_US
        for key in self.all_keys:
            for broker in self.brokers.values():
                gauges = self.looks.gauges(broker.id, key)
                history = self.looks.histories[key]
                start = 0 if gauges is None else max(gauges.log_start_offset, history.deleted_end)
                if gauges is None or start >= gauges.log_end_offset:
                    continue
                data = broker.read(key, start, gauges.log_end_offset)
                if data is None:
                    return False
                history.check_consumed(broker.id, start, batches_of(data))
        return True
