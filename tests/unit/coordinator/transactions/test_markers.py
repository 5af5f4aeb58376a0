"""Markers reach every partition, although leaders move, disconnect and reject."""

from __future__ import annotations

import pytest

from klamm.coordinator.transactions.markers import NO_BROKER, Finished, MarkerQueues
from klamm.coordinator.transactions.shard import WriteMarkers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import Marker, Place

A, B, C = ("a", 0), ("a", 1), ("b", 0)
NONE = ErrorCode.NONE


class Room:
    def __init__(self) -> None:
        self.leaders: dict[Place, int] = {A: 1, B: 2, C: 1}
        self.queues = MarkerQueues(self.leaders.get)
        self.finished: list[Finished] = []

    def add(self, name: str, *places: Place, number: int = 1, epoch: int = 5, partition: int = 0) -> None:
        producer_id = 1000 + ord(name[0])
        self.queues.add(partition, epoch, WriteMarkers(name, number, producer_id, 3, True, frozenset(places), 2))

    def send(self) -> dict[int, list[Marker]]:
        requests, finished = self.queues.take_requests()
        self.finished += finished
        return requests

    def answer(self, broker: int, markers: list[Marker], code: ErrorCode = NONE) -> list[str]:
        errors = {marker.producer_id: dict.fromkeys(marker.places, code) for marker in markers}
        finished, fenced = self.queues.on_answer(broker, errors)
        self.finished += finished
        return [name for name, _ in fenced]


def test_each_leader_gets_one_request_with_all_pending_markers() -> None:
    room = Room()
    room.add("x", A, B, C)
    room.add("y", A)
    requests = room.send()
    assert {broker: [entry.places for entry in entries] for broker, entries in requests.items()} == {
        1: [(A, C), (A,)],
        2: [(B,)],
    }
    assert {entry.coordinator_epoch for entries in requests.values() for entry in entries} == {5}
    assert room.send() == {}, "one in flight"
    room.add("z", A)
    assert room.send() == {}
    room.answer(1, requests[1])
    assert [finished.transactional_id for finished in room.finished] == ["y"]
    assert [entry.places for entry in room.send()[1]] == [(A,)]
    room.answer(2, requests[2])
    assert [finished.transactional_id for finished in room.finished] == ["y", "x"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        None,
    ],
)
def test_a_marker_goes_to_the_next_leader(code: ErrorCode | None) -> None:
    """Conformance case 30. None: the connection was closed."""
    room = Room()
    room.add("x", A, B)
    requests = room.send()
    room.answer(2, requests[2])
    room.leaders[A] = 3
    if code is None:
        room.queues.on_failure(1)
    else:
        room.answer(1, requests[1], code)
    assert room.finished == []
    again = room.send()
    assert [entry.places for entry in again[3]] == [(A,)]
    room.answer(3, again[3])
    assert [finished.number for finished in room.finished] == [1]


def test_a_deleted_partition_is_done() -> None:
    """Conformance case 31."""
    room = Room()
    room.add("x", A, B)
    del room.leaders[B]
    requests = room.send()
    assert set(requests) == {1}
    room.answer(1, requests[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    del room.leaders[A]
    assert room.send() == {}
    assert len(room.finished) == 1


def test_a_partition_without_a_leader_waits_for_one() -> None:
    """Conformance case 32."""
    room = Room()
    room.leaders[A] = NO_BROKER
    room.add("x", A)
    assert room.send() == {}
    assert room.finished == []
    assert set(room.queues.unreachable) == {A}
    room.leaders[A] = 2
    room.answer(2, room.send()[2])
    assert len(room.finished) == 1


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_coordinator_gives_up(code: ErrorCode) -> None:
    room = Room()
    room.add("x", A, B)
    requests = room.send()
    assert room.answer(1, requests[1], code) == ["x"]
    assert room.answer(2, requests[2]) == []
    assert room.send() == {}
    assert (room.finished, len(room.queues)) == ([], 0)


def test_an_answer_to_an_earlier_completion_changes_nothing() -> None:
    """KAFKA-16352: only the same completion is removed, not another one of the same id."""
    room = Room()
    room.add("x", A, number=1)
    old = room.send()
    room.queues.drop(0)
    room.add("x", A, number=2, epoch=6)
    room.answer(1, old[1], ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert room.finished == []
    again = room.send()
    assert again[1][0].coordinator_epoch == 6
    room.answer(1, again[1])
    assert [finished.number for finished in room.finished] == [2]


def test_a_partition_that_moves_cancels_its_completions() -> None:
    room = Room()
    room.add("x", A, partition=0)
    room.add("y", A, partition=1)
    room.queues.drop(0)
    requests = room.send()
    assert [marker.producer_id for marker in requests[1]] == [1000 + ord("y")]


def test_a_marker_missing_in_the_response_is_sent_again() -> None:
    room = Room()
    room.add("x", A)
    room.send()
    room.queues.on_answer(1, {})
    assert set(room.send()) == {1}
