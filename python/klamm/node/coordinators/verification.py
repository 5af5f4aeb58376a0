"""Verifies that partitions belong to a transaction, before its first records there are appended (KIP-890).

Kafka's `AddPartitionsToTxnManager`. The coordinator of a transactional id may be this broker, or another one. That one
has up to `REQUESTS_MAX` requests in flight; transactions that come meanwhile share the next one (docs/decisions/0076).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from klamm.client import ClientError, UnsupportedVersionError
from klamm.client.peer import Answer
from klamm.driving.clock import LoopClock
from klamm.driving.deadlines import Deadlines
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.transactions import (
    AddedTopic,
    AddedTransaction,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddRequest,
    Place,
    by_topic,
)
from klamm.protocol.wire import codec

if TYPE_CHECKING:
    from klamm.client.peer import Outcome
    from klamm.coordinator.transactions.driver import TransactionCoordinator
    from klamm.node.coordinators.other_brokers import OtherBrokers

VERSIONS: Final = (4, 5)
VERSION_OF_ADDING: Final = 2
REQUESTS_MAX: Final = 8
"""Requests in flight to one coordinator."""

Codes = Mapping[Place, ErrorCode]
OnVerified = Callable[[Codes], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A transaction in the next request to its coordinator."""

    request: AddRequest
    answers: list[OnVerified] = field(default_factory=list)

    def answer(self, codes: Codes) -> None:
        for answer in self.answers:
            answer(codes)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.request.partitions, code))


class Verification:
    """Asks coordinators.

    The error codes are those of the coordinators. NETWORK_EXCEPTION: one did not answer. UNSUPPORTED_VERSION: it is
    older than 3.5 and has no such request.
    """

    def __init__(
        self,
        node_id: int,
        coordinator: Callable[[], TransactionCoordinator],
        broker_of: Callable[[str], int | None],
        others: Callable[[], OtherBrokers],
        *,
        retry_ms: int,
        retries_for_ms: int,
    ) -> None:
        """`broker_of` returns the broker that coordinates a transactional id, if there is one that is alive.

        While an earlier transaction completes, adding is tried again every `retry_ms` for up to `retries_for_ms`. The
        coordinator of this broker keeps the request for all of that time instead.
        """
        self._node_id, self._coordinator, self._broker_of, self._others = node_id, coordinator, broker_of, others
        self._retry_ms, self._retries_for_ms = retry_ms, retries_for_ms
        self._clock, self._deadlines = LoopClock(), Deadlines()
        self._waiting: dict[int, dict[str, _Waiting]] = {}
        self._in_flight: Counter[int] = Counter()
        self.asked = 0
        """Verified transactions since the start."""
        self.failed = 0
        """Partitions that were refused."""

    def ask(self, request: AddRequest, answer: OnVerified) -> None:
        """Add the partitions, if the request is of version 2, otherwise only verify them."""
        self.asked += 1

        def counted(codes: Codes) -> None:
            self.failed += sum(code is not ErrorCode.NONE for code in codes.values())
            answer(codes)

        if request.version < VERSION_OF_ADDING:
            self._ask_once(request, counted)
        else:
            self._ask_while_busy(self._clock.now_ms() + self._retries_for_ms, request, counted)

    def _ask_while_busy(self, until_ms: int, request: AddRequest, answer: OnVerified) -> None:
        self._ask_once(request, partial(self._on_codes, until_ms, request, answer), until_ms)

    def _on_codes(self, until_ms: int, request: AddRequest, answer: OnVerified, codes: Codes) -> None:
        if ErrorCode.CONCURRENT_TRANSACTIONS in codes.values() and self._clock.now_ms() < until_ms:
            self._deadlines.add(self._retry_ms, partial(self._ask_while_busy, until_ms, request, answer))
        else:
            answer(codes)

    def _ask_once(self, request: AddRequest, answer: OnVerified, until_ms: int = 0) -> None:
        broker = self._broker_of(request.transactional_id)
        if broker is None:
            answer(dict.fromkeys(request.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif broker != self._node_id:
            self._ask_other(broker, request, answer)
        elif request.version < VERSION_OF_ADDING:
            answer(self._coordinator().verify(request))
        else:
            self._coordinator().add_partitions(
                request,
                lambda code: answer(dict.fromkeys(request.partitions, code)),
                wait_ms=max(until_ms - self._clock.now_ms(), 0),
            )

    def close(self) -> None:
        """Stop retrying."""
        self._deadlines.close()

    # Other brokers

    def _ask_other(self, broker: int, request: AddRequest, answer: OnVerified) -> None:
        waiting = self._waiting.setdefault(broker, {})
        before = waiting.get(request.transactional_id)
        if before is not None and not _belong_together(before.request, request):
            if (before.request.producer_id, before.request.epoch) > (request.producer_id, request.epoch):
                answer(dict.fromkeys(request.partitions, ErrorCode.INVALID_PRODUCER_EPOCH))
                return
            is_newer = request.epoch > before.request.epoch
            before.refuse(ErrorCode.INVALID_PRODUCER_EPOCH if is_newer else ErrorCode.NETWORK_EXCEPTION)
            before = None
        if before is None:
            waiting[request.transactional_id] = _Waiting(request, [answer])
        else:
            before.request = _merged(before.request, request)
            before.answers.append(answer)
        self._send(broker)

    def _send(self, broker: int) -> None:
        if self._in_flight[broker] >= REQUESTS_MAX or not self._waiting.get(broker):
            return
        sent = self._waiting.pop(broker)
        message = AddPartitionsToTxnRequest(tuple(_message_of(each.request) for each in sent.values()))
        self._in_flight[broker] += 1
        try:
            peer = self._others().peer(broker)
        except ClientError as error:
            asyncio.get_running_loop().call_soon(self._on_outcome, broker, sent, error)
            return
        peer.send(
            message.API_KEY,
            VERSIONS,
            lambda version: codec.write_request(message, version),
            lambda outcome: self._on_outcome(broker, sent, outcome),
        )

    def _on_outcome(self, broker: int, sent: dict[str, _Waiting], outcome: Outcome) -> None:
        self._in_flight[broker] -= 1
        try:
            found = _codes_of(outcome)
            for name, each in sent.items():
                if isinstance(found, ErrorCode):
                    each.refuse(found)
                else:
                    codes = found.get(name, {})
                    missing = ErrorCode.UNKNOWN_SERVER_ERROR
                    each.answer({place: codes.get(place, missing) for place in each.request.partitions})
        finally:
            self._send(broker)


def _belong_together(one: AddRequest, other: AddRequest) -> bool:
    return (one.producer_id, one.epoch, one.version) == (other.producer_id, other.epoch, other.version)


def _merged(one: AddRequest, other: AddRequest) -> AddRequest:
    return AddRequest(one.transactional_id, one.producer_id, one.epoch, one.partitions | other.partitions, one.version)


def _message_of(request: AddRequest) -> AddedTransaction:
    return AddedTransaction(
        request.transactional_id,
        request.producer_id,
        request.epoch,
        tuple(AddedTopic(*each) for each in by_topic(request.partitions)),
        verify_only=request.version < VERSION_OF_ADDING,
    )


def _codes_of(outcome: Outcome) -> ErrorCode | dict[str, Codes]:
    """The error codes by transactional id, or one error code for all."""
    if isinstance(outcome, UnsupportedVersionError):
        return ErrorCode.UNSUPPORTED_VERSION
    if not isinstance(outcome, Answer):
        return ErrorCode.NETWORK_EXCEPTION
    try:
        found = codec.read_response(AddPartitionsToTxnResponse, outcome.api_version, outcome.body)
    except MalformedRequest:
        return ErrorCode.NETWORK_EXCEPTION
    if found.error_code:
        return ErrorCode(found.error_code)
    return {
        transaction.transactional_id: {
            (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for topic in transaction.topic_results
            for partition in topic.results_by_partition
        }
        for transaction in found.results_by_transaction
    }
