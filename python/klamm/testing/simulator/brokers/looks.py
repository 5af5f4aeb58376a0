"""Looks at replicas after each step, and holds them against the history of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.testing.simulator.brokers.history import BatchAt, Key, PartitionHistory, batches_of

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm._engine.simulation import ReplicaGauges
    from klamm.testing.simulator.brokers.broker import Broker


class Looks:
    """Keeps the batches of each open log, and reads only what was added."""

    def __init__(self) -> None:
        self.histories: dict[Key, PartitionHistory] = {}
        self._chains: dict[int, dict[Key, list[BatchAt]]] = {}

    def add(self, key: Key, name: str) -> None:
        """A partition exists."""
        self.histories[key] = PartitionHistory(name)

    def forget(self, broker_id: int) -> None:
        """A life has ended; the next one reads its logs from the disk."""
        self._chains.pop(broker_id, None)

    def check(self, broker: Broker, committed_image: Image) -> None:
        """A broker took a step. Raises InvariantViolatedError."""
        for key, history in self.histories.items():
            gauges = broker.engine.gauges(key)
            if gauges is None:
                continue
            chain, start = self._read(broker, key, gauges)
            history.check_log(broker.id, chain, start)
            if gauges.is_leader:
                history.check_leader(broker.id, gauges, chain)
            if is_in_sync(broker, committed_image, key):
                history.check_member(broker.id, gauges)

    def _read(self, broker: Broker, key: Key, gauges: ReplicaGauges) -> tuple[list[BatchAt], int]:
        """The batches of a log, and how many of them were there at the last look."""
        chain = self._chains.setdefault(broker.id, {}).setdefault(key, [])
        while chain and chain[-1].end_offset > gauges.log_end_offset:
            chain.pop()
        if chain and chain[-1].end_offset == gauges.log_end_offset and gauges.epochs[-1][0] == chain[-1].epoch:
            return chain, len(chain)
        while True:
            read = batches_of(broker.engine.batches(key, chain[-1].base_offset if chain else 0))
            if not chain or read[0] == chain[-1]:
                break
            chain.pop()  # it was truncated, and other batches were appended
        start = len(chain)
        chain += read[1 if chain else 0 :]
        return chain, start


def is_in_sync(broker: Broker, image: Image, key: Key) -> bool:
    """Whether this life of the broker is in the ISR."""
    partition, registered = image.partition(*key), image.broker(broker.id)
    if partition is None or registered is None or registered.epoch != broker.epoch:
        return False
    return broker.id in partition.isr
