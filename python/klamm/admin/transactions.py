"""Transactions over the wire: list and describe them, find those that hang, and abort one in a partition (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import LEADER_MOVED, Client, broker_error, check, retried
from klamm.admin.topics import topics
from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.producers import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducersTopic,
)
from klamm.protocol.messages.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    MarkerTopic,
    WritableMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from klamm.protocol.topic_partition import TopicPartition

LIST_VERSION_MAX: Final = 2
PATTERN_VERSION: Final = 2
DURATION_VERSION: Final = 1
DESCRIBE_VERSION_MAX: Final = 0
DESCRIBE_PRODUCERS_VERSION_MAX: Final = 0
WRITE_MARKERS_VERSION_MAX: Final = 2
NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id, and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id with the partitions of its transaction; `start_ms` is -1 if it never had one."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction as the leader of a partition knows it."""

    where: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def transactions(
    client: Client,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[ListedTransaction]:
    """The transactional ids of all brokers that pass every filter, sorted. Raises ClientError for an unknown state.

    `pattern` is a regular expression for the whole id; `longer_than_ms` is the least time since the start.
    """
    request = ListTransactionsRequest(tuple(states), tuple(producer_ids), longer_than_ms, pattern)
    found: list[ListedTransaction] = []
    for node_id, connection in _brokers(client):
        answer = retried(lambda connection=connection: _list(connection, request))  # type: ignore[misc]
        if answer.unknown_state_filters:
            raise ClientError(f"unknown states: {', '.join(answer.unknown_state_filters)}")
        found += [
            ListedTransaction(one.transactional_id, node_id, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
        ]
    return sorted(found, key=lambda one: one.transactional_id)


def _brokers(client: Client) -> list[tuple[int, Connection]]:
    ids = sorted(broker.node_id for broker in client.metadata().brokers)
    return [(node_id, client.broker(node_id)) for node_id in ids]


def _list(connection: Connection, request: ListTransactionsRequest) -> ListTransactionsResponse:
    version = connection.version(request.API_KEY, LIST_VERSION_MAX)
    if request.transactional_id_pattern and version < PATTERN_VERSION:
        raise ClientError(f"the broker at {connection.address} cannot filter by a pattern")
    if request.duration_filter >= 0 and version < DURATION_VERSION:
        raise ClientError(f"the broker at {connection.address} cannot filter by duration")
    answer = connection.ask(request, ListTransactionsResponse, LIST_VERSION_MAX)
    check(answer.error_code, f"transactions of {connection.address}")
    return answer


def describe(client: Client, transactional_id: str) -> Transaction:
    """One transactional id. Raises BrokerError with TRANSACTIONAL_ID_NOT_FOUND if it does not exist."""

    def ask() -> Transaction:
        coordinator = client.coordinator_of_transactions(transactional_id)
        request = DescribeTransactionsRequest((transactional_id,))
        answer = client.broker(coordinator).ask(request, DescribeTransactionsResponse, DESCRIBE_VERSION_MAX)
        (found,) = answer.transaction_states
        check(found.error_code, f"transactional id {transactional_id}")
        return _transaction(coordinator, found)

    return retried(ask)


def _transaction(coordinator: int, found: DescribedTransaction) -> Transaction:
    partitions = (TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)
    return Transaction(
        found.transactional_id,
        coordinator,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(sorted(partitions)),
    )


def open_transactions(client: Client, names: Sequence[str] | None = None) -> list[OpenTransaction]:
    """The open transactions in the partitions of the named topics, or of all, as their leaders know them."""
    return retried(lambda: _open_transactions(client, names), attempts=10, passing=LEADER_MOVED)


def _open_transactions(client: Client, names: Sequence[str] | None) -> list[OpenTransaction]:
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in topics(client, names):
        for one in topic.partitions:
            if one.leader >= 0:
                by_leader.setdefault(one.leader, {}).setdefault(topic.name, []).append(one.index)
    found: list[OpenTransaction] = []
    for leader, wanted in sorted(by_leader.items()):
        asked = tuple(ProducersTopic(name, tuple(indexes)) for name, indexes in wanted.items())
        answer = client.broker(leader).ask(
            DescribeProducersRequest(asked), DescribeProducersResponse, DESCRIBE_PRODUCERS_VERSION_MAX
        )
        for answered in answer.topics:
            for part in answered.partitions:
                where = TopicPartition(answered.name, part.partition_index)
                check(part.error_code, f"{answered.name}-{part.partition_index}", part.error_message)
                found += [
                    _open(where, one) for one in part.active_producers if one.current_txn_start_offset != NO_OFFSET
                ]
    return sorted(found, key=lambda one: (one.where, one.start_offset))


def _open(where: TopicPartition, producer: ActiveProducer) -> OpenTransaction:
    return OpenTransaction(
        where,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


def find_hanging(client: Client, names: Sequence[str] | None = None, *, before_ms: int) -> list[OpenTransaction]:
    """The transactions that are open in a partition, but not for their coordinator.

    Only those count whose last write was before `before_ms`: a transaction that is ending looks the same for a moment.
    """
    candidates = [one for one in open_transactions(client, names) if one.last_timestamp_ms < before_ms]
    if not candidates:
        return []
    producer_ids = sorted({one.producer_id for one in candidates})
    ids = {one.producer_id: one.transactional_id for one in transactions(client, producer_ids=producer_ids)}
    described = {
        producer_id: _describe_if_there(client, transactional_id) for producer_id, transactional_id in ids.items()
    }
    return [one for one in candidates if not _is_known(one, described.get(one.producer_id))]


def _describe_if_there(client: Client, transactional_id: str) -> Transaction | None:
    try:
        return describe(client, transactional_id)
    except ClientError as error:
        if getattr(error, "error_code", None) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise


def _is_known(one: OpenTransaction, description: Transaction | None) -> bool:
    return (
        description is not None and description.producer_id == one.producer_id and one.where in description.partitions
    )


def transaction_at(client: Client, where: TopicPartition, start_offset: int) -> OpenTransaction:
    """The open transaction of a partition that begins at an offset. Raises ClientError."""
    there = [one for one in open_transactions(client, [where.topic]) if one.where == where]
    for one in there:
        if one.start_offset == start_offset:
            return one
    starts = ", ".join(str(one.start_offset) for one in there) or "none"
    text = f"{where.topic}-{where.partition}: no transaction begins at offset {start_offset}; open are: {starts}"
    raise ClientError(text)


def abort(client: Client, one: OpenTransaction) -> None:
    """Write an abort marker to the partition, without the transaction's coordinator. Raises ClientError."""
    marker = WritableMarker(
        one.producer_id,
        one.producer_epoch,
        False,
        (MarkerTopic(one.where.topic, (one.where.partition,)),),
        max(one.coordinator_epoch, 0),
    )

    def ask() -> None:
        (topic,) = topics(client, [one.where.topic])
        leaders = {part.index: part.leader for part in topic.partitions}
        leader = leaders.get(one.where.partition, -1)
        if leader < 0:
            raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{one.where.topic}-{one.where.partition}: no leader")
        request = WriteTxnMarkersRequest((marker,))
        answer = client.broker(leader).ask(request, WriteTxnMarkersResponse, WRITE_MARKERS_VERSION_MAX)
        for code in _codes(answer):
            check(code, f"{one.where.topic}-{one.where.partition}")

    retried(ask, passing=LEADER_MOVED)


def _codes(answer: WriteTxnMarkersResponse) -> Iterable[int]:
    return (part.error_code for marker in answer.markers for topic in marker.topics for part in topic.partitions)
