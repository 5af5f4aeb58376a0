"""What transactions left in a topic and in its copy, and which of it no correct cluster can have left.

A source writes transactions to a topic, and aborts some. Copiers read them with read_committed, and copy each record in
a transaction that also commits its offset. `CopyHistory` holds what they and a reader of the copies saw meanwhile.
"""

from __future__ import annotations

import enum
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Self

from tests.support.finding import Finding

Log = Mapping[int, Sequence[tuple[int, str]]]
"""By partition, the offsets and values that read_committed finds."""


class Outcome(enum.StrEnum):
    """How a transaction ended according to its producer; a transaction of unknown outcome has no entry."""

    COMMITTED = enum.auto()
    ABORTED = enum.auto()


class Written(NamedTuple):
    """A record of the source: its transaction, its number in it, and the transaction's number of records."""

    transaction: str
    size: int
    index: int

    def encode(self) -> bytes:
        """The value of the record."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, value: str) -> Self:
        """The inverse of `encode`."""
        return cls(*json.loads(value))


class Copied(NamedTuple):
    """A record of a copier; it also names the record that it copies."""

    transaction: str
    size: int
    index: int
    partition: int
    offset: int
    value: str

    def encode(self) -> bytes:
        """The value of the record."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, value: str) -> Self:
        """The inverse of `encode`."""
        return cls(*json.loads(value))


class Anomaly(enum.Enum):
    """Violations."""

    LOST = "of a committed transaction, and not in the log"
    ABORTED = "of an aborted transaction, and visible"
    TORN = "of a transaction that is visible in part"
    DOUBLED = "written twice"
    NOT_COPIED = "before the committed offset, and not copied"
    COPIED_TWICE = "copied twice"
    NEVER_WRITTEN = "a copy of what is not in the source"
    REORDERED = "copied after a later record of its partition"
    OFFSET_BEHIND = "copied, and not before the committed offset"
    VANISHED = "read by a consumer, and not in the log"


@dataclass
class CopyHistory:
    """The observations. Each field is filled by one thread."""

    source: dict[str, Outcome] = field(default_factory=dict)
    """The outcomes of the source's transactions."""
    copiers: dict[str, Outcome] = field(default_factory=dict)
    """The outcomes of the copiers' transactions."""
    seen: list[tuple[int, int, str]] = field(default_factory=list)
    """Partition, offset, value of each copy that was read while the copiers worked."""
    behind: list[Finding] = field(default_factory=list)
    """The findings of `check_offsets`."""

    def check_offsets(self, seen: int, committed: Mapping[int, int]) -> None:
        """Check that these committed offsets, fetched later, cover the first `seen` copies that were read."""
        for partition, offset, value in self.seen[:seen]:
            copy = Copied.decode(value)
            if copy.offset >= committed.get(copy.partition, 0):
                self.behind.append(Finding(Anomaly.OFFSET_BEHIND, partition, offset, value))

    def findings(self, source: Log, copies: Log, committed: Mapping[int, int]) -> list[Finding]:
        """All findings at the end. `committed`: the group's offsets by partition."""
        return [
            *self.behind,
            *_of_transactions(source, self.source, Written.decode),
            *_of_transactions(copies, self.copiers, Copied.decode),
            *_of_copies(source, copies, committed),
            *self._of_readers(copies),
        ]

    def _of_readers(self, copies: Log) -> Iterator[Finding]:
        at_end = _by_place(copies)
        for partition, offset, value in self.seen:
            if at_end.get((partition, offset)) != value:
                yield Finding(Anomaly.VANISHED, partition, offset, value)


def _of_transactions(
    log: Log, outcomes: Mapping[str, Outcome], decode: Callable[[str], Written | Copied]
) -> Iterator[Finding]:
    visible: dict[str, list[tuple[Written | Copied, int, int, str]]] = defaultdict(list)
    for partition, records in log.items():
        for offset, value in records:
            record = decode(value)
            visible[record.transaction].append((record, partition, offset, value))
    for transaction, outcome in outcomes.items():
        if outcome is Outcome.COMMITTED and transaction not in visible:
            yield Finding(Anomaly.LOST, -1, -1, transaction)
    for transaction, found in visible.items():
        record, partition, offset, value = found[0]
        indexes = [each.index for each, *_ in found]
        if outcomes.get(transaction) is Outcome.ABORTED:
            yield Finding(Anomaly.ABORTED, partition, offset, value)
        if len(indexes) > len(set(indexes)):
            yield Finding(Anomaly.DOUBLED, partition, offset, value)
        if len(set(indexes)) < record.size:
            yield Finding(Anomaly.TORN, partition, offset, value)


def _of_copies(source: Log, copies: Log, committed: Mapping[int, int]) -> Iterator[Finding]:
    written = _by_place(source)
    copied: set[tuple[int, int]] = set()
    for partition, records in copies.items():
        decoded = [(offset, value, Copied.decode(value)) for offset, value in records]
        for offset, value, copy in decoded:
            place = copy.partition, copy.offset
            if place in copied:
                yield Finding(Anomaly.COPIED_TWICE, partition, offset, value)
            if written.get(place) != copy.value:
                yield Finding(Anomaly.NEVER_WRITTEN, partition, offset, value)
            if copy.offset >= committed.get(copy.partition, 0):
                yield Finding(Anomaly.OFFSET_BEHIND, partition, offset, value)
            copied.add(place)
        for (_, _, before), (offset, value, after) in pairwise(decoded):
            if after.offset < before.offset:
                yield Finding(Anomaly.REORDERED, partition, offset, value)
    for (partition, offset), value in written.items():
        if offset < committed.get(partition, 0) and (partition, offset) not in copied:
            yield Finding(Anomaly.NOT_COPIED, partition, offset, value)


def _by_place(log: Log) -> dict[tuple[int, int], str]:
    return {(partition, offset): value for partition, records in log.items() for offset, value in records}
