"""A compacted topic of the simulation: its producers, its consumers, and the cleaner of each broker."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm._engine.records import encode_batch
from klamm.protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from klamm.testing.simulator.brokers.compacted_log import CompactedHistory, ReplicaRows
from klamm.testing.simulator.brokers.network import Reply, Request
from klamm.testing.simulator.brokers.operator import Operator

if TYPE_CHECKING:
    from klamm._engine.metadata import Image, PartitionInfo
    from klamm._engine.simulation import ReplicaGauges
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene

TOPIC: Final = "compacted"
CLIENT: Final = -3
TOMBSTONE_SHARE: Final = 0.3
PRODUCE_EVERY_US: Final = 40_000
TIMEOUT_US: Final = 1_000_000


class CompactionPlan(NamedTuple):
    """A compacted topic."""

    configs: Mapping[str, str]
    retention_ms: int
    """`delete.retention.ms`"""
    key_count: int
    """With many, the last record of a key stays the last one for a while."""


def draw(rng: random.Random) -> CompactionPlan:
    """A topic for a run."""
    retention_ms = rng.choice([0, 300, 2_000])
    configs = {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(retention_ms),
        "internal.segment.bytes": str(rng.choice([200, 600])),
        "min.cleanable.dirty.ratio": rng.choice(["0", "0.3"]),
        "min.compaction.lag.ms": rng.choice(["0", "0", "300"]),
    }
    return CompactionPlan(configs, retention_ms, key_count=rng.choice([5, 30]))


class Compaction:
    """The topic, and what is known of its partitions."""

    id = CLIENT

    def __init__(self, scene: Scene, plan: CompactionPlan, brokers: Mapping[int, Broker]) -> None:
        self._scene, self._plan, self._brokers = scene, plan, brokers
        self._histories: dict[Key, CompactedHistory] = {}
        self._replicas: dict[tuple[int, Key], ReplicaRows] = {}
        self._count = 0
        self._is_stopped = False

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """The clients always live."""
        return act

    def topic(self, replica_count: int, min_insync_replicas: int) -> CreatableTopic:
        """The topic to create."""
        configs = {**self._plan.configs, "min.insync.replicas": str(min_insync_replicas)}
        rows = tuple(CreatableTopicConfig(key, value) for key, value in configs.items())
        topic = CreatableTopic(TOPIC, 1, replica_count, configs=rows)
        self._operator = Operator(self._scene, topic, list(self._brokers))
        return topic

    def begin(self) -> None:
        """Produce, consume and clean from now on."""
        faults = self._scene.faults
        self._scene.every(lambda: 0 if self._is_stopped else PRODUCE_EVERY_US, self._produce)
        self._scene.every(lambda: 0 if self._is_stopped else 5 * PRODUCE_EVERY_US, self._consume)
        self._scene.every(lambda: faults.clean_every_us, self._clean)
        self._scene.every(lambda: faults.reassign_every_us, self._operator.reassign)

    def stop(self) -> None:
        """Produce no more."""
        self._is_stopped = True

    # Clients

    def _pick(self) -> tuple[Key, PartitionInfo] | None:
        image = self._scene.rng.choice(list(self._brokers.values())).image
        topic_id = image.topic_id(TOPIC)
        if topic_id is None:
            return None
        partition = self._scene.rng.choice(image.partitions(topic_id))
        return (topic_id, partition.index), partition

    def _produce(self) -> None:
        scene, picked = self._scene, self._pick()
        if picked is None or picked[1].leader < 0:
            return
        key, partition = picked
        rows = [(scene.now_us // 1000, *self._next_row()) for _ in range(scene.rng.randint(1, 2))]
        batch, broker = encode_batch(rows), self._brokers[partition.leader]
        acks = scene.rng.choice([-1, -1, 1])
        self._send(broker, lambda reply: broker.replication.on_produce(key, batch, acks, reply))

    def _next_row(self) -> tuple[bytes, bytes | None]:
        rng = self._scene.rng
        self._count += 1
        value = None if rng.random() < TOMBSTONE_SHARE else b"%d" % self._count
        return b"k%d" % rng.randrange(self._plan.key_count), value

    def _consume(self) -> None:
        picked = self._pick()
        if picked is None or picked[0] not in self._histories:
            return
        key, partition = picked
        history, broker = self._histories[key], self._brokers[self._scene.rng.choice(partition.replicas)]
        offset = self._scene.rng.randint(0, history.committed_end)

        def consume(reply: Reply) -> None:
            if broker.is_serving:
                code, _, data = broker.engine.consume(key, offset, -1, broker.now_ms)
                if code == 0:
                    history.check_consumed(broker.id, data)
                reply(code)

        self._send(broker, consume)

    def _send(self, broker: Broker, handle: Callable[[Reply], None]) -> None:
        request = Request(handle, lambda answer: None, lambda: None, TIMEOUT_US)
        self._scene.network.call(self, broker, request)

    # Cleaning

    def _clean(self) -> None:
        broker = self._scene.rng.choice(list(self._brokers.values()))
        is_cut = self._scene.rng.random() < self._scene.faults.clean_crash_share
        broker.while_alive(lambda: self._clean_now(broker, is_cut=is_cut))()

    def _clean_now(self, broker: Broker, *, is_cut: bool) -> None:
        if not broker.is_serving:
            return
        if is_cut:
            broker.cut_power_while_cleaning()
            return
        for key in broker.engine.clean(broker.now_ms):
            self._scene.say(f"broker {broker.id} has cleaned its log of the compacted topic")
            gauges = self._scene.gauges(broker.id, key)
            if gauges is not None and (broker.id, key) in self._replicas:
                self._replicas[broker.id, key].read_all_again()
                self.check(broker, key, gauges)

    # Checks

    def on_appended(self, image: Image) -> None:
        """The controller appended records."""
        topic_id = image.topic_id(TOPIC)
        for partition in image.partitions(topic_id) if topic_id is not None and not self._histories else ():
            name = f"{TOPIC}-{partition.index}"
            assert topic_id is not None, "it has partitions"
            self._histories[topic_id, partition.index] = CompactedHistory(name, self._plan.retention_ms)

    def check(self, broker: Broker, key: Key, gauges: ReplicaGauges | None) -> None:
        """A replica has changed; None: it is not open any more. Raises InvariantViolatedError."""
        history = self._histories.get(key)
        if history is None:
            return
        if gauges is None:
            self._replicas.pop((broker.id, key), None)
            history.forget(broker.id)
            return
        replica = self._replicas.setdefault((broker.id, key), ReplicaRows())
        read = replica.read(gauges, lambda offset: broker.engine.batches(key, offset))
        history.check(broker.id, gauges, replica.rows, read, broker.now_ms)

    def forget(self, broker_id: int) -> None:
        """A life has ended."""
        for key in self._histories:
            self._replicas.pop((broker_id, key), None)

    def on_acked(self, broker_id: int, key: Key, code: int, end_offset: int) -> bool:
        """A leader answers an append; whether it is one to this topic."""
        history = self._histories.get(key)
        if history is not None and code == 0:
            history.check_acked(broker_id, end_offset)
        return history is not None

    def is_settled(self) -> bool:
        """Whether every replica is in the ISR and ends where the others end, with everything committed."""
        image = self._scene.controller.committed[1]
        for key, history in self._histories.items():
            partition = image.partition(*key)
            if partition is None or partition.leader < 0 or {*partition.isr} != {*partition.replicas}:
                return False
            found = [self._scene.gauges(replica, key) for replica in partition.replicas]
            ends = {(one.log_end_offset, one.high_watermark) for one in found if one is not None}
            if not history.committed_end:
                continue  # it was never used, so that it is perhaps not open
            if None in found or ends != {(history.committed_end, history.committed_end)}:
                return False
        return True
