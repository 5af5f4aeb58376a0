"""The transaction coordinator of a node: the transaction APIs on top of the shards of the coordinator runtime."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from klamm._engine.groups import TopicPattern
from klamm.coordinator.runtime.driver import CoordinatorRuntime, into
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.coordinator.runtime.log import CoordinatorLog
from klamm.coordinator.runtime.placement import partition_of
from klamm.coordinator.transactions.config import TIMEOUT_OF_TWO_PHASES_MS, TransactionConfig
from klamm.coordinator.transactions.markers import Finished, MarkerQueues, MarkerRequest
from klamm.coordinator.transactions.shard import TransactionEffects, TransactionShard, WriteMarkers
from klamm.coordinator.transactions.states import State
from klamm.driving.deadlines import Deadlines
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    AddRequest,
    DescribedTopic,
    DescribedTransaction,
    EndRequest,
    InitRequest,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    Marker,
    MarkerErrors,
    Pair,
    Place,
    by_topic,
)

T = TypeVar("T")

log: Final = logging.getLogger("klamm.coordinator")

RETRY_MS: Final = 20
"""The pause before markers are retried whose leader rejected them or is unknown."""

SendMarkers = Callable[[int, Sequence[Marker], Callable[[MarkerErrors | None], None]], None]
"""Sends markers to a broker, and calls back once with its answer, or None if there is none."""


class TransactionCoordinator:
    """Answers the transaction APIs for the partitions of `__transaction_state` that this node leads.

    Call all methods in the loop's thread. Errors are in the responses, not raised.
    """

    def __init__(
        self,
        config: TransactionConfig,
        state_log: CoordinatorLog,
        partition_count: int,
        *,
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        leader_of: Callable[[Place], int | None],
        send_markers: SendMarkers,
    ) -> None:
        self._config: Final = config
        self._partition_count = partition_count
        self._send_markers = send_markers
        self._queues = MarkerQueues(leader_of)
        self._deadlines = Deadlines()
        self._is_trying_again = False
        self._is_sending_soon = self._is_closed = False
        self.runtime: Final = CoordinatorRuntime(
            state_log,
            lambda: TransactionShard(config, take_producer_id, transaction_version),
            carry_out=self._carry_out,
        )

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` for a transactional id."""
        return partition_of(transactional_id, self._partition_count)

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node became leader of the partition: load it. Markers of an earlier epoch are not sent any more."""
        self._queues.drop(partition)
        self.runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This node lost the leadership of the partition, in `leader_epoch` if that is known."""
        self._queues.drop(partition)
        self.runtime.on_resigned(partition, leader_epoch)

    def on_metadata(self) -> None:
        """Leaders have changed: markers that wait may have somewhere to go."""
        if self._queues.has_retries:
            self._send(again=True)

    def use_partition_count(self, partition_count: int) -> None:
        """How many partitions `__transaction_state` has."""
        self._partition_count = partition_count

    @property
    def waiting(self) -> tuple[int, int]:
        """How many markers wait for a leader, and how many completions are written again after a failure."""
        retries = sum(hosted.shard.retried_completions for hosted in self.runtime.shards.all())
        return len(list(self._queues.unreachable)), retries

    def on_pause(self, pause_ms: int) -> None:
        """The process did not run for `pause_ms`."""
        self.runtime.on_pause(pause_ms)

    async def loaded(self) -> None:
        """Wait until each partition that this node leads is active or failed to load."""
        await self.runtime.loaded()

    def close(self) -> None:
        """Unload all partitions. Waiting requests are answered with NOT_COORDINATOR."""
        self._is_closed = True
        self.runtime.close()
        self._deadlines.close()

    # Requests

    async def init_producer_id(self, request: InitRequest, *, two_phase: bool = False) -> Pair:
        """InitProducerId (22) with a transactional id."""
        if not request.transactional_id:
            return Pair(ErrorCode.INVALID_REQUEST)
        if two_phase and not self._config.two_phase_commit_enable:
            return Pair(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (request.producer_id == NO_PRODUCER_ID) != (request.epoch == NO_EPOCH):
            return Pair(ErrorCode.INVALID_REQUEST)
        if two_phase:
            request = InitRequest(
                request.transactional_id, TIMEOUT_OF_TWO_PHASES_MS, request.producer_id, request.epoch
            )
        elif not 0 < request.timeout_ms <= self._config.transaction_max_timeout_ms:
            return Pair(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        future: asyncio.Future[Pair] = asyncio.get_running_loop().create_future()
        self._submit(request.transactional_id, into(future), Pair, TransactionShard.on_init_producer_id, request)
        return await future

    def add_partitions(
        self, request: AddRequest, answer: Callable[[ErrorCode], None], *, wait_ms: int | None = None
    ) -> None:
        """AddPartitionsToTxn (24) of one transaction, and AddOffsetsToTxn (25).

        The answer waits up to `wait_ms` for the end of an earlier transaction; without it, for the time of the sender's
        own retry.
        """
        if not request.transactional_id:
            answer(ErrorCode.INVALID_REQUEST)
            return
        event = TransactionShard.on_add_partitions
        self._submit(request.transactional_id, answer, ErrorCode, event, request, wait_ms)

    def verify(self, request: AddRequest) -> dict[Place, ErrorCode]:
        """AddPartitionsToTxn (24) of one transaction with VerifyOnly."""
        try:
            if not request.transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            return self._hosted(request.transactional_id).shard.verify(request)
        except KafkaError as error:
            return dict.fromkeys(request.partitions, error.code)

    def end(self, request: EndRequest, answer: Callable[[Pair], None]) -> None:
        """EndTxn (26)."""
        if not request.transactional_id:
            answer(Pair(ErrorCode.INVALID_REQUEST))
            return
        self._submit(request.transactional_id, answer, Pair, TransactionShard.on_end, request)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """DescribeTransactions (65) of one id."""
        try:
            if not transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            found = self._hosted(transactional_id).shard.describe(transactional_id)
        except KafkaError as error:
            return DescribedTransaction(transactional_id, error.code)
        if found is None:
            return DescribedTransaction(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return DescribedTransaction(
            transactional_id,
            ErrorCode.NONE,
            found.state.shown,
            found.timeout_ms,
            found.start_ms,
            found.producer_id,
            found.epoch,
            tuple(DescribedTopic(*each) for each in by_topic(found.partitions)),
        )

    async def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """ListTransactions (66). Patterns are a client's, so they are compiled and matched outside of the loop."""
        pattern: TopicPattern | None = None
        try:
            if request.transactional_id_pattern:
                pattern = await asyncio.to_thread(TopicPattern, request.transactional_id_pattern)
            shards = self.runtime.shards.all_active()
        except ValueError:
            return ListTransactionsResponse(ErrorCode.INVALID_REGULAR_EXPRESSION)
        except KafkaError as error:
            return ListTransactionsResponse(error.code)
        known = {state.shown: state for state in State}
        names = request.state_filters
        wanted = frozenset(known[name] for name in names if name in known)
        unknown = tuple(name for name in names if name not in known)
        if names and not wanted:
            return ListTransactionsResponse(ErrorCode.NONE, unknown)
        ids, now_ms = frozenset(request.producer_id_filters), self.runtime.now_ms()
        listed = tuple(
            ListedTransaction(each.transactional_id, each.producer_id, each.state.shown)
            for hosted in shards
            for each in hosted.shard.listed(now_ms, wanted, ids, request.duration_filter)
        )
        if pattern is not None:
            matched = set(await asyncio.to_thread(pattern.among, [each.transactional_id for each in listed]))
            listed = tuple(each for each in listed if each.transactional_id in matched)
        return ListTransactionsResponse(ErrorCode.NONE, unknown, listed)

    def _hosted(self, transactional_id: str) -> HostedShard[TransactionShard]:
        return self.runtime.shards.active(self.partition_for(transactional_id))

    def _submit(
        self,
        transactional_id: str,
        answer: Callable[[T], None],
        refuse: Callable[[ErrorCode], T],
        event: Any,
        *arguments: Any,
    ) -> None:
        try:
            hosted = self._hosted(transactional_id)
        except KafkaError as error:
            answer(refuse(error.code))
        else:
            self.runtime.submit(hosted, answer, refuse, getattr(hosted.shard, event.__name__), *arguments)

    # Markers

    def _carry_out(self, hosted: HostedShard[TransactionShard], markers: WriteMarkers) -> None:
        self._queues.add(hosted.partition, hosted.leader_epoch, markers)
        if not self._is_sending_soon:
            self._is_sending_soon = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self, *, again: bool = False) -> None:
        self._is_sending_soon = False
        if self._is_closed:
            return
        requests, finished = self._queues.take_requests(again=again)
        self._finish(finished)
        for request in requests:
            try:
                self._send_markers(request.broker, request.markers, partial(self._on_answer, request))
            except Exception:  # of any kind: the markers must be sent
                log.exception("markers for broker %d could not be sent, and are sent again", request.broker)
                self._on_answer(request, None)
        self._try_again()

    def _on_answer(self, request: MarkerRequest, errors: MarkerErrors | None) -> None:
        if errors is None:
            self._queues.on_failure(request)
        else:
            finished, fenced = self._queues.on_answer(request, errors)
            self._finish(finished)
            for transactional_id, code in fenced:
                log.info("another coordinator ends the transaction of %s: %s", transactional_id, code.name)
        self._send()

    def _try_again(self) -> None:
        if not self._is_trying_again and self._queues.has_retries:
            self._is_trying_again = True
            self._deadlines.add(RETRY_MS, self._on_retry)

    def _on_retry(self) -> None:
        self._is_trying_again = False
        self._send(again=True)

    def _finish(self, finished: Iterable[Finished]) -> None:
        for each in finished:
            hosted = self.runtime.shards.get(each.partition)
            if hosted is not None:
                self.runtime.feed(hosted, partial(_on_markers_written, finished=each))


def _on_markers_written(shard: TransactionShard, now_ms: int, *, finished: Finished) -> TransactionEffects:
    return shard.on_markers_written(now_ms, finished.transactional_id, finished.number)
