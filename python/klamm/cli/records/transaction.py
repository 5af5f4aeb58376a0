"""The transaction of `klamm produce --transactional`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm import records
from klamm.admin.client import Client, check, retried
from klamm.cli.records.record_input import Row
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import (
    AddedTopic,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

TIMEOUT_MS: Final = 900_000
"""The largest that brokers allow by default. If the command is killed, the transaction is aborted after this time, or
when the command begins again with the same id.
"""
INIT_VERSION_MAX: Final = 4
ADD_VERSION_MAX: Final = 3
"""Later versions are for brokers."""
END_VERSION_MAX: Final = 4
"""Later versions begin another epoch with each transaction; this command has only one."""
PASSING: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)
"""An earlier transaction of the id is being ended."""


class Transaction:
    """One transaction. It fences earlier producers with its id, and aborts what they left open."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        """Raises ClientError."""
        self._client, self.id = client, transactional_id
        self._sequences: dict[tuple[str, int], int] = {}
        self.is_ending = False
        """Whether the end was sent. Unless `end` returns, its outcome is unknown."""
        request = InitProducerIdRequest(transactional_id, TIMEOUT_MS)

        def ask() -> InitProducerIdResponse:
            answer = self._coordinator.ask(request, InitProducerIdResponse, INIT_VERSION_MAX)
            self._check(answer.error_code)
            return answer

        begun = retried(ask, passing=PASSING)
        self._producer = begun.producer_id, begun.producer_epoch

    def batch(self, topic: str, partition: int, rows: Sequence[Row], compression: str) -> bytes:
        """The next batch of a partition, which belongs to the transaction from its first one on."""
        place = (topic, partition)
        if place not in self._sequences:
            retried(lambda: self._add(topic, partition), passing=PASSING)
            self._sequences[place] = 0
        producer_id, producer_epoch = self._producer
        data = records.encode(
            rows,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._sequences[place],
            transactional=True,
        )
        self._sequences[place] += len(rows)
        return data

    def _add(self, topic: str, partition: int) -> None:
        request = AddPartitionsToTxnRequest((), self.id, *self._producer, (AddedTopic(topic, (partition,)),))
        answer = self._coordinator.ask(request, AddPartitionsToTxnResponse, ADD_VERSION_MAX)
        for result in answer.results_by_topic_v3_and_below:
            for one in result.results_by_partition:
                self._check(one.partition_error_code)

    def end(self, *, commit: bool) -> None:
        """Commit or abort. Without any record there is nothing to end. Raises ClientError."""
        if not self._sequences:
            return
        self.is_ending = True
        request = EndTxnRequest(self.id, *self._producer, commit)

        def ask() -> None:
            self._check(self._coordinator.ask(request, EndTxnResponse, END_VERSION_MAX).error_code)

        retried(ask, passing=PASSING)

    @property
    def _coordinator(self) -> Connection:
        return self._client.broker(self._client.coordinator_of_transactions(self.id))

    def _check(self, code: int) -> None:
        check(code, f"transactional id {self.id}")
