"""Clients: they produce, and consume committed records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm._engine.records import encode_batch
from klamm.testing.simulator.brokers.history import Key, PartitionHistory, batches_of
from klamm.testing.simulator.brokers.network import CLIENT, Reply, Request

if TYPE_CHECKING:
    from klamm._engine.metadata import PartitionInfo
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.scene import Scene

TIMEOUT_US: Final = 1_000_000


class Clients:
    """All clients together: each request is independent of the others."""

    id = CLIENT

    def __init__(
        self, scene: Scene, topic: str, brokers: dict[int, Broker], histories: dict[Key, PartitionHistory]
    ) -> None:
        self._scene, self._topic, self._brokers, self._histories = scene, topic, brokers, histories
        self._count = 0
        self.produce_every_us = scene.rng.choice([10_000, 30_000, 100_000])

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """They always live."""
        return act

    def begin(self) -> None:
        """Send requests from now on."""
        self._scene.every(lambda: self.produce_every_us, self._produce)
        self._scene.every(lambda: 5 * self.produce_every_us, self._consume)
        self._scene.every(lambda: 20 * self.produce_every_us, self._find_end)
        self._scene.every(lambda: self._scene.faults.delete_every_us, self._delete)

    def _pick(self) -> tuple[Key, PartitionInfo] | None:
        """A partition, as some broker knows it."""
        rng = self._scene.rng
        image = rng.choice(list(self._brokers.values())).image
        topic_id = image.topic_id(self._topic)
        if topic_id is None:
            return None
        partition = rng.choice(image.partitions(topic_id))
        return (topic_id, partition.index), partition

    def _produce(self) -> None:
        scene, rng = self._scene, self._scene.rng
        picked = self._pick()
        if picked is None or picked[1].leader < 0:
            return
        key, partition = picked
        self._count += 1
        rows = [(scene.now_us // 1000, None, b"%d.%d" % (self._count, at)) for at in range(rng.randint(1, 3))]
        batch = encode_batch(rows)
        acks = rng.choice([-1, -1, -1, 1])
        broker = self._brokers[partition.leader]
        self._send(broker, lambda reply: broker.replication.on_produce(key, batch, acks, reply))

    def _send(self, broker: Broker, handle: Callable[[Reply], None]) -> None:
        request = Request(handle, lambda answer: None, lambda: None, TIMEOUT_US)
        self._scene.network.call(self, broker, request)

    def _consume(self) -> None:
        rng = self._scene.rng
        picked = self._pick()
        if picked is None:
            return
        key, partition = picked
        history = self._histories[key]
        offset = rng.randint(0, history.committed_end)
        broker = self._brokers[rng.choice(partition.replicas)]  # the leader, or a follower in its rack (KIP-392)

        def consume(reply: Reply) -> None:
            if not broker.is_serving:
                return
            code, _, data = broker.engine.consume(key, offset, -1, broker.now_ms)
            if code == 0:
                history.check_consumed(broker.id, offset, batches_of(data))
            reply(code)

        self._send(broker, consume)

    def _find_end(self) -> None:
        """Ask a leader for the end offset."""
        picked = self._pick()
        if picked is None or picked[1].leader < 0:
            return
        key, partition = picked
        broker = self._brokers[partition.leader]

        def find(reply: Reply) -> None:
            if not broker.is_serving:
                return
            code, end_offset = broker.engine.end_offset(key, -1, broker.now_ms)
            if code == 0:
                self._scene.on_end_offset(broker.id, key, end_offset)
            reply(code)

        self._send(broker, find)

    def _delete(self) -> None:
        """Delete records up to some offset, which may be above what is committed."""
        rng = self._scene.rng
        picked = self._pick()
        if picked is None or picked[1].leader < 0:
            return
        key, partition = picked
        end = self._histories[key].committed_end
        offset = rng.choice([-1, end + rng.randint(0, 3), rng.randint(0, end), max(0, end - rng.randint(0, 5))])
        broker = self._brokers[partition.leader]
        self._send(broker, lambda reply: broker.replication.on_delete_records(key, offset, reply))
