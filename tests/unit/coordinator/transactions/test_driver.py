"""The coordinator of a node: shards in a loop, and markers that are retried until every partition has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.waiting import until
from tests.unit.coordinator.memory_log import MemoryLog
from tests.unit.coordinator.transactions.harness import A, B

from klamm.coordinator.transactions.config import TransactionConfig
from klamm.coordinator.transactions.driver import TransactionCoordinator
from klamm.coordinator.transactions.markers import NO_BROKER
from klamm.coordinator.transactions.states import State
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import (
    AddRequest,
    EndRequest,
    InitRequest,
    ListTransactionsRequest,
    Marker,
    MarkerErrors,
    Pair,
    Place,
)

ID = "orders"
NONE = ErrorCode.NONE


class Node:
    """A coordinator of two partitions, and brokers that accept markers."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.leaders: dict[Place, int] = {A: 1, B: 2}
        self.written: list[tuple[int, bool, Place]] = []
        self.fails = self.raises = 0
        producer_ids = iter(range(1000, 2000))
        self.coordinator = TransactionCoordinator(
            TransactionConfig(),
            self.log,
            2,
            take_producer_id=lambda: next(producer_ids),
            transaction_version=lambda: 2,
            leader_of=self.leaders.get,
            send_markers=self._send,
        )

    def _send(self, broker: int, markers: list[Marker], answer: Callable[[MarkerErrors | None], None]) -> None:
        if self.raises:
            self.raises -= 1
            raise ConnectionError("broke")
        errors: MarkerErrors | None = None
        if self.fails:
            self.fails -= 1
        else:
            self.written += [(broker, marker.is_commit, place) for marker in markers for place in marker.places]
            errors = {marker.producer_id: dict.fromkeys(marker.places, NONE) for marker in markers}
        asyncio.get_running_loop().call_soon(answer, errors)

    async def start(self) -> None:
        for partition in range(2):
            self.coordinator.on_elected(partition, 1)
        await self.coordinator.loaded()

    async def begun(self, name: str = ID) -> Pair:
        pair = await self.coordinator.init_producer_id(InitRequest(name, 60_000))
        assert pair.error is NONE
        request = AddRequest(name, pair.producer_id, pair.epoch, frozenset({A, B}), 2)
        added: list[ErrorCode] = []
        self.coordinator.add_partitions(request, added.append)
        await until(lambda: added == [NONE])
        return pair

    async def end(self, pair: Pair, name: str = ID, *, commit: bool = True) -> Pair:
        ended: list[Pair] = []
        self.coordinator.end(EndRequest(name, pair.producer_id, pair.epoch, commit, 2), ended.append)
        await until(lambda: bool(ended))
        return ended[0]

    def state(self, name: str = ID) -> State:
        shown = self.coordinator.describe(name).transaction_state
        return next(state for state in State if state.shown == shown)


@pytest.fixture
async def node() -> Node:
    made = Node()
    await made.start()
    return made


async def test_a_transaction_from_its_begin_to_its_markers(node: Node) -> None:
    pair = await node.begun()
    after = await node.end(pair)
    assert (after.error, after.epoch) == (NONE, pair.epoch + 1)
    await until(lambda: node.state() is State.COMPLETE_COMMIT)
    assert sorted(node.written) == [(1, True, A), (2, True, B)]


async def test_markers_are_retried_until_they_are_written(node: Node) -> None:
    node.fails, node.raises = 2, 1
    node.leaders[B] = NO_BROKER
    await node.end(await node.begun(), commit=False)
    await until(lambda: (1, False, A) in node.written)
    assert node.state() is State.PREPARE_ABORT
    await until(lambda: node.coordinator.waiting == (1, 0))
    node.leaders[B] = 3
    node.coordinator.on_metadata()
    await until(lambda: node.state() is State.COMPLETE_ABORT)
    assert (3, False, B) in node.written
    assert node.coordinator.waiting == (0, 0)


async def test_a_partition_that_moves_away_and_back_completes_its_transactions(node: Node) -> None:
    node.leaders[A] = NO_BROKER
    await node.end(await node.begun())
    partition = node.coordinator.partition_for(ID)
    node.coordinator.on_resigned(partition, 2)
    assert node.coordinator.describe(ID).error_code is ErrorCode.NOT_COORDINATOR
    node.leaders[A] = 1
    node.coordinator.on_elected(partition, 3)
    await node.coordinator.loaded()
    await until(lambda: node.state() is State.COMPLETE_COMMIT)


async def test_bad_requests(node: Node) -> None:
    ask = node.coordinator.init_producer_id
    assert (await ask(InitRequest("", 1000))).error is ErrorCode.INVALID_REQUEST
    assert (await ask(InitRequest(ID, 1000, 7))).error is ErrorCode.INVALID_REQUEST
    assert (await ask(InitRequest(ID, 0))).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await ask(InitRequest(ID, 900_001))).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    refused = await ask(InitRequest(ID, 1000), two_phase=True)
    assert refused.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert node.coordinator.describe(ID).error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert node.coordinator.describe("").error_code is ErrorCode.INVALID_REQUEST
    assert node.coordinator.verify(AddRequest(ID, 1, 0, frozenset({A}), 0)) == {
        A: ErrorCode.INVALID_PRODUCER_ID_MAPPING
    }


async def test_lists(node: Node) -> None:
    for name in ("t", "t1", "u"):
        pair = await node.begun(name)
        if name == "u":
            await node.end(pair, name)
    await until(lambda: node.state("u") is State.COMPLETE_COMMIT)

    async def listed(states: tuple[str, ...] = (), pattern: str = "") -> tuple[list[str], list[str]]:
        found = await node.coordinator.list_transactions(ListTransactionsRequest(states, (), -1, pattern))
        assert found.error_code is NONE
        return sorted(each.transactional_id for each in found.transaction_states), list(found.unknown_state_filters)

    assert await listed() == (["t", "t1", "u"], [])
    assert await listed(("Ongoing", "X")) == (["t", "t1"], ["X"])
    assert await listed(("X",)) == ([], ["X"])
    assert await listed(pattern="t") == (["t"], []), "the whole id"
    assert await listed(pattern=r"\pL\d?") == (["t", "t1", "u"], [])
    refused = await node.coordinator.list_transactions(ListTransactionsRequest(transactional_id_pattern="("))
    assert refused.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_hostile_pattern_does_not_block_the_loop(node: Node) -> None:
    """A backtracking matcher would practically never return."""
    await node.begun("a" * 200)
    for pattern in ("(a*)*b", "(a|aa)+b", "(a|a?)+b"):
        found = await node.coordinator.list_transactions(ListTransactionsRequest(transactional_id_pattern=pattern))
        assert (found.error_code, found.transaction_states) == (NONE, ())
    large = ListTransactionsRequest(transactional_id_pattern="((a{1000}){1000}){1000}")
    assert (await node.coordinator.list_transactions(large)).error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
