"""Verification of transactions at other brokers: some requests in flight, and batching of the others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.support.waiting import until

from klamm.client import ClientError, ConnectionLostError, UnsupportedVersionError
from klamm.client.peer import Answer, OnDone
from klamm.node.coordinators.verification import REQUESTS_MAX, Verification
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import AddRequest, read_add_partitions, write_add_partitions
from klamm.protocol.wire import codec

HERE, THERE = 1, 2
A, B = ("t", 0), ("t", 1)
NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
RETRIES_FOR_MS = 20_000


class Others:
    """The broker `THERE`, whose responses are given by the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, OnDone]] = []

    def peer(self, broker: int) -> Others:
        assert broker == THERE
        return self

    def send(self, api_key: int, versions: tuple[int, int], body_of: Callable[[int], bytes], on_done: OnDone) -> None:
        assert (api_key, versions) == (24, (4, 5))
        self.sent.append((body_of(5), on_done))

    def asked(self, at: int = 0) -> list[tuple[str, int, bool, list[tuple[str, tuple[int, ...]]]]]:
        """The entries of a request."""
        return [
            (one.transactional_id, one.producer_epoch, one.verify_only, [(t.name, t.partitions) for t in one.topics])
            for one in read_add_partitions(5, self.sent[at][0])
        ]

    def answer(self, code: ErrorCode = NONE, at: int = 0) -> None:
        body, on_done = self.sent.pop(at)
        results = [
            (one, {(topic.name, index): code for topic in one.topics for index in topic.partitions})
            for one in read_add_partitions(5, body)
        ]
        on_done(Answer(5, write_add_partitions(5, results)))

    def fail(self, error: ClientError) -> None:
        self.sent.pop(0)[1](error)


class Room:
    def __init__(self) -> None:
        self.others = Others()
        self.coordinators: dict[str, int] = {}
        self.answers: dict[str, Any] = {}
        self.here: list[ErrorCode] = []
        self.waits_ms: list[int] = []
        """How long this broker's coordinator may hold each request."""
        self.verification = Verification(
            HERE,
            lambda: self,  # type: ignore[arg-type, return-value]
            lambda name: self.coordinators.get(name, THERE),
            lambda: self.others,  # type: ignore[arg-type, return-value]
            retry_ms=1,
            retries_for_ms=RETRIES_FOR_MS,
        )

    def ask(self, label: str, name: str, *places: tuple[str, int], epoch: int = 0, adds: bool = True) -> None:
        request = AddRequest(name, 7, epoch, frozenset(places), 2 if adds else 0)
        self.verification.ask(request, lambda codes: self.answers.update({label: dict(codes)}))

    def fill(self) -> None:
        """As many requests are in flight as may be."""
        for at in range(REQUESTS_MAX):
            self.ask(f"filling {at}", f"filling-{at}", A)

    def add_partitions(self, request: AddRequest, answer: Callable[[ErrorCode], None], *, wait_ms: int) -> None:
        self.waits_ms.append(wait_ms)
        answer(self.here.pop(0))

    def verify(self, request: AddRequest) -> dict[tuple[str, int], ErrorCode]:
        return dict.fromkeys(request.partitions, ErrorCode.TRANSACTION_ABORTABLE)


@pytest.fixture
async def room() -> Room:
    return Room()


async def test_requests_do_not_wait_for_each_other(room: Room) -> None:
    room.ask("x", "x", A)
    room.ask("y", "y", B, adds=False)
    assert room.others.asked() == [("x", 0, False, [("t", (0,))])]
    room.others.answer(at=1)
    assert room.answers == {"y": {B: NONE}}
    room.others.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert room.answers["x"] == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert not room.others.sent


async def test_transactions_share_a_request_when_enough_are_in_flight(room: Room) -> None:
    room.fill()
    room.ask("y", "y", B, adds=False)
    room.ask("z", "z", A, B)
    assert len(room.others.sent) == REQUESTS_MAX
    room.others.answer(at=3)
    assert len(room.others.sent) == REQUESTS_MAX
    assert room.others.asked(-1) == [("y", 0, True, [("t", (1,))]), ("z", 0, False, [("t", (0, 1))])]
    room.others.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING, at=-1)
    assert room.answers["z"] == dict.fromkeys((A, B), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert len(room.others.sent) == REQUESTS_MAX - 1


async def test_requests_of_one_producer_share_an_entry(room: Room) -> None:
    room.fill()
    room.ask("one", "x", A)
    room.ask("two", "x", B)
    room.others.answer()
    assert room.others.asked(-1) == [("x", 0, False, [("t", (0, 1))])]
    room.others.answer(at=-1)
    assert room.answers["one"][A] is NONE
    assert room.answers["two"][B] is NONE


async def test_the_older_of_two_epochs_is_rejected(room: Room) -> None:
    room.fill()
    room.ask("old", "x", A, epoch=1)
    room.ask("new", "x", A, epoch=2)
    room.ask("older", "x", A, epoch=0)
    fenced = {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert room.answers == {"old": fenced, "older": fenced}
    room.others.answer()
    assert room.others.asked(-1) == [("x", 2, False, [("t", (0,))])]


async def test_failures(room: Room) -> None:
    for error, code in (
        (ConnectionLostError("lost"), ErrorCode.NETWORK_EXCEPTION),
        (UnsupportedVersionError("old"), ErrorCode.UNSUPPORTED_VERSION),
    ):
        room.ask("x", "x", A)
        room.others.fail(error)
        assert room.answers.pop("x") == {A: code}
    room.ask("x", "x", A)
    body = codec.encode(
        codec.build(
            codec.response_class(24, 5), error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=()
        )
    )
    room.others.sent.pop(0)[1](Answer(5, body))
    assert room.answers.pop("x") == {A: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    room.ask("x", "x", A)
    room.others.sent.pop(0)[1](Answer(5, b"?"))
    assert room.answers.pop("x") == {A: ErrorCode.NETWORK_EXCEPTION}


async def test_adding_is_retried_while_the_previous_transaction_completes(room: Room) -> None:
    room.ask("x", "x", A)
    room.others.answer(BUSY)
    await until(lambda: bool(room.others.sent))
    assert room.answers == {}
    room.others.answer()
    assert room.answers == {"x": {A: NONE}}
    room.ask("y", "y", A, adds=False)
    room.others.answer(BUSY)
    assert room.answers["y"] == {A: BUSY}, "verifying is not"


async def test_a_coordinator_of_this_broker(room: Room) -> None:
    room.coordinators["x"] = HERE
    room.here = [BUSY, NONE]
    room.ask("x", "x", A, B)
    await until(lambda: "x" in room.answers)
    assert room.answers["x"] == {A: NONE, B: NONE}
    first_ms, second_ms = room.waits_ms
    assert 0 <= second_ms <= first_ms <= RETRIES_FOR_MS, "as long as it would be tried again"
    assert first_ms > 0
    room.ask("v", "x", A, adds=False)
    assert room.answers["v"] == {A: ErrorCode.TRANSACTION_ABORTABLE}
    assert not room.others.sent


async def test_no_coordinator(room: Room) -> None:
    room.coordinators["x"] = None  # type: ignore[assignment]
    room.ask("x", "x", A)
    assert room.answers == {"x": {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}}


@pytest.mark.parametrize("coordinator", [HERE, THERE])
async def test_an_answered_request_is_freed_without_the_garbage_collector(room: Room, coordinator: int) -> None:
    room.coordinators["x"] = coordinator
    room.here = [BUSY, NONE]
    answers: list[Any] = []
    answer = partial(answers.append)
    freed = weakref.ref(answer)
    room.verification.ask(AddRequest("x", 7, 0, frozenset({A}), 2), answer)
    del answer
    if coordinator == THERE:
        room.others.answer(BUSY)
        await until(lambda: room.others.sent)
        room.others.answer()
    await until(lambda: answers)
    assert answers == [{A: NONE}]
    # Collecting what thousands of transactions left takes a third of a second, in which the node answers nothing.
    assert freed() is None
