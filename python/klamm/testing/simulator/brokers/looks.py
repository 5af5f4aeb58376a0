"""Looks at replicas after each step, and holds them against the history of their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm.testing.simulator.brokers.history import BatchAt, Key, PartitionHistory, batches_of
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import Image, PartitionInfo
    from klamm._engine.simulation import ReplicaGauges
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.compaction import Compaction


class Looks:
    """Keeps the state of each replica and the batches of its log, and reads only what has changed."""

    def __init__(self, brokers: Mapping[int, Broker], *, keeps_chains: bool = False) -> None:
        """`keeps_chains`: a log may be damaged, so that the next life is not expected to read all of it."""
        self._brokers, self._keeps_chains = brokers, keeps_chains
        self.histories: dict[Key, PartitionHistory] = {}
        self._gauges: dict[int, dict[Key, ReplicaGauges]] = {}
        self._chains: dict[tuple[int, Key], list[BatchAt]] = {}
        self._committed_image: Image | None = None
        self.may_elect_unclean = False
        self.compaction: Compaction | None = None

    def add(self, key: Key, history: PartitionHistory) -> None:
        """A partition exists."""
        self.histories[key] = history

    def gauges(self, broker_id: int, key: Key) -> ReplicaGauges | None:
        """The state of a replica after the last step of its broker; None if it is not open."""
        return self._gauges.get(broker_id, {}).get(key)

    def forget(self, broker_id: int) -> None:
        """A life has ended; the next one reads its logs from the disk."""
        if self.compaction is not None:
            self.compaction.forget(broker_id)
        for key in self._gauges.pop(broker_id, {}):
            if not self._keeps_chains:
                self._chains.pop((broker_id, key), None)

    def on_appended(self, before: Image, after: Image) -> None:
        """The controller appended records. Raises InvariantViolatedError."""
        for key, history in self.histories.items():
            was, is_ = before.partition(*key), after.partition(*key)
            if is_ is None:
                continue
            check_members_are_active(history.name, after, is_)
            history.on_change(was, is_)
            if was is not None and is_unclean(was, is_):
                if not self.may_elect_unclean:
                    raise InvariantViolatedError(f"{history.name}: the ISR becomes {is_.isr} without a request")
                history.on_unclean_election(is_.leader_epoch if is_.leader >= 0 else is_.leader_epoch + 1)

    def on_power_cut(self, broker_id: int, image: Image) -> None:
        """A broker lost what it had not flushed."""
        for key, history in self.histories.items():
            partition = image.partition(*key)
            if partition is not None:
                history.on_power_cut(broker_id, partition.leader_epoch)

    def check(self, broker: Broker, committed_image: Image) -> None:
        """A broker took a step. Raises InvariantViolatedError."""
        changed = broker.engine.take_changed()
        if not changed and committed_image is self._committed_image:
            return
        own = self._gauges.setdefault(broker.id, {})
        members_of: set[Key] = set()
        followers: list[tuple[PartitionHistory, ReplicaGauges, list[BatchAt]]] = []
        if committed_image is not self._committed_image:
            self._committed_image = committed_image
            members_of.update(self.histories)
        for key, gauges in changed:
            if self.compaction is not None:
                self.compaction.check(broker, key, gauges)
            if gauges is None:
                own.pop(key, None)
                self._chains.pop((broker.id, key), None)
                continue
            own[key] = gauges
            history = self.histories.get(key)
            if history is None:
                continue
            chain, start = self._read(broker, key, gauges)
            history.check_log(broker.id, chain, start)
            if gauges.is_leader:
                history.check_leader(broker.id, gauges, chain)
            else:
                followers.append((history, gauges, chain))
            members_of.add(key)
        for history, gauges, chain in followers:
            history.check_follower(broker.id, gauges, chain)
        for key in members_of:
            self._check_members(key, committed_image)

    def _check_members(self, key: Key, image: Image) -> None:
        partition = image.partition(*key)
        for member in partition.isr if partition is not None else ():
            gauges = self.gauges(member, key)
            if gauges is not None and is_current(self._brokers[member], image):
                self.histories[key].check_member(member, gauges, self._chains[member, key])

    def _read(self, broker: Broker, key: Key, gauges: ReplicaGauges) -> tuple[list[BatchAt], int]:
        """The batches of a log, and how many of them were there at the last look."""
        chain = self._chains.setdefault((broker.id, key), [])
        while chain and chain[-1].end_offset > gauges.log_end_offset:
            chain.pop()
        is_newest = bool(chain and gauges.epochs) and gauges.epochs[-1][0] == chain[-1].epoch
        if is_newest and chain[-1].end_offset == gauges.log_end_offset:
            return chain, len(chain)
        while chain and chain[-1].end_offset > gauges.log_start_offset:
            read = batches_of(broker.engine.batches(key, chain[-1].base_offset))
            if read and read[0] == chain[-1]:
                start = len(chain)
                chain += read[1:]
                return chain, start
            if not read and self._keeps_chains:
                # It is damaged there.
                start = len(chain)
                chain += batches_of(broker.engine.batches(key, chain[-1].end_offset))
                return chain, start
            chain.pop()  # it was truncated, and other batches were appended
        read = batches_of(broker.engine.batches(key, gauges.log_start_offset))
        begin = read[0].base_offset if read else gauges.log_start_offset
        history = self.histories[key]  # what is deleted, or never was in this log, was equal to what others had
        before = history.before(read[0]) if read else None
        chain[:] = history.committed_upto(begin) if before is None else before
        start = len(chain)
        chain += read
        return chain, start


def is_unclean(was: PartitionInfo, partition: PartitionInfo) -> bool:
    """Whether replicas may lead that may lack committed records: after an election, or a cancelled reassignment.

    The last known leader of ELR lacks none: what it acknowledged is on its disk. Those that remain after a complete
    reassignment lack none either.
    """
    is_complete = bool(was.removing_replicas) and {*partition.replicas} == {*was.replicas} - {*was.removing_replicas}
    if not partition.isr or (is_complete and not partition.leader_recovery_state):
        return False
    return {*was.isr, *was.elr, *was.last_known_elr}.isdisjoint(partition.isr)


def check_members_are_active(name: str, image: Image, partition: PartitionInfo) -> None:
    """No member of an ISR is fenced or shuts down, but for the last one (KIP-841)."""
    for member in partition.isr if len(partition.isr) > 1 else ():
        broker = image.broker(member)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            raise InvariantViolatedError(f"{name}: broker {member} is not active, and in the ISR {partition.isr}")


def is_current(broker: Broker, image: Image) -> bool:
    """Whether this life of the broker is the registered one."""
    registered = image.broker(broker.id)
    return registered is not None and registered.epoch == broker.epoch
