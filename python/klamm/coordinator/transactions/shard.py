"""One partition of `__transaction_state` as a state machine: the transactional ids that hash to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Reply, Ticket
from klamm.coordinator.runtime.log import LoadedRecord
from klamm.coordinator.runtime.pipeline import Pipeline
from klamm.coordinator.runtime.timers import Timers
from klamm.coordinator.transactions.config import TIMEOUT_OF_TWO_PHASES_MS, TransactionConfig
from klamm.coordinator.transactions.records import (
    decode_key,
    decode_value,
    transaction_key,
    transaction_value,
)
from klamm.coordinator.transactions.states import PREPARED, State
from klamm.coordinator.transactions.transaction import NO_PLACES, Transaction, Transition
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import NO_PRODUCER_ID, AddRequest, EndRequest, InitRequest, Pair, Place
from klamm.protocol.value import Value

log: Final = logging.getLogger("klamm.coordinator")

TimerKey = tuple[str, ...]
"""("timeout",), ("expiry",), ("complete", transactional id) or ("add", transactional id)."""
TIMEOUT_TIMER: Final[TimerKey] = ("timeout",)
EXPIRY_TIMER: Final[TimerKey] = ("expiry",)
COMPLETE_RETRY_MS: Final = 100
ADD_WAIT_MS: Final = 100
"""How long AddPartitionsToTxn of a client waits for the end of a transition before CONCURRENT_TRANSACTIONS."""
ADD_WAIT_OF_BROKERS_MS: Final = 20
"""The same for another broker, whose request may contain other transactions."""


class WriteMarkers(Value):
    """The effect of a committed Prepare record: write a marker to each partition, then call `on_markers_written`.

    `number` distinguishes it from an earlier completion of the same id.
    """

    transactional_id: str
    number: int
    producer_id: int
    epoch: int
    is_commit: bool
    partitions: frozenset[Place]
    version: int


@dataclass(slots=True, eq=False)
class Undo:
    """What a failed append reverts: the transition of these transactions is no longer pending."""

    actions: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WaitingAdd:
    """A request that waits until no transition of its transactional id is pending."""

    ticket: Ticket
    request: AddRequest
    deadline_ms: int


TransactionEffects = list[Reply | WriteMarkers]


class TransactionShard:
    """The transaction coordinator of one partition.

    `take_producer_id` returns a producer id that was never used, or None if there is none at the moment.
    `transaction_version` returns the cluster's finalized level of the feature.
    """

    def __init__(
        self,
        config: TransactionConfig,
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
    ) -> None:
        self._config: Final = config
        self._take_producer_id = take_producer_id
        self._transaction_version = transaction_version
        self._transactions: dict[str, Transaction] = {}
        self._completions: dict[str, WriteMarkers] = {}
        """By transactional id: the markers that are being written."""
        self._adds: dict[str, list[WaitingAdd]] = {}
        """By transactional id: requests that wait."""
        self._count = 0
        self._retried = 0
        self.pipeline: Final[Pipeline[Undo, WriteMarkers]] = Pipeline(
            config.request_timeout_ms, config.batch_bytes_max, Undo
        )
        self.timers: Final[Timers[TimerKey]] = Timers()

    # For the runtime

    def replay(self, record: LoadedRecord) -> None:
        """Apply a record of the log; those of unknown types and versions are skipped, as in Kafka."""
        transactional_id = None if record.is_control else decode_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            return
        stored = decode_value(record.value)
        if stored is not None:
            self._transactions[transactional_id] = Transaction.from_record(transactional_id, stored)

    def rollback(self, snapshot: Undo) -> None:
        """An append failed: its transitions do not happen."""
        for action in reversed(snapshot.actions):
            action()

    def on_loaded(self, now_ms: int) -> TransactionEffects:
        """Write the markers of transactions that were being ended."""
        for transaction in self._transactions.values():
            if transaction.is_prepared:
                self._write_markers(now_ms, transaction)
        self.timers.schedule(TIMEOUT_TIMER, now_ms + self._config.timeout_check_interval_ms)
        self.timers.schedule(EXPIRY_TIMER, now_ms + self._config.expiry_check_interval_ms)
        return self.pipeline.take_effects()

    def on_unloaded(self, now_ms: int) -> TransactionEffects:
        """The partition is no longer led here: the next leader writes the markers."""
        self._completions.clear()
        for waiting in self._adds.values():
            for each in waiting:
                self.pipeline.reply(each.ticket, ErrorCode.NOT_COORDINATOR)
        self._adds.clear()
        return self.pipeline.take_effects()

    def on_pause(self, now_ms: int, pause_ms: int) -> TransactionEffects:
        """The process did not run: the timers are already extended."""
        return self.pipeline.take_effects()

    def on_timer(self, now_ms: int, key: TimerKey) -> TransactionEffects:
        """Abort transactions that have timed out, or forget ids that are no longer used."""
        if key == TIMEOUT_TIMER:
            self._abort_timed_out(now_ms)
            self.timers.schedule(TIMEOUT_TIMER, now_ms + self._config.timeout_check_interval_ms)
        elif key == EXPIRY_TIMER:
            self._forget_expired(now_ms)
            self.timers.schedule(EXPIRY_TIMER, now_ms + self._config.expiry_check_interval_ms)
        elif key[0] == "add":
            self._try_adds(now_ms, key[1])
        else:
            self._retried -= 1
            self._complete(now_ms, self._transactions[key[1]])
        return self.pipeline.take_effects()

    # Requests

    def on_init_producer_id(self, now_ms: int, ticket: Ticket, request: InitRequest) -> TransactionEffects:
        """InitProducerId (22) of a transactional id."""
        try:
            self._init_producer_id(now_ms, ticket, request)
        except KafkaError as error:
            self.pipeline.reply(ticket, Pair(error.code))
        return self.pipeline.take_effects()

    def _init_producer_id(self, now_ms: int, ticket: Ticket, request: InitRequest) -> None:
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            producer_id = self._take_producer_id()
            if producer_id is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            # It stays if its first record cannot be written, so that the next request gets epoch 0 too.
            transaction = Transaction(request.transactional_id, producer_id, request.timeout_ms, now_ms)
            self._transactions[request.transactional_id] = transaction
        transaction.check_idle()
        epoch = None
        if request.producer_id != NO_PRODUCER_ID:
            transaction.check_pair(request.producer_id, request.epoch)
            epoch = request.epoch
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is State.ONGOING:
            self._abort(now_ms, transaction)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        new_id = self._take_producer_id() if transaction.is_exhausted else None
        new = transaction.prepare_empty(now_ms, request.timeout_ms, epoch, new_id)
        self._write(now_ms, transaction, new)
        self._reply_when_committed(now_ms, ticket, Pair(ErrorCode.NONE, new.producer_id, new.epoch), new.timeout_ms)

    def on_add_partitions(
        self, now_ms: int, ticket: Ticket, request: AddRequest, wait_ms: int | None = None
    ) -> TransactionEffects:
        """AddPartitionsToTxn (24) and AddOffsetsToTxn (25): answers with an error code.

        While a transition is pending the request waits for a short time (docs/decisions/0067), or for `wait_ms`. Where
        only the commit of a record is pending that leaves the transaction open or complete, its own record follows.
        """
        if wait_ms is None:
            wait_ms = ADD_WAIT_OF_BROKERS_MS if request.version >= 2 else ADD_WAIT_MS
        self._add(now_ms, WaitingAdd(ticket, request, now_ms + wait_ms))
        return self.pipeline.take_effects()

    def _add(self, now_ms: int, waiting: WaitingAdd) -> None:
        ticket, request = waiting.ticket, waiting.request
        try:
            transaction = self._known(request.transactional_id)
            transaction.check_addable(request.producer_id, request.epoch)
            if transaction.has(request.partitions):
                self.pipeline.reply(ticket, ErrorCode.NONE)
            else:
                new = transaction.prepare_add(now_ms, request.partitions, request.version)
                self._write(now_ms, transaction, new)
                self.pipeline.reply_when_committed(
                    now_ms,
                    ticket,
                    ErrorCode.NONE,
                    None,
                    lambda _, error: coordinator_error(error),
                    timeout_ms=new.timeout_ms,
                )
        except KafkaError as error:
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and now_ms < waiting.deadline_ms:
                self._wait(waiting)
            else:
                self.pipeline.reply(ticket, error.code)

    def _wait(self, waiting: WaitingAdd) -> None:
        transactional_id = waiting.request.transactional_id
        self._adds.setdefault(transactional_id, []).append(waiting)
        timer = ("add", transactional_id)
        scheduled_ms = self.timers.deadline_of(timer)
        if scheduled_ms is None or waiting.deadline_ms < scheduled_ms:
            self.timers.schedule(timer, waiting.deadline_ms)

    def _try_adds(self, now_ms: int, transactional_id: str) -> None:
        """A transition has ended, or the wait of a request."""
        self.timers.cancel(("add", transactional_id))
        for waiting in self._adds.pop(transactional_id, ()):
            self._add(now_ms, waiting)

    def verify(self, request: AddRequest) -> dict[Place, ErrorCode]:
        """AddPartitionsToTxn with VerifyOnly. A pending transition does not matter. Raises KafkaError."""
        transaction = self._known(request.transactional_id)
        transaction.check_producer(request.producer_id, request.epoch)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        added = transaction.partitions if transaction.state is State.ONGOING else NO_PLACES
        return {
            place: ErrorCode.NONE if place in added else ErrorCode.TRANSACTION_ABORTABLE for place in request.partitions
        }

    def on_end(self, now_ms: int, ticket: Ticket, request: EndRequest) -> TransactionEffects:
        """EndTxn (26)."""
        try:
            transaction = self._known(request.transactional_id)
            if request.version >= 2:
                done = self._check_end_of_version_2(transaction, request)
            else:
                done = self._check_end(transaction, request)
            if done is not None:
                self.pipeline.reply(ticket, done)
            else:
                self._end(now_ms, ticket, transaction, request)
        except KafkaError as error:
            self.pipeline.reply(ticket, Pair(error.code))
        return self.pipeline.take_effects()

    def _check_end(self, transaction: Transaction, request: EndRequest) -> Pair | None:
        """The response to a repeated request; None if the transaction is to be ended."""
        transaction.check_producer(request.producer_id, request.epoch)
        transaction.check_idle()
        _, complete = _states(is_commit=request.is_commit)
        if transaction.state is State.ONGOING:
            return None
        if transaction.state is complete:
            return Pair(ErrorCode.NONE, transaction.producer_id, transaction.epoch)
        raise KafkaError(_in_the_way(transaction.state, is_commit=request.is_commit))

    def _check_end_of_version_2(self, transaction: Transaction, request: EndRequest) -> Pair | None:
        transaction.check_idle()
        prepare, complete = _states(is_commit=request.is_commit)
        is_retry = transaction.is_retry(request.producer_id, request.epoch)
        if not is_retry or transaction.state in (State.ONGOING, State.EMPTY):
            transaction.check_producer(request.producer_id, request.epoch)
            if transaction.state in PREPARED:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            if transaction.state is State.ONGOING or not request.is_commit:
                return None
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if transaction.state is complete:
            return Pair(ErrorCode.NONE, transaction.producer_id, transaction.epoch)
        if transaction.state is prepare:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def _end(self, now_ms: int, ticket: Ticket, transaction: Transaction, request: EndRequest) -> None:
        new = self._prepare_end(now_ms, transaction, is_commit=request.is_commit, version=request.version)
        pair = Pair(ErrorCode.NONE, new.producer_id, new.epoch)
        if new.next_producer_id != NO_PRODUCER_ID:
            pair = Pair(ErrorCode.NONE, new.next_producer_id, 0)
        self._reply_when_committed(now_ms, ticket, pair, new.timeout_ms)

    def _prepare_end(self, now_ms: int, transaction: Transaction, *, is_commit: bool, version: int) -> Transition:
        needs_id = version >= 2 and transaction.is_exhausted
        next_id = self._take_producer_id() if needs_id else None
        new = transaction.prepare_end(now_ms, is_commit=is_commit, client_version=version, next_producer_id=next_id)
        self._write(now_ms, transaction, new)
        return new

    def on_markers_written(self, now_ms: int, transactional_id: str, number: int) -> TransactionEffects:
        """Every partition of a `WriteMarkers` has its marker, or was deleted."""
        completion = self._completions.get(transactional_id)
        if completion is not None and completion.number == number:
            del self._completions[transactional_id]
            self._complete(now_ms, self._transactions[transactional_id])
        return self.pipeline.take_effects()

    # Reads

    @property
    def retried_completions(self) -> int:
        """How many Complete records could not be written and are tried again."""
        return self._retried

    def describe(self, transactional_id: str) -> Transaction | None:
        """The state of the id without pending changes."""
        return self._transactions.get(transactional_id)

    def listed(
        self, now_ms: int, states: frozenset[State], producer_ids: frozenset[int], duration_ms: int
    ) -> Iterable[Transaction]:
        """ListTransactions (66). An empty filter and -1 match everything."""
        for transaction in self._transactions.values():
            is_listed = transaction.state is not State.DEAD and transaction.pending is not State.DEAD
            is_listed &= not states or transaction.state in states
            is_listed &= not producer_ids or transaction.producer_id in producer_ids
            is_listed &= duration_ms < 0 or now_ms - transaction.start_ms > duration_ms
            if is_listed:
                yield transaction

    # Steps

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _write(
        self, now_ms: int, transaction: Transaction, new: Transition, cancel: Callable[[], None] | None = None
    ) -> None:
        """Write the record of a pending transition, which is applied when it is committed.

        `cancel` is called if the append fails; without it the transition is no longer pending then.
        """
        key = transaction_key(transaction.transactional_id)
        version = 1 if self._transaction_version() >= 1 else 0
        undo = self.pipeline.write([(key, transaction_value(new.stored(), version=version))])
        if undo is None:
            transaction.cancel()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The record of the transaction is too large.")
        undo.actions.append(transaction.cancel if cancel is None else cancel)
        self.pipeline.apply_when_committed(lambda at_ms: self._apply(at_ms, transaction, new))

    def _apply(self, now_ms: int, transaction: Transaction, new: Transition) -> None:
        transaction.apply(new)
        if transaction.is_prepared:
            self._write_markers(now_ms, transaction)
        self._try_adds(now_ms, transaction.transactional_id)

    def _write_markers(self, now_ms: int, transaction: Transaction) -> None:
        """Begin to complete a transaction. Until that is committed, requests get CONCURRENT_TRANSACTIONS."""
        self._count += 1
        effect = WriteMarkers(
            transaction.transactional_id,
            self._count,
            transaction.producer_id,
            transaction.epoch,
            transaction.state is State.PREPARE_COMMIT,
            transaction.partitions,
            transaction.client_version,
        )
        transaction.pending = State.COMPLETE_COMMIT if effect.is_commit else State.COMPLETE_ABORT
        if transaction.partitions:
            self._completions[transaction.transactional_id] = effect
            self.pipeline.add(effect)
        else:
            self._complete(now_ms, transaction)

    def _complete(self, now_ms: int, transaction: Transaction) -> None:
        """Write the Complete record. It is written again for as long as this node leads."""
        transaction.pending = None
        new = transaction.prepare_complete(now_ms)

        def try_again() -> None:
            transaction.cancel_complete()
            self._retried += 1
            self.timers.schedule(("complete", transaction.transactional_id), now_ms + COMPLETE_RETRY_MS)

        self._write(now_ms, transaction, new, try_again)
        self._try_adds(now_ms, transaction.transactional_id)

    def _abort(self, now_ms: int, transaction: Transaction) -> None:
        """Abort an open transaction on the coordinator's own account, and fence its producer."""
        version = 2 if self._transaction_version() >= 2 else 0
        if version < 2:
            transaction.fence()
        self._prepare_end(now_ms, transaction, is_commit=False, version=version)

    def _abort_timed_out(self, now_ms: int) -> None:
        for transaction in self._transactions.values():
            if transaction.has_timed_out(now_ms, TIMEOUT_OF_TWO_PHASES_MS):
                try:
                    self._abort(now_ms, transaction)
                except KafkaError as error:
                    log.warning("the transaction of %s cannot be aborted now: %s", transaction.transactional_id, error)

    def _forget_expired(self, now_ms: int) -> None:
        for transaction in list(self._transactions.values()):
            if transaction.is_expired(now_ms, self._config.id_expiration_ms):
                self._forget(transaction)

    def _forget(self, transaction: Transaction) -> None:
        undo = self.pipeline.write([(transaction_key(transaction.transactional_id), None)])
        if undo is None:
            return
        transaction.pending = State.DEAD
        undo.actions.append(transaction.keep)
        self.pipeline.apply_when_committed(lambda _: self._transactions.__delitem__(transaction.transactional_id))

    def _reply_when_committed(self, now_ms: int, ticket: Ticket, pair: Pair, timeout_ms: int) -> None:
        """Respond once the transition is committed; an append may take as long as the transaction (as in Kafka)."""
        self.pipeline.reply_when_committed(
            now_ms, ticket, pair, None, lambda _, error: Pair(coordinator_error(error)), timeout_ms=timeout_ms
        )


def _states(*, is_commit: bool) -> tuple[State, State]:
    if is_commit:
        return State.PREPARE_COMMIT, State.COMPLETE_COMMIT
    return State.PREPARE_ABORT, State.COMPLETE_ABORT


def _in_the_way(state: State, *, is_commit: bool) -> ErrorCode:
    """The error for an end of a transaction that is not open."""
    prepare, _ = _states(is_commit=is_commit)
    return ErrorCode.CONCURRENT_TRANSACTIONS if state is prepare else ErrorCode.INVALID_TXN_STATE
