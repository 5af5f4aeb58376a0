"""Which markers to send to which broker (Kafka's `TransactionMarkerChannelManager`). No I/O.

A completion is one transaction whose Prepare record is committed: each of its partitions gets a marker. Each broker has
one request in flight, with everything that waited for it. A partition without a leader waits until it has one, as in
Apache Kafka up to 4.2: 4.3 counts it as done and leaves its transaction open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from klamm.coordinator.transactions.shard import WriteMarkers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import Marker, MarkerErrors, Place
from klamm.protocol.value import Value

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


_Queue = dict[_Completion, list[Place]]


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
        """What waits for the request in flight, by broker."""
        self._in_flight: dict[int, list[tuple[_Completion, Marker]]] = {}
        self._finished: list[_Completion] = []

    def __len__(self) -> int:
        return len(self._completions)

    @property
    def has_retries(self) -> bool:
        """Whether `take_requests` with `again` may have something to send."""
        return bool(self._again)

    def add(self, partition: int, coordinator_epoch: int, markers: WriteMarkers) -> None:
        """Begin a completion."""
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

    def take_requests(self, *, again: bool = True) -> tuple[dict[int, list[Marker]], list[Finished]]:
        """The requests to send now, by broker, and the completions that ended because their partitions were deleted.

        With `again`, also rejected markers and those that had no leader. Leaders are looked up here.
        """
        places, self._new = self._new, {}
        self._place(places)
        if again:
            places, self._again = self._again, {}
            self._place(places)
        free = [broker for broker in self._queues if broker not in self._in_flight]
        requests = {broker: self._send(broker, queue) for broker in free if (queue := self._queues.pop(broker))}
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

    def _send(self, broker: int, queue: _Queue) -> list[Marker]:
        sent = [(completion, _marker(completion, tuple(places))) for completion, places in queue.items()]
        self._in_flight[broker] = sent
        return [marker for _, marker in sent]

    def on_answer(self, broker: int, errors: MarkerErrors) -> tuple[list[Finished], list[tuple[str, ErrorCode]]]:
        """A broker has responded, with an error for each producer id and partition.

        Returns the completions that are finished, and the transactional ids whose markers another coordinator writes.
        """
        fenced = []
        for completion, marker in self._in_flight.pop(broker, []):
            if not self._is_current(completion):
                continue
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

    def on_failure(self, broker: int) -> None:
        """The connection broke, or the broker did not answer in time."""
        for completion, marker in self._in_flight.pop(broker, []):
            if self._is_current(completion):
                self._again.setdefault(completion, []).extend(marker.places)

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


def _marker(completion: _Completion, places: tuple[Place, ...]) -> Marker:
    ended = completion.markers
    return Marker(ended.producer_id, ended.epoch, ended.is_commit, completion.coordinator_epoch, ended.version, places)


def _finished(completion: _Completion) -> Finished:
    return Finished(completion.partition, completion.markers.transactional_id, completion.markers.number)
