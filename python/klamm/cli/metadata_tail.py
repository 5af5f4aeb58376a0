"""The records that `klamm metadata tail` prints: the last ones, those since a moment, those that come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from klamm.metadata.entries import Entry
from klamm.metadata.errors import HistoryError
from klamm.metadata.fields import fields_of
from klamm.metadata.history import History
from klamm.metadata.moments import iso_text, time_text
from klamm.metadata.words import Narrator


class Told(NamedTuple):
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


class Tail:
    """Records of one history, of the types wanted."""

    def __init__(self, history: History, types: frozenset[str] | None) -> None:
        self.history: Final = history
        self._types = types
        self.narrator = Narrator()
        self.position = 0
        """Behind the last record that was looked at."""

    def torn(self) -> str | None:
        """What stands behind the last whole record."""
        return self.history.torn_end()

    def last(self, count: int) -> list[Told]:
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

    def since(self, moment: str) -> Iterator[Told]:
        """The records from a moment on, that of an offset included."""
        if moment.strip().isdecimal():
            return self._told_from(int(moment))
        return self._told_from(self.history.offset_of(moment) + 1)

    def more(self) -> Iterator[Told]:
        """What has come since."""
        while entries := self.history.read(self.position):
            yield from self._told(iter(entries))

    def _told_from(self, start: int) -> Iterator[Told]:
        self.position = start
        self.narrator = Narrator()
        if not self.history.is_snapshot:
            try:
                self.narrator = Narrator(self.history.state_at(start - 1).image)
            except HistoryError:  # what was before is cleaned away: then ids stand for names
                self.narrator = Narrator()
        return self._told(self.history.records(start))

    def _told(self, entries: Iterator[Entry]) -> Iterator[Told]:
        for entry in entries:
            self.position = entry.offset + 1
            if not self._is_wanted(entry):
                self.narrator.advance(entry)
                continue
            yield Told(entry, self._text(entry))

    def _text(self, entry: Entry) -> str:
        try:
            return self.narrator.tell(entry)
        except ValueError as error:
            return f"cannot be read: {error}"

    def _is_wanted(self, entry: Entry) -> bool:
        return self._types is None or entry.type_name in self._types


class Followed:
    """A log that is followed while it grows, is cut, or is cleaned."""

    def __init__(self, tail: Tail) -> None:
        """HistoryError: a snapshot does not grow."""
        if tail.history.is_snapshot:
            raise HistoryError("a snapshot does not grow: follow the log of a node")
        self._tail = tail
        self._notes: list[str] = []

    def more(self) -> Iterator[Told]:
        """What has come. A log that lost what was shown says so in `notes`, and goes on at its end."""
        try:
            yield from self._tail.more()
        except HistoryError as error:
            end = self._tail.history.end_offset()
            if end == self._tail.position:
                raise
            self._notes.append(f"{error}; going on at offset {end}")
            self._tail.position, self._tail.narrator = end, Narrator()

    def notes(self) -> list[str]:
        """What a person should know, once."""
        notes, self._notes = self._notes, []
        return notes
