"""A transactional id and the transitions of its state, without a log or a clock (Kafka's `TransactionMetadata`).

`prepare_*` returns the transition that a request asks for and marks it as pending. The caller writes its record, and
applies the transition when the record is committed. Requests meanwhile are refused with CONCURRENT_TRANSACTIONS, except
those that add partitions to what an uncommitted record leaves: an open or a complete transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klamm.coordinator.transactions.records import StoredTransaction
from klamm.coordinator.transactions.states import COMPLETE, PREPARED, TRANSITIONS, State
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Place
from klamm.protocol.value import Value

EPOCH_MAX: Final = 32767
LAST_EPOCH: Final = EPOCH_MAX - 1
"""A producer with this epoch gets another producer id; 32767 occurs only in its last marker."""
NO_PLACES: Final[frozenset[Place]] = frozenset()
ADDABLE: Final = COMPLETE | {State.ONGOING}
"""The states to which partitions can be added before their record is committed."""


class InvalidTransitionError(Exception):
    """A transition that no request may lead to: a bug."""


class Transition(Value):
    """The values after a transition."""

    state: State
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    partitions: frozenset[Place]
    start_ms: int
    last_update_ms: int
    client_version: int

    def stored(self) -> StoredTransaction:
        """The record of it."""
        return StoredTransaction(
            self.producer_id,
            self.epoch,
            self.timeout_ms,
            self.state,
            self.partitions,
            self.last_update_ms,
            self.start_ms,
            self.previous_producer_id,
            self.next_producer_id,
            self.client_version,
        )


@dataclass(slots=True, eq=False)
class Transaction:
    """A transactional id. `last_epoch` and `has_failed_fence` are not stored."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: State = State.EMPTY
    partitions: frozenset[Place] = field(default=NO_PLACES)
    start_ms: int = NO_TIMESTAMP
    client_version: int = 0
    pending: State | None = None
    """The state after all pending transitions, the last of which may wait for markers."""
    uncommitted: list[Transition] = field(default_factory=list)
    """The transitions whose records are written and not yet committed, in order."""
    has_failed_fence: bool = False
    """Whether the epoch was already raised by a fencing whose record could not be written."""

    @classmethod
    def from_record(cls, transactional_id: str, stored: StoredTransaction) -> Transaction:
        """As the log has it."""
        return cls(
            transactional_id,
            stored.producer_id,
            stored.timeout_ms,
            stored.last_update_ms,
            stored.epoch,
            NO_EPOCH,
            stored.previous_producer_id,
            stored.next_producer_id,
            stored.state,
            stored.partitions,
            stored.start_ms,
            stored.client_version,
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether the next transaction needs another producer id."""
        return self.epoch >= LAST_EPOCH

    @property
    def is_rotated(self) -> bool:
        """Whether its producer id is new: (previous id, 32766) was the pair before it."""
        return self.epoch == 0 and self.previous_producer_id not in (NO_PRODUCER_ID, self.producer_id)

    # Transitions

    def prepare_empty(self, now_ms: int, timeout_ms: int, epoch: int | None, new_producer_id: int | None) -> Transition:
        """InitProducerId without an open transaction; `epoch` is that of the request's pair, None without a pair.

        `new_producer_id` is used if the epoch is exhausted. Raises PRODUCER_FENCED, COORDINATOR_LOAD_IN_PROGRESS when a
        producer id is needed and there is none, and UNKNOWN_SERVER_ERROR as Kafka does for an exhausted epoch.
        """
        if self.is_exhausted and (epoch is None or epoch == self.epoch):
            if new_producer_id is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            last_epoch = NO_EPOCH if epoch is None else self.epoch
            return self._begin(
                State.EMPTY, now_ms, producer_id=new_producer_id, epoch=0, last_epoch=last_epoch, timeout_ms=timeout_ms
            )
        if self.is_exhausted:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The epoch of the producer is exhausted.")
        if epoch is None:
            return self._begin(State.EMPTY, now_ms, epoch=self.epoch + 1, last_epoch=NO_EPOCH, timeout_ms=timeout_ms)
        if self.epoch in (NO_EPOCH, epoch):
            return self._begin(State.EMPTY, now_ms, epoch=self.epoch + 1, last_epoch=self.epoch, timeout_ms=timeout_ms)
        if epoch == self.last_epoch:  # the request is repeated
            return self._begin(State.EMPTY, now_ms, timeout_ms=timeout_ms)
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def prepare_add(self, now_ms: int, partitions: frozenset[Place], client_version: int) -> Transition:
        """Partitions are added; the first ones begin the transaction. The caller has called `check_addable`."""
        latest = self.latest
        is_open = latest.state is State.ONGOING
        return self._begin(
            State.ONGOING,
            now_ms,
            partitions=latest.partitions | partitions if is_open else partitions,
            start_ms=latest.start_ms if is_open else now_ms,
            client_version=client_version,
        )

    def fence(self) -> None:
        """Raise the epoch before an abort that the coordinator starts, for a producer of version 0, at once.

        The abort's record then carries it. If that record cannot be written, the next attempt does not raise it again.
        """
        if not self.has_failed_fence:
            if self.epoch >= EPOCH_MAX:
                raise InvalidTransitionError(f"the epoch of {self.transactional_id} is {self.epoch}")
            self.epoch, self.last_epoch = self.epoch + 1, NO_EPOCH
        self.has_failed_fence = True

    def prepare_end(
        self, now_ms: int, *, is_commit: bool, client_version: int, next_producer_id: int | None
    ) -> Transition:
        """The end of a transaction, or an abort of nothing; version 2 raises the epoch.

        Raises COORDINATOR_LOAD_IN_PROGRESS when a producer id is needed and there is none.
        """
        raises = client_version >= 2 and self.epoch < EPOCH_MAX
        needs_id = raises and self.is_exhausted
        if needs_id and next_producer_id is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        is_open = self.state is State.ONGOING
        return self._begin(
            State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            now_ms,
            epoch=self.epoch + 1 if raises else self.epoch,
            last_epoch=self.epoch if raises else self.last_epoch,
            partitions=self.partitions if is_open else NO_PLACES,
            start_ms=self.start_ms if is_open else now_ms,
            next_producer_id=next_producer_id if needs_id and next_producer_id is not None else NO_PRODUCER_ID,
            client_version=client_version,
        )

    def prepare_complete(self, now_ms: int) -> Transition:
        """Every partition has its marker. A stored next producer id replaces the exhausted one."""
        state = State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        self.has_failed_fence = False
        if self.next_producer_id != NO_PRODUCER_ID:
            return self._begin(
                state, now_ms, producer_id=self.next_producer_id, epoch=0, partitions=NO_PLACES, start_ms=self.start_ms
            )
        return self._begin(state, now_ms, partitions=NO_PLACES, start_ms=self.start_ms)

    def _begin(
        self,
        state: State,
        now_ms: int,
        *,
        producer_id: int | None = None,
        epoch: int | None = None,
        last_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: frozenset[Place] = NO_PLACES,
        start_ms: int = NO_TIMESTAMP,
        next_producer_id: int = NO_PRODUCER_ID,
        client_version: int | None = None,
    ) -> Transition:
        latest = self.latest
        if self.pending is not None and latest is self:
            raise InvalidTransitionError(f"{self.transactional_id} has a pending transition to {self.pending.shown}")
        if state not in TRANSITIONS[latest.state]:
            raise InvalidTransitionError(f"{self.transactional_id}: {latest.state.shown} to {state.shown}")
        transition = Transition(
            state,
            latest.producer_id if producer_id is None else producer_id,
            latest.producer_id,
            next_producer_id,
            latest.epoch if epoch is None else epoch,
            latest.last_epoch if last_epoch is None else last_epoch,
            latest.timeout_ms if timeout_ms is None else timeout_ms,
            partitions,
            start_ms,
            now_ms,
            latest.client_version if client_version is None else client_version,
        )
        if not _is_valid(latest, transition):
            raise InvalidTransitionError(f"{self.transactional_id}: {latest!r} cannot become {transition!r}")
        self.pending = state
        self.uncommitted.append(transition)
        return transition

    @property
    def latest(self) -> Transaction | Transition:
        """What partitions are added to: what the last written record leaves, if its transaction is open or complete."""
        if self.uncommitted and self.pending in ADDABLE:
            return self.uncommitted[-1]
        return self

    def cancel(self) -> None:
        """The record of the last transition will not be committed."""
        self.uncommitted.pop()
        self.pending = self.uncommitted[-1].state if self.uncommitted else None

    def cancel_complete(self) -> None:
        """The same for a Complete record. It stays pending, because it will be written again."""
        self.uncommitted.pop()

    def keep(self) -> None:
        """The tombstone of the id will not be committed."""
        self.pending = None

    def apply(self, new: Transition) -> None:
        """The record of the first uncommitted transition is committed."""
        self.uncommitted.pop(0)
        if not self.uncommitted:
            self.pending = None
        self.state = new.state
        self.producer_id, self.epoch = new.producer_id, new.epoch
        self.previous_producer_id, self.next_producer_id = new.previous_producer_id, new.next_producer_id
        self.last_epoch = new.last_epoch
        self.timeout_ms = new.timeout_ms
        self.partitions = new.partitions
        self.start_ms, self.last_update_ms = new.start_ms, new.last_update_ms
        self.client_version = new.client_version

    # Checks of requests

    def check_pair(self, producer_id: int, epoch: int) -> None:
        """Of InitProducerId. Raises PRODUCER_FENCED for a pair neither current nor the one before a rotation."""
        is_current = self.epoch == NO_EPOCH or producer_id == self.producer_id
        if not is_current and not (producer_id == self.previous_producer_id and epoch >= LAST_EPOCH):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED."""
        check_current(self, producer_id, epoch)

    def has(self, partitions: frozenset[Place]) -> bool:
        """Whether the open transaction has all of these partitions, by committed records."""
        return self.state is State.ONGOING and partitions <= self.partitions

    def check_addable(self, producer_id: int, epoch: int) -> None:
        """Whether partitions may be added. Raises CONCURRENT_TRANSACTIONS and as `check_producer`."""
        latest = self.latest
        if latest is self:
            self.check_idle()
        check_current(latest, producer_id, epoch)
        if latest.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def check_idle(self) -> None:
        """Raises CONCURRENT_TRANSACTIONS while a transition is pending."""
        if self.pending is not None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def is_retry(self, producer_id: int, epoch: int) -> bool:
        """Whether the pair is the one before the last raise of the epoch (version 2)."""
        if self.is_rotated and (producer_id, epoch) == (self.previous_producer_id, LAST_EPOCH):
            return True
        return producer_id == self.producer_id and epoch == self.epoch - 1

    def has_timed_out(self, now_ms: int, never_ms: int) -> bool:
        """Whether an open transaction is to be aborted; a timeout of `never_ms` never passes."""
        is_open = self.state is State.ONGOING and self.pending is None and self.timeout_ms != never_ms
        return is_open and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id may be forgotten."""
        is_unused = (self.state is State.EMPTY or self.state in COMPLETE) and self.pending is None
        return is_unused and self.last_update_ms <= now_ms - expiration_ms

    @property
    def is_prepared(self) -> bool:
        """Whether markers are to be written."""
        return self.state in PREPARED


def check_current(known: Transaction | Transition, producer_id: int, epoch: int) -> None:
    """Raises INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED for another producer id or epoch than the known ones."""
    if producer_id != known.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if epoch != known.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _is_valid(old: Transaction | Transition, new: Transition) -> bool:
    before = old.partitions if old.state is State.ONGOING else NO_PLACES
    match new.state:
        case State.EMPTY:
            is_next = new.epoch in (old.epoch, old.epoch + 1)
            is_valid = new.start_ms == NO_TIMESTAMP and not new.partitions
            return is_valid and (is_next if new.producer_id == old.producer_id else new.epoch == 0)
        case State.ONGOING:
            return before <= new.partitions and new.timeout_ms == old.timeout_ms
        case State.PREPARE_COMMIT | State.PREPARE_ABORT:
            return new.partitions == before and new.timeout_ms == old.timeout_ms
    return new.start_ms != NO_TIMESTAMP
