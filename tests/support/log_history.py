"""What clients saw of a topic, and which of it no correct log can have shown them.

A history consists of acknowledgements of producers, polls of consumers, and the log as it is read at the end. Values
are `<producer>-<number>`; each producer sends ascending numbers to a partition.
"""

from __future__ import annotations

import enum
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.finding import Finding


class Anomaly(enum.Enum):
    """Violations."""

    LOST = "acknowledged, and not in the log at the end"
    DUPLICATE = "at two offsets of the log"
    REORDER = "after a later record of its producer"
    INCONSISTENT_OFFSETS = "another value at this offset than before"
    NON_MONOTONIC_POLL = "polled after a later offset"
    UNSEEN = "in the log, and polled by no consumer"
    UNKNOWN = "in the log or polled, and never sent"


Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class LogHistory:
    """Filled by many threads while they work."""

    sent: set[tuple[int, str]] = field(default_factory=set)
    """(partition, value) that a producer began to send, acknowledged or not."""
    acknowledged: list[tuple[int, int, str]] = field(default_factory=list)
    polled: dict[str, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    """By consumer and assignment, in the order of its polls."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_send(self, partition: int, value: str) -> None:
        """A producer sends a record."""
        with self._lock:
            self.sent.add((partition, value))

    def on_acknowledged(self, partition: int, offset: int, value: str) -> None:
        """The cluster acknowledged the record at this offset."""
        with self._lock:
            self.acknowledged.append((partition, offset, value))

    def on_poll(self, consumer: str, partition: int, offset: int, value: str) -> None:
        """A consumer received a record. After rejoining its group it may get records again, under another name."""
        with self._lock:
            self.polled[consumer].append((partition, offset, value))

    def findings(self, log: Mapping[int, Sequence[tuple[int, str]]], *, all_are_polled: bool = True) -> list[Finding]:
        """All anomalies. `log`: by partition, the offsets and values at the end."""
        found = [*self._of_log(log), *self._of_acknowledgements(log), *self._of_polls(log)]
        if all_are_polled:
            seen = {(partition, value) for polls in self.polled.values() for partition, _, value in polls}
            found += [
                Finding(Anomaly.UNSEEN, partition, offset, value)
                for partition, records in log.items()
                for offset, value in records
                if (partition, value) not in seen
            ]
        return found

    def _of_log(self, log: Mapping[int, Sequence[tuple[int, str]]]) -> Iterator[Finding]:
        for partition, records in log.items():
            seen: set[str] = set()
            last: dict[str, int] = {}
            for offset, value in records:
                producer, _, number = value.partition("-")
                if value in seen:
                    yield Finding(Anomaly.DUPLICATE, partition, offset, value)
                elif int(number) < last.get(producer, -1):
                    yield Finding(Anomaly.REORDER, partition, offset, value)
                if (partition, value) not in self.sent:
                    yield Finding(Anomaly.UNKNOWN, partition, offset, value)
                seen.add(value)
                last[producer] = max(last.get(producer, -1), int(number))

    def _of_acknowledgements(self, log: Mapping[int, Sequence[tuple[int, str]]]) -> Iterator[Finding]:
        at_end = _by_place(log)
        values = {(partition, value) for (partition, _), value in at_end.items()}
        for partition, offset, value in self.acknowledged:
            if (partition, value) not in values:
                yield Finding(Anomaly.LOST, partition, offset, value)
            elif at_end.get((partition, offset)) != value:
                yield Finding(Anomaly.INCONSISTENT_OFFSETS, partition, offset, value)

    def _of_polls(self, log: Mapping[int, Sequence[tuple[int, str]]]) -> Iterator[Finding]:
        at_end = _by_place(log)
        for polls in self.polled.values():
            last: dict[int, int] = {}
            for partition, offset, value in polls:
                if offset <= last.get(partition, -1):
                    yield Finding(Anomaly.NON_MONOTONIC_POLL, partition, offset, value)
                last[partition] = max(offset, last.get(partition, -1))
                if at_end.get((partition, offset)) != value:
                    yield Finding(Anomaly.INCONSISTENT_OFFSETS, partition, offset, value)
                if (partition, value) not in self.sent:
                    yield Finding(Anomaly.UNKNOWN, partition, offset, value)


def _by_place(log: Mapping[int, Sequence[tuple[int, str]]]) -> dict[Place, str]:
    return {(partition, offset): value for partition, records in log.items() for offset, value in records}
