"""The voter sets and kraft.versions of the log by offset: the newest is in effect once appended, committed or not
(KIP-853).

Truncation undoes it; a snapshot contains the set in effect at its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.value import Value
from klamm.raft.log.control_records import KRAFT_VERSION, KRAFT_VOTERS, decode_kraft_version, decode_voters
from klamm.raft.log.metadata_log import ControlRecord, LogView
from klamm.raft.voters.voter_set import VotersInLog


class _Entry(Value):
    offset: int  # of the record from which on it counts
    voters: VotersInLog


class VoterHistory:
    """The voter sets of the log; `initial` (`controller.quorum.voters`) applies while it has none."""

    __slots__ = ("_end_offset", "_entries", "_initial", "_start_offset")

    def __init__(self, initial: VotersInLog) -> None:
        self._initial = initial
        self._entries: list[_Entry] = []
        self._start_offset = self._end_offset = -1  # of the log at the last look; -1 before the first

    @property
    def newest(self) -> VotersInLog:
        """The voter set in force."""
        return self._entries[-1].voters if self._entries else self._initial

    def below(self, offset: int) -> VotersInLog:
        """The set in effect for a log that ends at `offset`."""
        known = (entry.voters for entry in reversed(self._entries) if entry.offset < offset)
        return next(known, self._initial)

    def follow(self, log: LogView) -> bool:
        """Process records appended, truncated or cleaned since the last call; returns whether the newest set changed.

        Raises ControlRecordError.
        """
        start, end = log.start_offset, log.end_offset
        if (start, end) == (self._start_offset, self._end_offset):
            return False
        before = self.newest
        if start != self._start_offset:
            self._entries.clear()
            self._add(log.control_records())
        elif end > self._end_offset:
            self._add(log.control_records(self._end_offset))
        else:
            self._entries = [entry for entry in self._entries if entry.offset < end]
        self._start_offset, self._end_offset = start, end
        return self.newest != before

    def _add(self, records: Iterable[ControlRecord]) -> None:
        for record in records:
            known = self.newest
            if record.type == KRAFT_VERSION:
                known = VotersInLog(known.voters, known.offset, decode_kraft_version(record.value))
            elif record.type == KRAFT_VOTERS:
                known = VotersInLog(decode_voters(record.value), record.offset, known.kraft_version)
            else:
                continue
            self._entries.append(_Entry(record.offset, known))
