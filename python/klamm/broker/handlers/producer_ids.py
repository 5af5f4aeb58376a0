"""InitProducerId (22)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from klamm.broker.producer_ids import ProducerIds
from klamm.broker.request import RequestContext
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
    InitRequest,
    Pair,
)
from klamm.protocol.wire.codec import read, write

log = logging.getLogger("klamm.broker.producer_ids")

FENCED_VERSION: Final = 4
"""From this version on, clients know PRODUCER_FENCED."""


class Transactions(Protocol):
    """The transaction coordinator as this handler uses it."""

    async def init_producer_id(self, request: InitRequest, *, two_phase: bool = False) -> Pair:
        """InitProducerId with a transactional id."""
        ...


class ProducerIdHandlers:
    """Serves the API of this file."""

    def __init__(self, producer_ids: ProducerIds, transactions: Callable[[], Transactions]) -> None:
        """`transactions` is called when a producer has a transactional id."""
        self._producer_ids, self._transactions = producer_ids, transactions

    async def init_producer_id(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """A producer id with epoch 0, or what the transaction coordinator decides for a transactional id."""
        request = read(InitProducerIdRequest, version, body)
        pair = await self._pair(request)
        code = pair.error
        if code is ErrorCode.PRODUCER_FENCED and version < FENCED_VERSION:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return write(InitProducerIdResponse(code, pair.producer_id, pair.epoch), version)

    async def _pair(self, request: InitProducerIdRequest) -> Pair:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            return Pair(ErrorCode.INVALID_REQUEST)
        try:
            await self._producer_ids.prepare()
        except KafkaError as error:
            log.warning("the controller did not allocate a block of producer ids: %s", error)
        if request.transactional_id is None:
            producer_id = self._producer_ids.take_now()
            if producer_id is None:
                return Pair(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return Pair(ErrorCode.NONE, producer_id, 0)
        if request.keep_prepared_txn:
            return Pair(ErrorCode.UNSUPPORTED_VERSION)
        return await self._transactions().init_producer_id(
            InitRequest(
                request.transactional_id,
                request.transaction_timeout_ms,
                request.producer_id,
                request.producer_epoch,
            ),
            two_phase=request.enable2_pc,
        )
