"""Looks at replicas after each step, and holds them against the history of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.testing.simulator.brokers.history import BatchAt, Key, PartitionHistory, batches_of
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import Image, PartitionInfo
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

    def on_appended(self, before: Image, after: Image) -> None:
        """The controller appended records. Raises InvariantViolatedError."""
        for key, history in self.histories.items():
            was, is_ = before.partition(*key), after.partition(*key)
            if is_ is not None:
                check_members_are_active(history.name, after, is_)
            if was is not None and is_ is not None and is_unclean_election(was, is_):
                history.on_unclean_election(is_.leader_epoch)

    def check(self, broker: Broker, committed_image: Image) -> None:
        """A broker took a step. Raises InvariantViolatedError."""
        for key, history in self.histories.items():
            gauges = broker.engine.gauges(key)
            if gauges is None:
                self._chains.get(broker.id, {}).pop(key, None)  # its log is deleted, or not open yet
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


def is_unclean_election(was: PartitionInfo, partition: PartitionInfo) -> bool:
    """Whether a change elects a leader that may lack committed records.

    The last known leader of ELR lacks none: what it acknowledged is on its disk.
    """
    if partition.leader_epoch == was.leader_epoch or not partition.leader_recovery_state:
        return False
    return partition.leader not in (-1, *was.isr, *was.elr, *was.last_known_elr)


def check_members_are_active(name: str, image: Image, partition: PartitionInfo) -> None:
    """No member of an ISR is fenced or shuts down, but for the last one (KIP-841)."""
    for member in partition.isr if len(partition.isr) > 1 else ():
        broker = image.broker(member)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            raise InvariantViolatedError(f"{name}: broker {member} is not active, and in the ISR {partition.isr}")


def is_in_sync(broker: Broker, image: Image, key: Key) -> bool:
    """Whether this life of the broker is in the ISR."""
    partition, registered = image.partition(*key), image.broker(broker.id)
    if partition is None or registered is None or registered.epoch != broker.epoch:
        return False
    return broker.id in partition.isr
