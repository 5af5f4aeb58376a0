"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27), DescribeTransactions (65) and
ListTransactions (66).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from klamm.broker.request import Answer, RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import (
    BATCHED_ADDS_VERSION,
    VERSION_2_ENDS,
    AddedTransaction,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddRequest,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndRequest,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    Marker,
    MarkerErrors,
    Pair,
    Place,
    WriteTxnMarkersRequest,
    marker_of,
    places_of,
    read_add_partitions,
    write_add_partitions,
    written,
)
from klamm.protocol.topic_names import INTERNAL_TOPICS
from klamm.protocol.wire.codec import read, write

_Codes = Sequence[dict[Place, ErrorCode]]
"""The codes of each transaction of a request."""

FENCED_VERSION: Final = 2
"""From this version of each API on, clients know PRODUCER_FENCED."""
MISSING: Final = -1
"""Stands for no producer id, no epoch or no transaction version."""


class Transactions(Protocol):
    """The transaction coordinator as these handlers use it. Errors are part of the responses."""

    def add_partitions(self, request: AddRequest, answer: Callable[[ErrorCode], None]) -> None:
        """Add partitions to a transaction."""
        ...

    def verify(self, request: AddRequest) -> dict[Place, ErrorCode]:
        """Whether partitions are in a transaction."""
        ...

    def end(self, request: EndRequest, answer: Callable[[Pair], None]) -> None:
        """Commit or abort a transaction."""
        ...

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """DescribeTransactions of one id."""
        ...

    async def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """ListTransactions."""
        ...


class TransactionHandlers:
    """Serves the APIs of this file."""

    def __init__(
        self,
        transactions: Transactions,
        has_partition: Callable[[str, int], bool],
        place_of_group: Callable[[str], Place],
        write_markers: Callable[[Sequence[Marker], Callable[[MarkerErrors], None]], None],
    ) -> None:
        """`place_of_group` is the partition with a group's offsets; `write_markers` appends to partitions here."""
        self._transactions, self._has_partition = transactions, has_partition
        self._place_of_group, self._write_markers = place_of_group, write_markers

    def add_partitions_to_txn(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """A producer adds partitions to its transaction; from version 4 on, brokers do for producers."""
        transactions = read_add_partitions(version, body)
        made: Callable[[_Codes], None] = answer.written(
            lambda codes: write_add_partitions(version, zip(transactions, codes, strict=True))
        )
        found: dict[int, dict[Place, ErrorCode]] = {}

        def take(at: int, codes: dict[Place, ErrorCode]) -> None:
            found[at] = codes
            if len(found) == len(transactions):
                made([found[one] for one in range(len(transactions))])

        for at, transaction in enumerate(transactions):
            self._add(version, transaction, partial(take, at))
        if not transactions:
            made([])

    def _add(self, version: int, transaction: AddedTransaction, take: Callable[[dict[Place, ErrorCode]], None]) -> None:
        places = places_of(transaction.topics)
        errors = {place: self._error_of(version, place) for place in places}
        if any(errors.values()):
            # One invalid partition prevents the addition of all.
            take({place: code or ErrorCode.OPERATION_NOT_ATTEMPTED for place, code in errors.items()})
            return
        request = AddRequest(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            frozenset(places),
            2 if version >= BATCHED_ADDS_VERSION else 0,
        )
        if transaction.verify_only:
            take(self._transactions.verify(request))
        else:
            self._transactions.add_partitions(request, lambda code: take(dict.fromkeys(places, _older(code, version))))

    def _error_of(self, version: int, place: Place) -> ErrorCode:
        # As in Kafka, a client has no right to write to internal topics.
        if version < BATCHED_ADDS_VERSION and place[0] in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE if self._has_partition(*place) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def add_offsets_to_txn(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """Offsets of a group become part of a transaction: the partition that they are in is added to it."""
        request = read(AddOffsetsToTxnRequest, version, body)
        place = self._place_of_group(request.group_id)
        added = AddRequest(request.transactional_id, request.producer_id, request.producer_epoch, frozenset({place}), 0)
        self._transactions.add_partitions(
            added, answer.written(lambda code: write(AddOffsetsToTxnResponse(_older(code, version)), version))
        )

    def end_txn(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """Commit or abort; from version 5 on, the response has the producer id and epoch to continue with."""
        request = read(EndTxnRequest, version, body)
        end = EndRequest(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            2 if version >= VERSION_2_ENDS else 0,
        )

        def made(pair: Pair) -> bytes:
            return write(EndTxnResponse(_older(pair.error, version), pair.producer_id, pair.epoch), version)

        self._transactions.end(end, answer.written(made))

    def write_txn_markers(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """A coordinator ends transactions in partitions of this broker."""
        request = read(WriteTxnMarkersRequest, version, body)
        markers = [marker_of(each) for each in request.markers]
        made: Callable[[MarkerErrors], None] = answer.written(lambda errors: write(written(errors), version))
        if any(MISSING in (marker.producer_id, marker.epoch, marker.version) for marker in markers):
            # The error that Apache Kafka's exception becomes.
            made({one.producer_id: dict.fromkeys(one.places, ErrorCode.UNKNOWN_SERVER_ERROR) for one in markers})
        else:
            self._write_markers(markers, made)

    async def describe_transactions(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The transactions of some transactional ids."""
        request = read(DescribeTransactionsRequest, version, body)
        found = tuple(self._transactions.describe(each) for each in request.transactional_ids)
        return write(DescribeTransactionsResponse(found), version)

    async def list_transactions(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The transactional ids that this broker coordinates."""
        return write(await self._transactions.list_transactions(read(ListTransactionsRequest, version, body)), version)


def _older(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
