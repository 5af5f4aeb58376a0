"""Transactions with very many partitions are served, or rejected without a change."""

from __future__ import annotations

from klamm.coordinator.transactions.states import State
from klamm.protocol.errors import ErrorCode

from .harness import Room

MANY = 10_001


def test_a_transaction_over_more_than_10000_partitions() -> None:
    room = Room()
    pair = room.ready()
    places = [("topic", index) for index in range(MANY)]
    assert room.add(pair, *places) is ErrorCode.NONE
    assert room.restarted().transaction().partitions == set(places)
    room.end(pair)
    [markers] = room.write_markers()
    assert markers.partitions == set(places)
    assert room.transaction().state is State.COMPLETE_COMMIT


def test_partitions_whose_record_is_too_large_are_not_added() -> None:
    room = Room()
    pair = room.ready()
    assert room.add(pair, ("topic", 0)) is ErrorCode.NONE
    log = list(room.log)
    assert room.add(pair, *((f"topic-{at:0200}", 0) for at in range(MANY))) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert room.log == log
    assert room.transaction().partitions == {("topic", 0)}
    assert room.add(pair, ("topic", 1)) is ErrorCode.NONE, "the transaction continues"
