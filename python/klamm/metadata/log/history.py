"""A metadata log as a history: its records, and the state of the cluster at any of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from klamm._engine.metadata import Image, MetadataRecordError, MetadataReplayError
from klamm._engine.quorum import StorageError, load_snapshot, read_checkpoint
from klamm._engine.records import RecordsDamagedError, record_batches
from klamm._engine.tools import MetadataReader
from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import Entry, entries_of
from klamm.metadata.log.location import SnapshotFile, locate
from klamm.metadata.log.moments import END, Moment, parse_moment, time_text
from klamm.metadata.log.quorum import Quorum
from klamm.raft.log import control_records
from klamm.raft.log.control_records import ControlRecordError

_PIECE_BYTES: Final = 4 << 20
_FIRST_BATCH: Final = 1
FIRST_BATCHES_BYTES: Final = 64 << 10


class State(NamedTuple):
    """The cluster as of a record, that record included: offset -1 is before the first."""

    offset: int
    epoch: int
    timestamp_ms: int
    image: Image
    quorum: Quorum


class History:
    """Reads a node's metadata log, or one snapshot. Changes nothing, and takes no lock: the node may be running.

    The log is this node's: its newest records may not be committed yet.
    """

    def __init__(self, path: Path | str) -> None:
        """`path`: a log directory, its `__cluster_metadata-0`, server.properties, or a snapshot file. HistoryError."""
        place = locate(Path(path))
        self.path: Final = place.path
        self._only: Final = place if isinstance(place, SnapshotFile) else None
        self._log: Final = None if self._only else MetadataReader(place.path)

    @property
    def is_snapshot(self) -> bool:
        """Whether this is one snapshot without a log."""
        return self._only is not None

    def snapshots(self) -> list[SnapshotFile]:
        """The snapshots, oldest first."""
        if self._log is None:
            return [self._only] if self._only else []
        with _reading():
            rows = self._log.snapshots()
        return [SnapshotFile(self.path / name, end_offset, epoch) for end_offset, epoch, name in rows]

    def start_offset(self) -> int | None:
        """The log start offset; None without a log."""
        with _reading():
            return None if self._log is None else self._log.start_offset()

    def end_offset(self) -> int:
        """The offset after the last record, or after the last one that a snapshot contains."""
        return self._end()[0]

    def torn_end(self) -> str | None:
        """The file and byte position after the last complete batch, when data other than zeros follows it."""
        return self._end()[1]

    def records(self, start: int | None = None, end: int | None = None) -> Iterator[Entry]:
        """The records of `[start, end)`, up to the log end at the time when it is reached. HistoryError.

        Records of a snapshot are numbered from 0, and all of them are returned.
        """
        if self._only is not None:
            yield from _entries_of_file(self._only.path)
            return
        position = start if start is not None else self.start_offset() or 0
        while end is None or position < end:
            entries = self.read(position)
            if not entries:
                return
            yield from (one for one in entries if end is None or one.offset < end)
            position = entries[-1].offset + 1

    def read(self, offset: int) -> list[Entry]:
        """Some records from `offset` on; none at the end. HistoryError: it was cleaned, or the log was cut."""
        data = self._read(offset, _PIECE_BYTES)
        with _reading():
            return [entry for entry in entries_of(data) if entry.offset >= offset]

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at an offset of the log; None where it is not there, or not any more. HistoryError.

        Two logs of one cluster that have a record of the same epoch at the same offset are the same up to there.
        """
        try:
            found = [entry.epoch for entry in entries_of(self._read(offset, _FIRST_BATCH)) if entry.offset == offset]
        except HistoryError:
            return None
        return found[0] if found else None

    def offset_of(self, moment: Moment | str) -> int:
        """The last record at a moment: its offset, -1 for none at all. HistoryError: it was cleaned."""
        wanted = parse_moment(moment, time.time_ns() // 1_000_000) if isinstance(moment, str) else moment
        last = self.end_offset() - 1
        if wanted.before_end is not None:
            return max(last - wanted.before_end, -1)
        if wanted.time_ms is not None:
            return self._offset_at_time(wanted.time_ms)
        offset = wanted.offset or 0
        if offset > last:
            raise HistoryError(f"offset {offset} does not exist yet: the last of {self.path} is {last}")
        return offset

    def earliest_state(self) -> int:
        """The first offset whose state can be reconstructed. HistoryError if there is none."""
        start = self.start_offset()
        if start == 0:
            return -1
        for snapshot in self.snapshots():
            if start is None or snapshot.end_offset >= start:
                return snapshot.end_offset - 1
        raise HistoryError(f"{self.path} begins at offset {start}, and there is no snapshot of what came before")

    def state_at(self, moment: Moment | str | int = END) -> State:
        """The cluster as of a moment. HistoryError names the earliest moment that is available."""
        offset = moment if isinstance(moment, int) else self.offset_of(moment)
        base = self._base_of(offset)
        with _reading():
            state = self._forward(base, offset)
            if state.quorum.leader_id is None and base.offset >= 0:
                state = state._replace(quorum=self._quorum_before(base).after(self._control(base.offset + 1, offset)))
        if state.offset != offset:
            raise HistoryError(f"{self.path} ends at offset {state.offset}, before {offset}")
        return state

    def _end(self) -> tuple[int, str | None]:
        if self._only is not None:
            return self._only.end_offset, None
        with _reading():
            end, torn = self._reader.end()
        newest = max((one.end_offset for one in self.snapshots()), default=0)
        return max(end, newest), torn

    @property
    def _reader(self) -> MetadataReader:
        if self._log is None:
            raise AssertionError("a snapshot has no log")
        return self._log

    def _read(self, offset: int, max_bytes: int) -> bytes:
        if self._log is None:
            return b""
        try:
            with _reading():
                return self._log.read(offset, max_bytes)
        except IndexError:
            start, end = self.start_offset() or 0, self.end_offset()
            if offset < start:
                raise HistoryError(f"offset {offset} was cleaned: {self.path} begins at {start}") from None
            if offset == end:
                return b""
            raise HistoryError(f"offset {offset} is not there (any more): {self.path} ends at {end}") from None

    def _offset_at_time(self, time_ms: int) -> int:
        found = -1
        if self._log is not None and self.start_offset() is not None:
            with _reading():
                found = self._log.offset_after_time(time_ms) - 1
            if found >= (self.start_offset() or 0):
                return found
        usable = [one for one in self._usable() if _contained_until(one.path) <= time_ms]
        if usable:
            return usable[-1].end_offset - 1
        first = self._first_time()
        raise HistoryError(f"the log has nothing of {time_text(time_ms)}: {first}")

    def _first_time(self) -> str:
        first = self.earliest_state()
        if first >= 0:
            snapshot = self._usable()[0]
            return f"the earliest is {_named(snapshot)}, as of {time_text(_contained_until(snapshot.path))}"
        entries = entries_of(self._read(0, _FIRST_BATCH))
        return f"the first record is of {time_text(entries[0].timestamp_ms)}" if entries else "there is no record"

    def _usable(self) -> list[SnapshotFile]:
        """Snapshots that the log continues."""
        start = self.start_offset()
        return [one for one in self.snapshots() if start is None or one.end_offset >= start]

    def _base_of(self, offset: int) -> State:
        """The newest snapshot that does not exceed the offset, or nothing where the log is complete."""
        fitting = [one for one in self._usable() if one.end_offset <= offset + 1]
        if fitting:
            with _reading():
                return _loaded(fitting[-1])
        if self.start_offset() == 0 or offset < 0:
            return State(-1, 0, -1, Image(), Quorum())
        first = self.earliest_state()
        raise HistoryError(f"offset {offset} was cleaned: the earliest offset is {first}, {_named(self._usable()[0])}")

    def _quorum_before(self, base: State) -> Quorum:
        """The leader when the snapshot was written: the log may still contain it, the snapshot never does."""
        earlier = Quorum().after(self._control(self.start_offset() or 0, base.offset))
        return earlier._replace(voters=base.quorum.voters or earlier.voters, kraft_version=base.quorum.kraft_version)

    def _control(self, start: int, last: int) -> list[Entry]:
        """The control records of the log from one offset to another, which is included."""
        found: list[Entry] = []
        while self._log is not None and start <= last and (data := self._read(start, _PIECE_BYTES)):
            batches = record_batches(data)
            found += [entry for batch in batches if batch.is_control for entry in entries_of(bytes(batch))]
            start = batches[-1].last_offset + 1
        return [entry for entry in found if entry.offset <= last]

    def _forward(self, state: State, upto: int) -> State:
        """`state` with the records up to one, which is included."""
        while self._log is not None and state.offset < upto:
            data = self._read(state.offset + 1, _PIECE_BYTES)
            if not data:
                break
            state = _with_batches(state, data, upto)
        return state


def _with_batches(state: State, data: bytes, upto: int) -> State:
    batches = [batch for batch in record_batches(data) if batch.base_offset <= upto]
    last = batches[-1]
    control = [entry for batch in batches if batch.is_control for entry in entries_of(bytes(batch))]
    quorum = state.quorum.after(entry for entry in control if state.offset < entry.offset <= upto)
    whole = [batch for batch in batches if batch.last_offset <= upto]
    image = state.image.apply_batches(b"".join(map(bytes, whole)))
    if last.last_offset > upto:
        records = [] if last.is_control else [entry.value for entry in entries_of(bytes(last)) if entry.offset <= upto]
        image = image.apply(records).with_provenance(upto, last.leader_epoch, last.max_timestamp_ms)
    return State(min(last.last_offset, upto), last.leader_epoch, last.max_timestamp_ms, image, quorum)


def _loaded(snapshot: SnapshotFile) -> State:
    image = load_snapshot(snapshot.path, snapshot.end_offset, snapshot.epoch)
    quorum = Quorum().after(_head_of(snapshot.path))
    return State(snapshot.end_offset - 1, snapshot.epoch, image.last_timestamp_ms, image, quorum)


def _head_of(path: Path) -> list[Entry]:
    """The control records that a snapshot begins with."""
    with path.open("rb") as file:
        head = file.read(FIRST_BATCHES_BYTES)
    first = next((batch for batch in record_batches(head) if batch.is_control), None)
    return [] if first is None else entries_of(bytes(first))


def _contained_until(path: Path) -> int:
    """The append time of the last record in a snapshot."""
    with _reading():
        for entry in _head_of(path):
            if entry.control == control_records.SNAPSHOT_HEADER and len(entry.value) >= 10:
                return int.from_bytes(entry.value[2:10], "big", signed=True)
    raise HistoryError(f"{path} does not begin with a snapshot header")


def _entries_of_file(path: Path) -> list[Entry]:
    with _reading():
        read_checkpoint(path)  # which checks the whole file
        return entries_of(path.read_bytes())


def _named(snapshot: SnapshotFile) -> str:
    return f"the snapshot {snapshot.path.name}"


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Raise errors of files as HistoryError, the only error that a caller has to handle."""
    try:
        yield
    except OSError as error:
        raise HistoryError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    except (
        StorageError,
        RecordsDamagedError,
        MetadataReplayError,
        MetadataRecordError,
        ControlRecordError,
    ) as error:
        raise HistoryError(str(error)) from None
