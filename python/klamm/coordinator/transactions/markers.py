"""Which markers to send to which broker (Kafka's `TransactionMarkerChannelManager`). No I/O.

A completion is one transaction whose Prepare record is committed: each of its partitions gets a marker. Each broker has
up to `REQUESTS_MAX` requests in flight; what comes meanwhile shares the next one (docs/decisions/0076). A partition
without a leader waits until it has one, as in Apache Kafka up to 4.2: 4.3 counts it as done and leaves its transaction
open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from klamm.coordinator.transactions.shard import WriteMarkers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import Marker, MarkerErrors, Place
from klamm.protocol.value import Value

REQUESTS_MAX: Final = 8
"""Requests in flight to one broker."""

NO_BROKER: Final = -1
"""The leader of a partition that exists and cannot be reached now."""

DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has taken over: it writes the markers."""


class Finished(Value):
    """Every partition of a completion has its marker."""

    partition: int
    transactional_id: str
    number: int


@dataclass(slots=True, eq=False)
class _Completion:
    partition: int
    coordinator_epoch: int
    markers: WriteMarkers
    missing: set[Place]
    """The partitions whose marker is not known to be written."""


class MarkerRequest(Value):
    """A WriteTxnMarkers request. `number` distinguishes it from all others."""

    number: int
    broker: int
    markers: tuple[Marker, ...]


_Queue = dict[_Completion, list[Place]]
_Sent = list[tuple[_Completion, Marker]]


class MarkerQueues:
    """The markers of all completions of a node.

    `leader_of` returns the broker that leads a partition, `NO_BROKER`, or None if there is no such partition any more.
    """

    def __init__(self, leader_of: Callable[[Place], int | None]) -> None:
        self._leader_of = leader_of
        self._completions: dict[tuple[int, str], _Completion] = {}
        self._new: _Queue = {}
        self._again: _Queue = {}
        """Rejected and lost markers, and those of partitions without a leader."""
        self._queues: dict[int, _Queue] = {}
        """The markers that wait for a response, by broker."""
        self._in_flight: dict[int, dict[int, _Sent]] = {}
        """By broker and number of the request."""
        self._numbers = itertools.count(1)
        self._finished: list[_Completion] = []

    def __len__(self) -> int:
        return len(self._completions)

    @property
    def has_retries(self) -> bool:
        """Whether `take_requests` with `again` may have something to send."""
        return bool(self._again)

    def add(self, partition: int, coordinator_epoch: int, markers: WriteMarkers) -> None:
        """Begin a completion; again, if its shard was loaded again."""
        earlier = self._completions.get((partition, markers.transactional_id))
        if earlier is not None:
            self._remove(earlier)
        completion = _Completion(partition, coordinator_epoch, markers, set(markers.partitions))
        self._completions[partition, markers.transactional_id] = completion
        self._new[completion] = sorted(markers.partitions)

    def drop(self, partition: int) -> None:
        """This node no longer leads the partition of `__transaction_state`, or leads it in a new epoch."""
        for completion in [each for each in self._completions.values() if each.partition == partition]:
            self._remove(completion)

    def _remove(self, completion: _Completion) -> None:
        del self._completions[completion.partition, completion.markers.transactional_id]
        for queue in (self._new, self._again, *self._queues.values()):
            queue.pop(completion, None)

    def take_requests(self, *, again: bool = True) -> tuple[list[MarkerRequest], list[Finished]]:
        """The requests to send now, and the completions that ended because their partitions were deleted.

        With `again`, also rejected markers and those that had no leader. Leaders are looked up here.
        """
        places, self._new = self._new, {}
        self._place(places)
        if again:
            places, self._again = self._again, {}
            self._place(places)
        requests = [request for broker in list(self._queues) if (request := self._next_request(broker)) is not None]
        return requests, self._take_finished()

    def _place(self, places: _Queue) -> None:
        for completion, found in places.items():
            for place in found:
                broker = self._leader_of(place)
                if broker is None:
                    self._on_written(completion, place)
                else:
                    queue = self._again if broker == NO_BROKER else self._queues.setdefault(broker, {})
                    queue.setdefault(completion, []).append(place)

    def _next_request(self, broker: int) -> MarkerRequest | None:
        in_flight = self._in_flight.setdefault(broker, {})
        if len(in_flight) >= REQUESTS_MAX:
            return None
        ready, held = self._split(self._queues.pop(broker), in_flight)
        if held:
            self._queues[broker] = held
        if not ready:
            return None
        sent = [(completion, _marker(completion, tuple(places))) for completion, places in ready.items()]
        request = MarkerRequest(next(self._numbers), broker, tuple(marker for _, marker in sent))
        in_flight[request.number] = sent
        return request

    def _split(self, queue: _Queue, in_flight: dict[int, _Sent]) -> tuple[_Queue, _Queue]:
        """What may be sent, and what waits for the response to a marker that an earlier completion sent.

        Before transaction.version 2 the earlier marker would end the next transaction if the later one overtook it.
        """
        earlier = {
            _producer_id(completion)
            for sent in in_flight.values()
            for completion, _ in sent
            if not self._is_current(completion)
        }
        held = {completion: queue.pop(completion) for completion in list(queue) if _producer_id(completion) in earlier}
        return queue, held

    def on_answer(
        self, request: MarkerRequest, errors: MarkerErrors
    ) -> tuple[list[Finished], list[tuple[str, ErrorCode]]]:
        """A broker has responded, with an error for each producer id and partition.

        Returns the completions that are finished, and the transactional ids whose markers another coordinator writes.
        """
        fenced = []
        for completion, marker in self._take_sent(request):
            found = errors.get(marker.producer_id, {})
            codes = {place: found.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in marker.places}
            refused = next((code for code in codes.values() if code in FENCED), None)
            if refused is not None:
                self._remove(completion)
                fenced.append((completion.markers.transactional_id, refused))
                continue
            for place, code in codes.items():
                if code in DONE:
                    self._on_written(completion, place)
                else:
                    self._again.setdefault(completion, []).append(place)
        return self._take_finished(), fenced

    def on_failure(self, request: MarkerRequest) -> None:
        """The connection broke, or the broker did not answer in time."""
        for completion, marker in self._take_sent(request):
            self._again.setdefault(completion, []).extend(marker.places)

    def _take_sent(self, request: MarkerRequest) -> Iterator[tuple[_Completion, Marker]]:
        """The markers of a request that is no longer in flight, except those of completions that ended meanwhile."""
        sent = self._in_flight[request.broker].pop(request.number, [])
        return (each for each in sent if self._is_current(each[0]))

    def _on_written(self, completion: _Completion, place: Place) -> None:
        completion.missing.discard(place)
        if not completion.missing:
            self._finished.append(completion)

    def _is_current(self, completion: _Completion) -> bool:
        key = completion.partition, completion.markers.transactional_id
        return self._completions.get(key) is completion

    def _take_finished(self) -> list[Finished]:
        finished, self._finished = self._finished, []
        for completion in finished:
            self._remove(completion)
        return [_finished(completion) for completion in finished]

    @property
    def unreachable(self) -> Iterable[Place]:
        """Partitions that wait for a leader."""
        waiting = {place for places in self._again.values() for place in places}
        return {place for place in waiting if self._leader_of(place) == NO_BROKER}


def _producer_id(completion: _Completion) -> int:
    return completion.markers.producer_id


def _marker(completion: _Completion, places: tuple[Place, ...]) -> Marker:
    ended = completion.markers
    return Marker(ended.producer_id, ended.epoch, ended.is_commit, completion.coordinator_epoch, ended.version, places)


def _finished(completion: _Completion) -> Finished:
    return Finished(completion.partition, completion.markers.transactional_id, completion.markers.number)
