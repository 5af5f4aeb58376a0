"""The records that `klamm metadata tail` prints: the last ones, those since a moment, and new ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import Entry
from klamm.metadata.log.history import History
from klamm.metadata.log.moments import iso_text, time_text
from klamm.metadata.rendering.descriptions import RecordDescriber
from klamm.metadata.rendering.fields import fields_of


class DescribedRecord(NamedTuple):
    """A record and its description."""

    entry: Entry
    text: str

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return self.entry.offset

    @property
    def epoch(self) -> int:
        """The epoch of the record."""
        return self.entry.epoch

    @property
    def timestamp_ms(self) -> int:
        """The timestamp of the record."""
        return self.entry.timestamp_ms

    @property
    def type(self) -> str:
        """The name of the record's type."""
        return self.entry.type_name

    def fields(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {
            "offset": self.offset,
            "epoch": self.epoch,
            "time": iso_text(self.timestamp_ms),
            "type": self.type,
            "text": self.text,
            "fields": fields_of(self.entry),
        }

    def line(self) -> str:
        """A line of text, for output that cannot wait for a complete table."""
        return f"{self.offset:>8} {self.epoch:>4}  {time_text(self.timestamp_ms)}  {self.type:<18}  {self.text}"


class ScannedRecords:
    """The records of a log that were read: a range of offsets, and the offsets at which epochs begin in it."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []  # offset and epoch
        self._last = -1

    def add(self, entry: Entry) -> None:
        """Add the next record."""
        if not self._starts or self._starts[-1][1] != entry.epoch:
            self._starts.append((entry.offset, entry.epoch))
        self._last = entry.offset

    def parting(self, history: History) -> int | None:
        """The first offset at which the log differs from what was read, or None.

        Epochs decide: two logs with the same epoch at an offset are the same up to that offset.
        """
        if not self._starts or self._is_in(history, self._last):
            return None
        low, high = max(self._starts[0][0], history.start_offset() or 0), self._last
        if low > high:
            return None  # removed by cleaning, which is not a divergence
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._is_in(history, middle) else (low, middle)
        return low

    def cut(self, offset: int) -> None:
        """Forget the records from that offset on."""
        self._starts = [start for start in self._starts if start[0] < offset]
        self._last = offset - 1

    def _is_in(self, history: History, offset: int) -> bool:
        epoch = next(epoch for start, epoch in reversed(self._starts) if start <= offset)
        return history.epoch_at(offset) == epoch


class LogReplaced(Exception):
    """The log differs from the one that was read: it was truncated, and may have grown again."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset
        """The offset at which they diverge."""


class Tail:
    """The records of one history with the selected types."""

    def __init__(self, history: History, types: frozenset[str] | None) -> None:
        self.history: Final = history
        self._types = types
        self.describer = RecordDescriber()
        self.position = 0
        """The offset after the last record that was read."""
        self._looked = ScannedRecords()

    def torn(self) -> str | None:
        """The bytes after the last complete record, described."""
        return self.history.torn_end()

    def last(self, count: int) -> list[DescribedRecord]:
        """The last `count` records."""
        if self.history.is_snapshot:
            return list(deque(self._described_from(0), maxlen=count))
        first, end = self.history.start_offset() or 0, self.history.end_offset()
        back = max(count, 1)
        while True:
            start = max(end - back, first)
            found = sum(map(self._is_wanted, self.history.records(start, end)))
            if found >= count or start == first:
                return list(deque(self._described_from(start), maxlen=count))
            back *= 8

    def since(self, moment: str) -> Iterator[DescribedRecord]:
        """The records from a moment on, including the one at its offset."""
        if moment.strip().isdecimal():
            return self._described_from(int(moment))
        return self._described_from(self.history.offset_of(moment) + 1)

    def more(self) -> Iterator[DescribedRecord]:
        """New records. Raises LogReplaced if they do not follow the records that were read before."""
        while True:
            try:
                entries = self.history.read(self.position)
            except HistoryError:
                self._check_is_same()
                raise
            # After the read: the log may be truncated at any time, and then the records read belong to another log.
            self._check_is_same()
            if not entries:
                return
            yield from self._described(iter(entries))

    def go_to(self, offset: int) -> None:
        """Continue at `offset`, with the state before it as far as it is known."""
        self._looked.cut(offset)
        self._begin_at(offset)

    def _check_is_same(self) -> None:
        parting = self._looked.parting(self.history)
        if parting is not None:
            raise LogReplaced(parting)

    def _described_from(self, start: int) -> Iterator[DescribedRecord]:
        self._looked = ScannedRecords()
        self._begin_at(start)
        return self._described(self.history.records(start))

    def _begin_at(self, start: int) -> None:
        self.position = start
        self.describer = RecordDescriber()
        if not self.history.is_snapshot:
            try:
                self.describer = RecordDescriber(self.history.state_at(start - 1).image)
            except HistoryError:  # the records before were cleaned: show ids instead of names
                self.describer = RecordDescriber()

    def _described(self, entries: Iterator[Entry]) -> Iterator[DescribedRecord]:
        for entry in entries:
            self.position = entry.offset + 1
            self._looked.add(entry)
            if not self._is_wanted(entry):
                self.describer.advance(entry)
                continue
            yield DescribedRecord(entry, self._text(entry))

    def _text(self, entry: Entry) -> str:
        try:
            return self.describer.describe(entry)
        except ValueError as error:
            return f"cannot be read: {error}"

    def _is_wanted(self, entry: Entry) -> bool:
        return self._types is None or entry.type_name in self._types


class FollowedLog:
    """A log that is followed while it grows, is truncated, or is cleaned."""

    def __init__(self, tail: Tail) -> None:
        """Raises HistoryError for a snapshot, which does not grow."""
        if tail.history.is_snapshot:
            raise HistoryError("a snapshot does not grow: follow the log of a node")
        self._tail = tail
        self._notes: list[str] = []

    def more(self) -> Iterator[DescribedRecord]:
        """New records. If printed records were truncated, `notes` says so, and the records in their place follow."""
        try:
            yield from self._tail.more()
        except LogReplaced as parted:
            self._notes.append(
                f"the log was truncated at offset {parted.offset}: records printed from there on were never committed, "
                "or are printed again"
            )
            self._tail.go_to(parted.offset)
            yield from self.more()
        except HistoryError as error:
            start, end = self._tail.history.start_offset(), self._tail.history.end_offset()
            if end == self._tail.position:
                raise
            next_one = start if start is not None and start > self._tail.position else end
            self._notes.append(f"{error}; continuing at offset {next_one}")
            self._tail.go_to(next_one)

    def notes(self) -> list[str]:
        """Messages for the user, each returned once."""
        notes, self._notes = self._notes, []
        return notes
