"""The state of a live coordinator is what its log says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klamm.coordinator.runtime.hosted_shard import LoadState
from klamm.coordinator.runtime.log import LoadedRecord
from klamm.coordinator.transactions.config import TransactionConfig
from klamm.coordinator.transactions.shard import TransactionShard
from klamm.coordinator.transactions.states import PREPARED, State
from klamm.node.transactions import TRANSACTIONS_TOPIC
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import NO_EPOCH
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klamm.coordinator.runtime.driver import CoordinatorRuntime
    from klamm.coordinator.runtime.hosted_shard import HostedShard, ShardT
    from klamm.coordinator.transactions.transaction import Transaction
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.history import Key

WHOLE: Final = 1 << 30
OPEN: Final = {State.ONGOING, *PREPARED}
EVERYTHING: Final[frozenset[Any]] = frozenset()


def _records_of(broker: Broker, key: Key) -> list[LoadedRecord]:
    """All records of a partition that the broker leads, as a coordinator loads them."""
    load = broker.engine.load(key, WHOLE, WHOLE, False, _unreadable)
    found: list[LoadedRecord] = []
    while (part := load.read()) is not None:
        while rows := part.take(WHOLE):
            found += [
                LoadedRecord(at, name or b"", value, producer, control) for at, name, value, producer, control in rows
            ]
    return found


def _unreadable(code: int, message: str | None) -> Exception:
    return InvariantViolatedError(f"a log cannot be read by its coordinator: {ErrorCode(code).name} {message or ''}")


def folded_shards(
    broker: Broker, runtime: CoordinatorRuntime[ShardT] | None, topic: str, new_shard: Callable[[], ShardT]
) -> Iterator[tuple[HostedShard[ShardT], ShardT]]:
    """The loaded shards of a broker that have no append in flight, each with a new one that has replayed its log.

    After a failure of a log directory an append that failed may be in the log: the broker leads there no longer soon.
    """
    topic_id = broker.image.topic_id(topic)
    if topic_id is None or runtime is None or broker.failed_dirs:
        return
    for hosted in runtime.shards.all():
        partition = broker.image.partition(topic_id, hosted.partition)
        is_led = partition is not None and partition.leader_epoch == hosted.leader_epoch
        if is_led and hosted.state is LoadState.ACTIVE and hosted.shard.pipeline.is_idle:
            folded = new_shard()
            for record in _records_of(broker, (topic_id, hosted.partition)):
                folded.replay(record)
            yield hosted, folded


def check_transaction_state(broker: Broker) -> None:
    """Compare the transaction shards that have no append in flight. Raises InvariantViolatedError."""
    runtime = None if broker.coordinators is None else broker.coordinators.transactions.runtime
    for hosted, folded in folded_shards(broker, runtime, TRANSACTIONS_TOPIC, _new_shard):
        kept, expected = _states(hosted.shard, hosted.shard), _states(folded, hosted.shard)
        if kept != expected:
            where = f"partition {hosted.partition} of {TRANSACTIONS_TOPIC} at broker {broker.id}"
            raise InvariantViolatedError(f"{where} has {kept}, and its log {expected}")


def _new_shard() -> TransactionShard:
    return TransactionShard(TransactionConfig(), lambda: None, lambda: 0)


def has_open_transactions(broker: Broker) -> bool:
    """Whether a coordinator of the broker has an open transaction, or a pending transition."""
    runtime = None if broker.coordinators is None else broker.coordinators.transactions.runtime
    return any(
        each.state in OPEN or each.pending is not None
        for hosted in ([] if runtime is None else runtime.shards.all())
        for each in hosted.shard.listed(0, EVERYTHING, EVERYTHING, -1)
    )


def _states(shard: TransactionShard, live: TransactionShard) -> dict[str, tuple[Any, ...]]:
    """The transactions of a shard; without those that the live one knows, and its log not yet."""
    found = {}
    for each in shard.listed(0, EVERYTHING, EVERYTHING, -1):
        own = live.describe(each.transactional_id)
        if own is None or not (own.has_failed_fence or own.epoch == NO_EPOCH):
            found[each.transactional_id] = _state(each)
    return found


def _state(transaction: Transaction) -> tuple[Any, ...]:
    return (
        transaction.state,
        # Without an append in flight, only the end of a transaction is pending, which waits for its markers.
        None if transaction.state in PREPARED else transaction.pending,
        transaction.producer_id,
        transaction.epoch,
        transaction.partitions,
        transaction.timeout_ms,
        transaction.start_ms,
        transaction.last_update_ms,
    )
