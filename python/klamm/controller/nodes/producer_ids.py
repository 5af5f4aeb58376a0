"""Blocks of producer ids for brokers (KIP-730)."""

from __future__ import annotations

from typing import Final

from klamm.controller.result import Result
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.generated.metadata_records import ProducerIdsRecord
from klamm.protocol.messages.registration import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK_SIZE: Final = 1_000
_INT64_MAX: Final = (1 << 63) - 1


def allocate(state: Speculation, request: AllocateProducerIdsRequest) -> Result[AllocateProducerIdsResponse]:
    """The next block. Raises STALE_BROKER_EPOCH, or UNKNOWN_SERVER_ERROR when int64 is used up."""
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    start = state.image.next_producer_id or 0
    if start > _INT64_MAX - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Producer ids are used up: the next would be {start}")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK_SIZE
    )
    answer = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
    return Result(answer, [state.encode(record)])
