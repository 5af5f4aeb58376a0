"""Transactional producers on partitions, and a coordinator that never fails: what isolation promises to consumers.

Invariants, sources KIP-98, KIP-890 and KIP-1228:

1. A consumer that reads committed records receives no record of a transaction that is not to be committed.
2. It skips no record of a transaction that is to be committed.
3. The last stable offset of a leader does not move back in one leader epoch of one life.
4. No partition refuses the marker of a coordinator, and no transaction stays open once faults stop.

An unclean election may lose markers, so a partition that had one promises nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm._engine.records import RecordBatch, encode_batch, record_batches
from klamm.protocol.errors import ErrorCode
from klamm.testing.simulator.brokers.history import Key, PartitionHistory
from klamm.testing.simulator.brokers.network import Repeated, Reply, Request
from klamm.testing.simulator.brokers.replication import TransactionalBatch
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import PartitionInfo
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.scene import Scene

COORDINATOR: Final = -2
PRODUCERS: Final = 3
BATCHES_MAX: Final = 4
TIMEOUT_US: Final = 1_000_000
PAUSE_US: Final = 20_000
TRIES_MAX: Final = 5
ABORT_CHANCE: Final = 0.25
FENCE_CHANCE: Final = 0.1
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
FATAL: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.TRANSACTION_ABORTABLE,
}


class State(enum.Enum):
    """The state of a transactional id at its coordinator."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARED = "prepared"


class TransactionalId:
    """What the coordinator knows of a producer. From transaction.version 2 on each transaction has its own epoch."""

    def __init__(self, producer_id: int, version: int) -> None:
        self.producer_id, self.version = producer_id, version
        self.epoch = 0
        self.number = 0
        """Of its transaction."""
        self.state = State.EMPTY
        self.partitions: dict[Key, None] = {}
        self.commits: dict[int, bool] = {}
        """What was decided, by number."""

    @property
    def bumps_epoch(self) -> bool:
        """Whether each of its transactions has its own epoch."""
        return self.version > 1

    def add(self, epoch: int, key: Key) -> ErrorCode:
        """Add a partition to the transaction."""
        if epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.state is State.PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.state is State.EMPTY:
            self.state = State.ONGOING
            self.number += 1
        self.partitions[key] = None
        return ErrorCode.NONE

    def verify(self, epoch: int, key: Key) -> ErrorCode:
        """Whether the partition is part of the transaction."""
        if epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.state is State.PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_part = self.state is State.ONGOING and key in self.partitions
        return ErrorCode.NONE if is_part else ErrorCode.TRANSACTION_ABORTABLE


class Transactions:
    """All transactional producers and their coordinator."""

    id = COORDINATOR

    def __init__(
        self, scene: Scene, topic: str, brokers: dict[int, Broker], histories: dict[Key, PartitionHistory]
    ) -> None:
        self._scene, self._topic, self._brokers, self._histories = scene, topic, brokers, histories
        self._ids = [TransactionalId(number, 1 + number % 2) for number in range(PRODUCERS)]
        self._producers = [Producer(scene, self, one) for one in self._ids]
        self._is_stopped = False
        self._stable: dict[tuple[int, int, int, Key], int] = {}

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """It always lives."""
        return act

    def begin(self) -> None:
        """Let producers work from now on."""
        every_us = self._scene.faults.transact_every_us
        if not every_us:
            return
        for producer in self._producers:
            self._scene.every(lambda: self._scene.faults.transact_every_us, producer.work)
        self._scene.every(lambda: 3 * self._scene.faults.transact_every_us, self._consume)
        self._scene.every(lambda: 10 * self._scene.faults.transact_every_us, self._fence)

    # The coordinator

    def _fence(self) -> None:
        """A producer is silent for too long: its transaction is aborted."""
        one = self._scene.rng.choice(self._ids)
        if one.state is State.ONGOING and self._scene.rng.random() < FENCE_CHANCE:
            self._scene.say(f"the transaction {one.number} of producer {one.producer_id} times out")
            self.end(one, one.epoch, commits=False, is_fenced=True)

    def is_over(self) -> bool:
        """Whether no transaction is open, once the producers have stopped: those that they left open time out."""
        for one in () if self._is_stopped else self._ids:
            if not self.end(one, one.epoch, commits=False, is_fenced=True):
                self.initialize(one)  # what is still on its way comes too late
        self._is_stopped = True
        return all(one.state is State.EMPTY for one in self._ids)

    def end(self, one: TransactionalId, epoch: int, *, commits: bool, is_fenced: bool = False) -> bool:
        """Decide, and write markers until all partitions have them. False: there is no such transaction."""
        if epoch != one.epoch or one.state is not State.ONGOING:
            return False
        one.state = State.PREPARED
        one.commits[one.number] = commits
        if one.bumps_epoch or is_fenced:
            one.epoch += 1
        marker = (one.producer_id, one.epoch, commits, 0, one.version)
        number = one.number
        for key in list(one.partitions):
            self._mark(one, number, key, marker)
        self._maybe_complete(one)
        return True

    def _mark(self, one: TransactionalId, number: int, key: Key, marker: tuple[int, int, bool, int, int]) -> None:
        def again() -> None:
            self._scene.at(PAUSE_US, lambda: self._mark(one, number, key, marker))

        def answered(code: int) -> None:
            if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
                raise InvariantViolatedError(f"partition {key[1]} refuses the marker {marker} with {ErrorCode(code)!r}")
            if code != 0:
                again()
            elif number == one.number:
                one.partitions.pop(key, None)
                self._maybe_complete(one)

        if number != one.number or key not in one.partitions:
            return
        image = self._scene.controller.committed[1]
        partition = image.partition(*key)
        if partition is None:  # its topic was deleted
            answered(0)
            return
        if partition.leader < 0:
            again()
            return
        broker = self._brokers[partition.leader]

        def handle(reply: Reply) -> None:
            # Without an epoch of its own for each transaction, a late marker would end the next one.
            if one.bumps_epoch or (number == one.number and one.state is State.PREPARED):
                broker.replication.on_marker(key, marker, reply)

        request = Request(handle, answered, again, TIMEOUT_US, Repeated.MARKER)
        self._scene.network.call(self, broker, request)

    def _maybe_complete(self, one: TransactionalId) -> None:
        if one.state is State.PREPARED and not one.partitions:
            one.state = State.EMPTY

    def initialize(self, one: TransactionalId) -> None:
        """A producer initializes again: its requests in flight are fenced."""
        if one.state is State.EMPTY:
            one.epoch += 1

    # What producers and consumers share

    def pick(self) -> tuple[Key, PartitionInfo] | None:
        """A partition, as some broker knows it."""
        rng = self._scene.rng
        image = rng.choice(list(self._brokers.values())).image
        topic_id = image.topic_id(self._topic)
        if topic_id is None:
            return None
        partition = rng.choice(image.partitions(topic_id))
        return (topic_id, partition.index), partition

    def leader_of(self, key: Key) -> Broker | None:
        """The leader, as some broker knows it."""
        image = self._scene.rng.choice(list(self._brokers.values())).image
        partition = image.partition(*key)
        return None if partition is None or partition.leader < 0 else self._brokers[partition.leader]

    def ask(self, broker: Broker, one: TransactionalId, epoch: int, key: Key, done: Callable[[int], None]) -> None:
        """A leader asks the coordinator for a batch that begins a transaction."""
        decide = one.add if one.bumps_epoch else one.verify

        def failed() -> None:
            done(ErrorCode.NOT_ENOUGH_REPLICAS)

        request = Request(lambda reply: reply(decide(epoch, key)), done, failed, TIMEOUT_US)
        self._scene.network.call(broker, self, request)

    # Consumers

    def _consume(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        key, partition = picked
        broker = self._brokers[self._scene.rng.choice(partition.replicas)]
        offset = self._scene.rng.randint(0, self._histories[key].committed_end)

        def consume(reply: Reply) -> None:
            if broker.is_serving:
                self.check_consumed(broker, key, offset)
            reply(0)

        self._scene.network.call(self, broker, Request(consume, lambda answer: None, lambda: None, TIMEOUT_US))

    def check_consumed(self, broker: Broker, key: Key, offset: int) -> None:
        """Read once from a replica. Raises InvariantViolatedError."""
        code, stable, data, aborted = broker.engine.consume_committed(key, offset, broker.now_ms)
        if code != 0 or self._histories[key].may_lack_records:
            return
        where = f"partition {key[1]} of broker {broker.id}"
        gauges = self._scene.gauges(broker.id, key)
        if gauges is not None and gauges.is_leader:
            place = (broker.id, broker.life, gauges.leader_epoch, key)
            if stable < self._stable.get(place, -1):
                raise InvariantViolatedError(f"{where}: the last stable offset {stable} moves back")
            self._stable[place] = stable
        received, skipped = filtered(record_batches(data), aborted)
        for batch in received:
            if batch.is_transactional and not self._is_committed(batch):
                raise InvariantViolatedError(f"{where}: a consumer receives {text_of(batch)}, which is not committed")
        for batch in skipped:
            if self._is_committed(batch):
                raise InvariantViolatedError(f"{where}: a consumer skips {text_of(batch)}, which is committed")

    def _is_committed(self, batch: RecordBatch) -> bool:
        producer_id, number, _ = (int(part) for part in text_of(batch).split("."))
        return self._ids[producer_id].commits.get(number, False)

    def check_closed(self) -> None:
        """After all faults: nothing is undecided. Raises InvariantViolatedError."""
        for key, history in self._histories.items():
            partition = self._scene.controller.committed[1].partition(*key)
            if partition is None or partition.leader < 0 or history.may_lack_records:
                continue
            broker = self._brokers[partition.leader]
            gauges = self._scene.gauges(broker.id, key)
            if gauges is None:
                continue
            code, stable, _, _ = broker.engine.consume_committed(key, gauges.log_start_offset, broker.now_ms)
            if code == 0 and stable != gauges.high_watermark:
                raise InvariantViolatedError(
                    f"partition {key[1]} is stable up to {stable} of {gauges.high_watermark}: a transaction stays open"
                )
            offset = gauges.log_start_offset
            while offset < stable:
                self.check_consumed(broker, key, offset)
                _, _, data, _ = broker.engine.consume_committed(key, offset, broker.now_ms)
                offset = max((batch.last_offset + 1 for batch in record_batches(data)), default=stable)


def text_of(batch: RecordBatch) -> str:
    """What a batch says of itself: producer, transaction and number."""
    return (batch.records()[0].value or b"").decode()


def filtered(batches: list[RecordBatch], aborted: list[tuple[int, int]]) -> tuple[list[RecordBatch], list[RecordBatch]]:
    """What a consumer receives and what it skips, in Apache Kafka's way (`CompletedFetch`)."""
    waiting = sorted(aborted, key=lambda each: -each[1])
    received: list[RecordBatch] = []
    skipped: list[RecordBatch] = []
    skips: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.last_offset:
            skips.add(waiting.pop()[0])
        if batch.is_control:
            if batch.records()[0].key == ABORT:
                skips.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in skips:
            skipped.append(batch)
        else:
            received.append(batch)
    return received, skipped


class Producer:
    """A producer that writes one batch after the other, and then ends its transaction."""

    def __init__(self, scene: Scene, transactions: Transactions, one: TransactionalId) -> None:
        self._scene, self._transactions, self._id = scene, transactions, one
        self._epoch = one.epoch
        self._sequences: dict[Key, int] = {}
        self._is_busy = False
        self._left = 0
        self._written = 0

    def work(self) -> None:
        """Take the next step, unless one is in flight."""
        if self._is_busy:
            return
        if self._id.state is State.EMPTY and self._epoch != self._id.epoch:
            self._begin_epoch()
        if self._epoch != self._id.epoch or self._id.state is State.PREPARED:
            return  # it was fenced, or the last transaction is not complete
        if self._left == 0 and self._id.state is State.ONGOING:
            self._end(commits=self._scene.rng.random() >= ABORT_CHANCE)
        elif self._left == 0:
            self._left = self._scene.rng.randint(1, BATCHES_MAX)
        else:
            self._write()

    def _begin_epoch(self) -> None:
        self._epoch = self._id.epoch
        self._sequences.clear()
        self._left = 0

    def _end(self, *, commits: bool) -> None:
        if self._transactions.end(self._id, self._epoch, commits=commits) and not commits and not self._id.bumps_epoch:
            self._renew()

    def _renew(self) -> None:
        """After an abort the sequences are not known: the epoch is raised once the transaction is complete."""

        def renew() -> None:
            if self._id.state is State.EMPTY:
                self._transactions.initialize(self._id)
                self._begin_epoch()
                self._is_busy = False
            else:
                self._scene.at(PAUSE_US, renew)

        self._is_busy = True
        renew()

    def _write(self) -> None:
        picked = self._transactions.pick()
        if picked is None:
            return
        key, _ = picked
        if not self._id.bumps_epoch and self._id.add(self._epoch, key) is not ErrorCode.NONE:
            return
        self._written += 1
        number = self._id.number + (self._id.state is State.EMPTY)  # a leader may add the first partition
        sequence = self._sequences.get(key, 0)
        count = self._scene.rng.randint(1, 3)
        text = f"{self._id.producer_id}.{number}.{self._written}".encode()
        batch = encode_batch(
            [(self._scene.now_us // 1000, None, text)] * count,
            producer_id=self._id.producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._is_busy = True
        self._send(key, batch, sequence, count, self._scene.rng.randint(0, TRIES_MAX))

    def _send(self, key: Key, batch: bytes, sequence: int, count: int, tries_left: int) -> None:
        epoch, one = self._epoch, self._id

        def again() -> None:
            if tries_left:
                self._scene.at(PAUSE_US, lambda: self._send(key, batch, sequence, count, tries_left - 1))
            else:
                self._fail()

        def answered(answer: tuple[int, int]) -> None:
            code, _ = answer
            if code == 0:
                self._sequences[key] = sequence + count
                self._left -= 1
                self._is_busy = False
            elif code in FATAL:
                self._fail()
            else:
                again()

        broker = self._transactions.leader_of(key)
        if broker is None:
            again()
            return

        def ask(done: Callable[[int], None]) -> None:
            self._transactions.ask(broker, one, epoch, key, done)

        def handle(reply: Reply) -> None:
            sent = TransactionalBatch(batch, (one.producer_id, epoch, sequence), one.bumps_epoch)
            broker.replication.on_transactional_produce(key, sent, ask, reply)

        request = Request(handle, answered, again, TIMEOUT_US, Repeated.PRODUCE)
        self._scene.network.call(self._transactions, broker, request)

    def _fail(self) -> None:
        """The transaction cannot be committed any more."""
        self._is_busy = False
        self._left = 0
        if self._id.state is State.ONGOING and self._epoch == self._id.epoch:
            self._end(commits=False)
        elif self._id.state is State.EMPTY and self._epoch == self._id.epoch:
            self._transactions.initialize(self._id)
