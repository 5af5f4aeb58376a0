"""The transactional ids of a cluster in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.node.node import Node
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import ListTransactionsRequest
from klamm.protocol.topic_partition import TopicPartition


class TransactionState(NamedTuple):
    """A transactional id; `state` is named as in DescribeTransactions, such as Ongoing.

    `partitions` are those that its transaction has not ended yet.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


async def states_of(coordinators: Iterable[Node]) -> list[TransactionState]:
    """All transactional ids of these coordinators, sorted. Raises KafkaError."""
    found: list[TransactionState] = []
    for node in coordinators:
        listed = await node.transactions.list_transactions(ListTransactionsRequest())
        if listed.error_code is not ErrorCode.NONE:
            raise KafkaError(listed.error_code, "the transactions cannot be read")
        found += (_state_of(node, one.transactional_id) for one in listed.transaction_states)
    return sorted(found)


def _state_of(coordinator: Node, transactional_id: str) -> TransactionState:
    described = coordinator.transactions.describe(transactional_id)
    places = (TopicPartition(topic.topic, index) for topic in described.topics for index in topic.partitions)
    return TransactionState(
        transactional_id,
        described.transaction_state,
        described.producer_id,
        described.producer_epoch,
        tuple(sorted(places)),
    )
