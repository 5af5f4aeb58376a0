"""Markers reach every partition, although leaders move, disconnect and reject."""

from __future__ import annotations

import pytest

from klamm.coordinator.transactions.markers import NO_BROKER, REQUESTS_MAX, Finished, MarkerQueues, MarkerRequest
from klamm.coordinator.transactions.shard import WriteMarkers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import Place

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

    def send(self) -> dict[int, MarkerRequest]:
        """The next request to each broker."""
        requests, finished = self.queues.take_requests()
        self.finished += finished
        assert len({request.broker for request in requests}) == len(requests)
        return {request.broker: request for request in requests}

    def answer(self, request: MarkerRequest, code: ErrorCode = NONE) -> list[str]:
        errors = {marker.producer_id: dict.fromkeys(marker.places, code) for marker in request.markers}
        finished, fenced = self.queues.on_answer(request, errors)
        self.finished += finished
        return [name for name, _ in fenced]

    def names(self) -> list[str]:
        """The finished completions."""
        return [finished.transactional_id for finished in self.finished]


def test_each_leader_gets_one_request_with_all_pending_markers() -> None:
    room = Room()
    room.add("x", A, B, C)
    room.add("y", A)
    requests = room.send()
    assert {broker: [marker.places for marker in request.markers] for broker, request in requests.items()} == {
        1: [(A, C), (A,)],
        2: [(B,)],
    }
    assert {marker.coordinator_epoch for request in requests.values() for marker in request.markers} == {5}
    assert room.send() == {}
    room.answer(requests[1])
    assert room.names() == ["y"]
    room.answer(requests[2])
    assert room.names() == ["y", "x"]


def test_requests_do_not_wait_for_each_other() -> None:
    """They are answered in any order, or not at all."""
    room = Room()
    requests = []
    for name in "xyz":
        room.add(name, A)
        requests.append(room.send()[1])
    room.answer(requests[1])
    assert room.names() == ["y"]
    room.queues.on_failure(requests[0])
    room.answer(requests[2])
    assert room.names() == ["y", "z"]
    room.answer(requests[0])
    assert room.names() == ["y", "z"], "its failure is known"
    room.answer(room.send()[1])
    assert room.names() == ["y", "z", "x"]


def test_markers_share_a_request_when_enough_are_in_flight() -> None:
    room = Room()
    requests = []
    for at in range(REQUESTS_MAX):
        room.add(chr(ord("a") + at), A)
        requests.append(room.send()[1])
    room.add("y", A, B)
    room.add("z", A)
    assert set(room.send()) == {2}, "the others wait for a response"
    room.queues.on_failure(requests[3])
    assert [marker.producer_id for marker in room.send()[1].markers] == [1000 + ord(each) for each in "yzd"]


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
    """`None`: the connection was closed."""
    room = Room()
    room.add("x", A, B)
    requests = room.send()
    room.answer(requests[2])
    room.leaders[A] = 3
    if code is None:
        room.queues.on_failure(requests[1])
    else:
        room.answer(requests[1], code)
    assert room.finished == []
    again = room.send()
    assert [marker.places for marker in again[3].markers] == [(A,)]
    room.answer(again[3])
    assert [finished.number for finished in room.finished] == [1]


def test_a_deleted_partition_is_done() -> None:
    room = Room()
    room.add("x", A, B)
    del room.leaders[B]
    requests = room.send()
    assert set(requests) == {1}
    room.answer(requests[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    del room.leaders[A]
    assert room.send() == {}
    assert len(room.finished) == 1


def test_a_partition_without_a_leader_waits_for_one() -> None:
    room = Room()
    room.leaders[A] = NO_BROKER
    room.add("x", A)
    assert room.send() == {}
    assert room.finished == []
    assert set(room.queues.unreachable) == {A}
    room.leaders[A] = 2
    room.answer(room.send()[2])
    assert len(room.finished) == 1


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_coordinator_gives_up(code: ErrorCode) -> None:
    room = Room()
    room.add("x", A, B)
    requests = room.send()
    assert room.answer(requests[1], code) == ["x"]
    assert room.answer(requests[2]) == []
    assert room.send() == {}
    assert (room.finished, len(room.queues)) == ([], 0)


def test_an_answer_to_an_earlier_completion_changes_nothing() -> None:
    """KAFKA-16352: only the same completion is removed, not another one of the same id."""
    room = Room()
    room.add("x", A, number=1)
    old = room.send()
    room.queues.drop(0)
    room.add("x", A, number=2, epoch=6)
    room.answer(old[1], ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert room.finished == []
    again = room.send()
    assert again[1].markers[0].coordinator_epoch == 6
    room.answer(again[1])
    assert [finished.number for finished in room.finished] == [2]


def test_a_partition_that_moves_cancels_its_completions() -> None:
    room = Room()
    room.add("x", A, partition=0)
    room.add("y", A, partition=1)
    room.queues.drop(0)
    requests = room.send()
    assert [marker.producer_id for marker in requests[1].markers] == [1000 + ord("y")]


def test_a_marker_missing_in_the_response_is_sent_again() -> None:
    room = Room()
    room.add("x", A)
    room.queues.on_answer(room.send()[1], {})
    assert set(room.send()) == {1}


def test_a_completion_that_begins_again_replaces_the_earlier_one() -> None:
    """The shard was loaded again in the same leader epoch, while a partition had no leader."""
    room = Room()
    room.leaders[A] = NO_BROKER
    room.add("x", A, B)
    room.answer(room.send()[2])
    room.add("x", A, B)
    room.leaders[A] = 1
    requests = room.send()
    assert [len(request.markers) for request in requests.values()] == [1, 1]
    for request in requests.values():
        room.answer(request)
    assert (room.names(), room.send(), len(room.queues)) == (["x"], {}, 0)


def test_a_marker_does_not_overtake_one_of_an_earlier_completion() -> None:
    """Before transaction.version 2 the earlier one, which comes late, would end the next transaction."""
    room = Room()
    room.add("x", A, B)
    old = room.send()
    room.answer(old[2])
    room.add("x", A, B)
    room.add("y", A)
    sent = room.send()
    assert [marker.producer_id for marker in sent[1].markers] == [1000 + ord("y")]
    assert [marker.producer_id for marker in sent[2].markers] == [1000 + ord("x")]
    room.answer(sent[2])
    room.queues.on_failure(old[1])
    room.answer(room.send()[1])
    assert room.names() == ["x"]
