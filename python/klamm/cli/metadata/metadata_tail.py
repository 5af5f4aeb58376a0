"""The records that `klamm metadata tail` prints: the last ones, those since a moment, those that come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import Entry
from klamm.metadata.log.history import History
from klamm.metadata.log.moments import iso_text, time_text
from klamm.metadata.rendering.fields import fields_of
from klamm.metadata.rendering.narrator import Narrator


class DescribedRecord(NamedTuple):
    """A record and what it says."""

    entry: Entry
    text: str

    @property
    def offset(self) -> int:
        """The record's."""
        return self.entry.offset

    @property
    def epoch(self) -> int:
        """The record's."""
        return self.entry.epoch

    @property
    def timestamp_ms(self) -> int:
        """The record's."""
        return self.entry.timestamp_ms

    @property
    def type(self) -> str:
        """The record's, by name."""
        return self.entry.type_name

    def fields(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "offset": self.offset,
            "epoch": self.epoch,
            "time": iso_text(self.timestamp_ms),
            "type": self.type,
            "text": self.text,
            "fields": fields_of(self.entry),
        }

    def line(self) -> str:
        """For a person, where a table cannot wait for its last row."""
        return f"{self.offset:>8} {self.epoch:>4}  {time_text(self.timestamp_ms)}  {self.type:<18}  {self.text}"


class ScannedRecords:
    """Which records of a log were looked at: a stretch of offsets, and where an epoch began in it."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []  # offset and epoch
        self._last = -1

    def add(self, entry: Entry) -> None:
        """The next one."""
        if not self._starts or self._starts[-1][1] != entry.epoch:
            self._starts.append((entry.offset, entry.epoch))
        self._last = entry.offset

    def parting(self, history: History) -> int | None:
        """The first offset at which the log has something else by now, or nothing; None where it has all of it.

        By epochs, which say the same of two logs only where all before it is the same, too.
        """
        if not self._starts or self._is_in(history, self._last):
            return None
        low, high = max(self._starts[0][0], history.start_offset() or 0), self._last
        if low > high:
            return None  # cleaned away, which is no parting
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._is_in(history, middle) else (low, middle)
        return low

    def cut(self, offset: int) -> None:
        """Those from that offset on were not looked at."""
        self._starts = [start for start in self._starts if start[0] < offset]
        self._last = offset - 1

    def _is_in(self, history: History, offset: int) -> bool:
        epoch = next(epoch for start, epoch in reversed(self._starts) if start <= offset)
        return history.epoch_at(offset) == epoch


class LogReplaced(Exception):
    """The log is another one than that which was read: it was cut, and may have grown again."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset
        """Where they part."""


class Tail:
    """Records of one history, of the types wanted."""

    def __init__(self, history: History, types: frozenset[str] | None) -> None:
        self.history: Final = history
        self._types = types
        self.narrator = Narrator()
        self.position = 0
        """Behind the last record that was looked at."""
        self._looked = ScannedRecords()

    def torn(self) -> str | None:
        """What stands behind the last whole record."""
        return self.history.torn_end()

    def last(self, count: int) -> list[DescribedRecord]:
        """The last `count` records."""
        if self.history.is_snapshot:
            return list(deque(self._told_from(0), maxlen=count))
        first, end = self.history.start_offset() or 0, self.history.end_offset()
        back = max(count, 1)
        while True:
            start = max(end - back, first)
            found = sum(map(self._is_wanted, self.history.records(start, end)))
            if found >= count or start == first:
                return list(deque(self._told_from(start), maxlen=count))
            back *= 8

    def since(self, moment: str) -> Iterator[DescribedRecord]:
        """The records from a moment on, that of an offset included."""
        if moment.strip().isdecimal():
            return self._told_from(int(moment))
        return self._told_from(self.history.offset_of(moment) + 1)

    def more(self) -> Iterator[DescribedRecord]:
        """What has come since. Raises LogReplaced, where it did not come behind what was read before."""
        while True:
            try:
                entries = self.history.read(self.position)
            except HistoryError:
                self._check_is_same()
                raise
            # Not before it was read: the log may be cut at any time, and what is read then belongs to another.
            self._check_is_same()
            if not entries:
                return
            yield from self._told(iter(entries))

    def go_to(self, offset: int) -> None:
        """Go on there, with what held before as far as that can be known."""
        self._looked.cut(offset)
        self._begin_at(offset)

    def _check_is_same(self) -> None:
        parting = self._looked.parting(self.history)
        if parting is not None:
            raise LogReplaced(parting)

    def _told_from(self, start: int) -> Iterator[DescribedRecord]:
        self._looked = ScannedRecords()
        self._begin_at(start)
        return self._told(self.history.records(start))

    def _begin_at(self, start: int) -> None:
        self.position = start
        self.narrator = Narrator()
        if not self.history.is_snapshot:
            try:
                self.narrator = Narrator(self.history.state_at(start - 1).image)
            except HistoryError:  # what was before is cleaned away: then ids stand for names
                self.narrator = Narrator()

    def _told(self, entries: Iterator[Entry]) -> Iterator[DescribedRecord]:
        for entry in entries:
            self.position = entry.offset + 1
            self._looked.add(entry)
            if not self._is_wanted(entry):
                self.narrator.advance(entry)
                continue
            yield DescribedRecord(entry, self._text(entry))

    def _text(self, entry: Entry) -> str:
        try:
            return self.narrator.tell(entry)
        except ValueError as error:
            return f"cannot be read: {error}"

    def _is_wanted(self, entry: Entry) -> bool:
        return self._types is None or entry.type_name in self._types


class FollowedLog:
    """A log that is followed while it grows, is cut, or is cleaned."""

    def __init__(self, tail: Tail) -> None:
        """HistoryError: a snapshot does not grow."""
        if tail.history.is_snapshot:
            raise HistoryError("a snapshot does not grow: follow the log of a node")
        self._tail = tail
        self._notes: list[str] = []

    def more(self) -> Iterator[DescribedRecord]:
        """What has come. What was shown and is in the log no more is told in `notes`, and then what stands there."""
        try:
            yield from self._tail.more()
        except LogReplaced as parted:
            self._notes.append(
                f"the log was cut at offset {parted.offset}: what was printed from there on was never committed, or is "
                "printed again"
            )
            self._tail.go_to(parted.offset)
            yield from self.more()
        except HistoryError as error:
            start, end = self._tail.history.start_offset(), self._tail.history.end_offset()
            if end == self._tail.position:
                raise
            next_one = start if start is not None and start > self._tail.position else end
            self._notes.append(f"{error}; going on at offset {next_one}")
            self._tail.go_to(next_one)

    def notes(self) -> list[str]:
        """What a person should know, once."""
        notes, self._notes = self._notes, []
        return notes
