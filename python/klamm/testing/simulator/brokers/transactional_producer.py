"""A transactional producer of the simulation: it does what clients do, and tells what became of its transactions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from klamm._engine.records import encode_batch
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import CommitPartition, TxnCommitTopic, TxnOffsetCommitRequest
from klamm.protocol.messages.transactions import NO_EPOCH, NO_PRODUCER_ID, AddRequest, EndRequest, InitRequest, Pair
from klamm.testing.simulator.brokers.group_places import place_of
from klamm.testing.simulator.brokers.network import Node, Repeated, Reply, Request
from klamm.testing.simulator.brokers.replication import TransactionalBatch
from klamm.testing.simulator.brokers.transactional_offsets import PARTITION, group_of
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import PartitionInfo
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.coordinators import Coordinators
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.transactional_offsets import TransactionalOffsets
    from klamm.testing.simulator.brokers.verdicts import Transaction

BATCHES_MAX: Final = 4
TIMEOUT_US: Final = 1_000_000
PRODUCE_TIMEOUT_US: Final = 300_000
TRANSACTION_TIMEOUT_MS: Final = 2_000
SILENCE_US: Final = 4_000_000
SILENCE_CHANCE: Final = 0.01
PAUSE_US: Final = 20_000
TRIES_MAX: Final = 20
PRODUCE_TRIES_MAX: Final = 1
ABORT_CHANCE: Final = 0.25
FENCED: Final = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
FATAL: Final = {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.TRANSACTION_ABORTABLE,
}
VERSION_2: Final = 2
COMMIT_VERSIONS: Final = {False: 5, True: 4}
"""Of TxnOffsetCommit, by whether the producer adds partitions itself."""

Work = Callable[["Coordinators"], Coroutine[Any, Any, Any]]


class Cluster(Node, Protocol):
    """What a producer knows of brokers, and reports to."""

    topic: str
    offsets: TransactionalOffsets

    def begin_transaction(self, transactional_id: str) -> Transaction:
        """A producer begins a transaction, with a name of its own."""

    def is_newest(self, producer: TransactionalProducer) -> bool:
        """Whether no other instance was started after it."""

    def on_pair(self, transactional_id: str, pair: Pair) -> None:
        """A producer got this pair."""

    def is_current(self, transactional_id: str, pair: Pair) -> bool:
        """Whether no producer got a newer one."""

    def pick(self) -> tuple[Key, PartitionInfo] | None:
        """A partition, as some broker knows it."""

    def leader_of(self, key: Key) -> Broker | None:
        """The leader, as some broker knows it."""

    def coordinator_of(self, transactional_id: str) -> Broker | None:
        """The coordinator, as some broker knows it (FindCoordinator)."""


class TransactionalProducer:
    """One instance. With transaction.version 2 leaders add partitions, and each transaction has its own epoch."""

    def __init__(self, scene: Scene, transactions: Cluster, transactional_id: str, version: int) -> None:
        self._scene, self._transactions = scene, transactions
        self.transactional_id, self.version = transactional_id, version
        self._pair: Pair | None = None
        self._transaction: Transaction | None = None
        self._added: set[tuple[str, int]] = set()
        self._sequences: dict[Key, int] = {}
        self._is_busy = False
        self._must_abort = False
        self._left = 0
        self._written = 0
        self._attempt = 0
        self._silent_until_us = 0
        self.is_retired = False
        """Another instance has fenced it."""

    @property
    def _adds_itself(self) -> bool:
        return self.version < VERSION_2

    def work(self) -> None:
        """Take the next step, unless one is in flight."""
        now_us, rng = self._scene.now_us, self._scene.rng
        if self._is_busy or self.is_retired or now_us < self._silent_until_us:
            return
        if rng.random() < SILENCE_CHANCE:
            self._silent_until_us = now_us + rng.randrange(SILENCE_US)
        elif self._pair is None:
            self._initialize(NO_PRODUCER_ID, NO_EPOCH)
        elif self._transaction is None:
            self._begin()
        elif self._left == 0 or self._must_abort:
            self._end()
        elif rng.random() < self._scene.faults.commit_offsets_chance:
            self._begin_commit()
        else:
            self._write()

    def _begin(self) -> None:
        self._transaction = self._transactions.begin_transaction(self.transactional_id)
        self._left = self._scene.rng.randint(1, BATCHES_MAX)
        self._must_abort = self._scene.rng.random() < ABORT_CHANCE and self._left == 1
        self._added.clear()

    # Requests to the coordinator

    def _ask(
        self,
        work: Work,
        answered: Callable[[Any], None],
        gave_up: Callable[[], None],
        tries_left: int = TRIES_MAX,
        *,
        group_id: str | None = None,
    ) -> None:
        """Ask the transaction coordinator, or that of a group, until an answer is no error that passes."""
        self._is_busy = True
        self._attempt += 1
        attempt = self._attempt

        def again() -> None:
            if attempt != self._attempt:
                return
            if tries_left:
                self._scene.at(PAUSE_US, lambda: self._ask(work, answered, gave_up, tries_left - 1, group_id=group_id))
            else:
                self._is_busy = False
                gave_up()

        def take(answer: Any) -> None:
            code = answer.error if isinstance(answer, Pair) else answer
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise InvariantViolatedError(f"a coordinator fails on a request of {self.transactional_id}")
            if code is not ErrorCode.NONE and code not in FENCED and code not in FATAL:
                again()
            elif attempt == self._attempt:
                self._is_busy = False
                answered(answer)

        if group_id is None:
            broker = self._transactions.coordinator_of(self.transactional_id)
        else:
            broker = self._transactions.offsets.coordinator_of(group_id)
        if broker is None:
            again()
            return

        def handle(reply: Reply) -> None:
            # A known weakness before version 2: what an earlier connection still holds would end a later transaction.
            is_closed = self._adds_itself and attempt != self._attempt
            if not is_closed and broker.coordinators is not None:
                broker.coordinators.do(work, reply)

        self._scene.network.call(self._transactions, broker, Request(handle, take, again, TIMEOUT_US))

    def _initialize(self, producer_id: int, epoch: int) -> None:
        request = InitRequest(self.transactional_id, TRANSACTION_TIMEOUT_MS, producer_id, epoch)

        async def work(coordinators: Coordinators) -> Pair:
            await coordinators.prepare_producer_ids()
            return await coordinators.transactions.coordinator.init_producer_id(request)

        def answered(pair: Pair) -> None:
            if pair.error is ErrorCode.NONE:
                self._use(pair)
            else:
                self._on_fenced()

        self._ask(work, answered, self._start_over)

    def _use(self, pair: Pair) -> None:
        self._pair = pair
        self._sequences.clear()
        self._transactions.on_pair(self.transactional_id, pair)

    def _start_over(self) -> None:
        """As a process that was started again."""
        self._pair = self._transaction = None
        self._must_abort = False

    def _on_fenced(self) -> None:
        self._start_over()
        self.is_retired = not self._transactions.is_newest(self)

    def _add(self, place: tuple[str, int], then: Callable[[], None]) -> None:
        pair = self._pair
        assert pair is not None, "it writes in a transaction"
        request = AddRequest(self.transactional_id, pair.producer_id, pair.epoch, frozenset({place}), 0)

        async def work(coordinators: Coordinators) -> ErrorCode:
            return await coordinators.add_partitions(request)

        def answered(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._added.add(place)
                then()
            elif code in FENCED:
                self._on_fenced()
            else:
                self._must_abort = True

        self._ask(work, answered, self._start_over)

    def _end(self) -> None:
        pair, transaction = self._pair, self._transaction
        assert pair is not None, "it ends a transaction"
        assert transaction is not None, "it ends a transaction"
        if self._adds_itself and not self._added:
            self._start_over()  # nothing is known of it
            return
        is_commit = not self._must_abort and self._scene.rng.random() >= ABORT_CHANCE
        if is_commit and self._transactions.is_current(self.transactional_id, pair):
            transaction.may_commit = True
        request = EndRequest(self.transactional_id, pair.producer_id, pair.epoch, is_commit, self.version)

        async def work(coordinators: Coordinators) -> Pair:
            return await coordinators.end(request)

        def answered(answer: Pair) -> None:
            self._transaction, self._must_abort = None, False
            if answer.error in FENCED:
                self._on_fenced()
            elif answer.error is not ErrorCode.NONE:
                self._start_over()
            else:
                self._on_ended(transaction, pair, answer, is_commit=is_commit)

        self._ask(work, answered, self._start_over)

    def _on_ended(self, transaction: Transaction, pair: Pair, answer: Pair, *, is_commit: bool) -> None:
        transaction.on_result(is_committed=is_commit)
        if not self._adds_itself:
            self._use(answer)
        elif not is_commit:  # the sequences are not known any more (KIP-360)
            self._initialize(pair.producer_id, pair.epoch)

    # Offsets of a group

    def _begin_commit(self) -> None:
        group_id = group_of(self.transactional_id)
        place = place_of(group_id)
        if self._adds_itself and place not in self._added:
            self._add(place, lambda: self._commit(group_id))  # AddOffsetsToTxn
        else:
            self._commit(group_id)

    def _commit(self, group_id: str) -> None:
        pair, transaction = self._pair, self._transaction
        assert pair is not None, "it writes in a transaction"
        assert transaction is not None, "it writes in a transaction"
        version = COMMIT_VERSIONS[self._adds_itself]
        offset = transaction.number
        topic = TxnCommitTopic(self._transactions.topic, (CommitPartition(PARTITION, offset),))
        request = TxnOffsetCommitRequest(self.transactional_id, group_id, pair.producer_id, pair.epoch, (topic,))
        offsets = self._transactions.offsets
        offsets.begin(group_id, offset, transaction)

        async def work(coordinators: Coordinators) -> ErrorCode:
            return await coordinators.commit_offset(version, request)

        def answered(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                offsets.on_acked(group_id, offset)
                self._left -= 1
            elif code in FENCED:
                self._on_fenced()
            else:
                self._must_abort = True

        self._ask(work, answered, self._start_over, group_id=group_id)

    # Records

    def _write(self) -> None:
        picked = self._transactions.pick()
        if picked is None:
            return
        key, partition = picked
        place = (self._transactions.topic, partition.index)
        if self._adds_itself and place not in self._added:
            self._add(place, lambda: self._produce(key, place))
        else:
            self._produce(key, place)

    def _produce(self, key: Key, place: tuple[str, int]) -> None:
        pair, transaction = self._pair, self._transaction
        assert pair is not None, "it writes in a transaction"
        assert transaction is not None, "it writes in a transaction"
        self._written += 1
        sequence = self._sequences.get(key, 0)
        count = self._scene.rng.randint(1, 3)
        text = f"{transaction.name}.{self._written}"
        content = encode_batch(
            [(self._scene.now_us // 1000, None, text.encode())] * count,
            producer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        producer = (pair.producer_id, pair.epoch, sequence)
        batch = TransactionalBatch(content, self.transactional_id, producer, place, not self._adds_itself)
        self._is_busy = True

        def done(end_offset: int) -> None:
            transaction.acked[text] = (key, end_offset)
            self._sequences[key] = sequence + count
            self._left -= 1

        self._send(key, batch, done, self._scene.rng.randint(0, PRODUCE_TRIES_MAX))

    def _send(self, key: Key, batch: TransactionalBatch, done: Callable[[int], None], tries_left: int) -> None:
        def again() -> None:
            if tries_left:
                self._scene.at(PAUSE_US, lambda: self._send(key, batch, done, tries_left - 1))
            else:
                self._is_busy, self._must_abort = False, True

        def answered(answer: tuple[int, int]) -> None:
            code, end_offset = answer
            if code not in FENCED and code not in FATAL and code != ErrorCode.NONE:
                again()
                return
            self._is_busy = False
            if code == ErrorCode.NONE:
                done(end_offset)
            elif code in FENCED:
                self._on_fenced()
            else:
                self._must_abort = True

        broker = self._transactions.leader_of(key)
        if broker is None:
            again()
            return
        request = Request(
            lambda reply: broker.replication.on_transactional_produce(key, batch, broker.verify, reply),
            answered,
            again,
            PRODUCE_TIMEOUT_US,
            Repeated.PRODUCE,
        )
        self._scene.network.call(self._transactions, broker, request)
