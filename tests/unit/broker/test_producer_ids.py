"""Each producer id is handed out once, from allocated blocks."""

from __future__ import annotations

import asyncio

import pytest

from klamm.broker.producer_ids import Block, ProducerIds
from klamm.protocol.errors import ErrorCode, KafkaError


class Controller:
    def __init__(self, size: int = 10) -> None:
        self.blocks = 0
        self.size = size
        self.fail = False

    async def allocate(self) -> Block:
        await asyncio.sleep(0)
        if self.fail:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        first = self.blocks * self.size
        self.blocks += 1
        return Block(first, first + self.size)


async def test_every_id_once_under_concurrency() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    taken = await asyncio.gather(*(ids.take() for _ in range(95)))
    assert sorted(taken) == list(range(95))
    ids.close()


async def test_the_next_block_is_allocated_ahead() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    for _ in range(9):
        await ids.take()
    for _ in range(3):
        await asyncio.sleep(0)
    assert controller.blocks == 2
    ids.close()


async def test_a_failed_allocation_is_retried() -> None:
    controller = Controller()
    controller.fail = True
    ids = ProducerIds(controller.allocate)
    with pytest.raises(KafkaError):
        await ids.take()
    controller.fail = False
    assert await ids.take() == 0
    ids.close()
