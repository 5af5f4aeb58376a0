"""The input of an audit: the files of a metadata log, split into parts for tasks, and their validity.

The plan looks once over all bytes, in the engine: it checks every batch, so that damage is known and named before a
task meets it, finds what metadata transactions withhold, and cuts at batches. It decodes nothing else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from klamm._engine.quorum import StorageError
from klamm._engine.records import RecordBatch, RecordsDamagedError, record_batches
from klamm._engine.tools import MetadataReader, metadata_overview, metadata_rows
from klamm.metadata.errors import HistoryError
from klamm.metadata.log.location import LogFolder, SnapshotFile, locate, parse_snapshot_name
from klamm.pipelines.audit.parts import Part, Piece, SnapshotHead
from klamm.protocol.generated import metadata_records as mr
from klamm.raft.log import control_records

PIECE_BYTES: Final = 4 << 20
PART_PIECES: Final = 4
"""The size of the input of one task: 16 MiB, some 200,000 records."""
_BOUNDARIES: Final = (mr.BeginTransactionRecord.TYPE, mr.EndTransactionRecord.TYPE, mr.AbortTransactionRecord.TYPE)
_SEGMENT_SUFFIX: Final = ".log"
_TORN_PAUSE_S: Final = 0.2


class Plan(NamedTuple):
    """The input of all tasks."""

    path: Path
    log: tuple[Part, ...]
    snapshots: tuple[tuple[Part, ...], ...]
    base: SnapshotHead | None
    """The base snapshot; None if the log is complete."""
    start_offset: int | None
    """The first offset of the log that exists."""
    end_offset: int
    start_time_ms: int
    """The time of the first record, or of the base snapshot."""
    end_time_ms: int
    """The newest timestamp of all records."""
    withheld: tuple[tuple[int, int], ...]
    """Offsets `[first, last]` of metadata transactions that were aborted, or that are open at the end."""
    damage: tuple[str, ...]
    """Files that end too early, with byte and reason; the part before that is in the plan."""

    @property
    def base_end(self) -> int:
        """The first offset that the questions read."""
        return self.base.end_offset if self.base else 0


def plan(path: Path | str) -> Plan:
    """The plan of a log directory, its `__cluster_metadata-0`, a server.properties, or one snapshot. HistoryError."""
    place = locate(Path(path))
    try:
        return _of_snapshot(place) if isinstance(place, SnapshotFile) else _of_folder(place)
    except OSError as error:
        raise HistoryError(f"{error.filename or place.path}: {error.strerror or error}") from None


def _of_snapshot(place: SnapshotFile) -> Plan:
    parts = snapshot_parts(place)
    head = parts[0].snapshot
    assert head is not None, parts
    time_ms = head.timestamp_ms
    return Plan(place.path, (), (parts,), head, None, place.end_offset, time_ms, time_ms, (), ())


def _of_folder(place: LogFolder) -> Plan:
    damage: list[str] = []
    snapshots = []
    for found in _snapshots(place.path):
        try:
            snapshots.append(snapshot_parts(found))
        except HistoryError as error:
            damage.append(str(error))
    log = _Log(place.path)
    log.walk()
    damage += log.damage
    heads = [parts[0].snapshot for parts in snapshots if parts[0].snapshot is not None]
    base = _base(place.path, log.start_offset, heads, damage)
    end_offset = max([log.position, *(head.end_offset for head in heads)])
    end_time_ms = max([log.end_time_ms, *(head.timestamp_ms for head in heads)])
    withheld = log.withheld()
    return Plan(
        place.path,
        tuple(log.parts),
        tuple(snapshots),
        base,
        log.start_offset,
        end_offset,
        base.timestamp_ms if base is not None else log.start_time_ms,
        end_time_ms,
        withheld,
        tuple(damage),
    )


def _base(path: Path, start_offset: int | None, heads: list[SnapshotHead], damage: list[str]) -> SnapshotHead | None:
    """The oldest snapshot that the log continues, so that the history is as long as possible."""
    if start_offset == 0:
        return None
    if start_offset is None:
        if heads:
            return heads[-1]
        raise HistoryError("; ".join([*damage, f"{path} holds neither a segment nor a whole snapshot"]))
    for head in heads:
        if head.end_offset >= start_offset:
            return head
    why = f"{path} begins at offset {start_offset}, and there is no whole snapshot of what came before"
    raise HistoryError("; ".join([*damage, why]))


def _snapshots(folder: Path) -> list[SnapshotFile]:
    found = [(numbers, one) for one in folder.iterdir() if (numbers := parse_snapshot_name(one.name)) is not None]
    return [SnapshotFile(path, *numbers) for numbers, path in sorted(found)]


class _Log:
    """Reads the segments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()  # a task may be in another working directory
        self._reader = MetadataReader(folder)
        self.start_offset = self._reader.start_offset()
        self.position = self.start_offset or 0
        self.start_time_ms = self.end_time_ms = -1
        self.parts: list[Part] = []
        self.damage: list[str] = []
        self._boundaries: list[tuple[int, str]] = []
        self._path, self._at = "", 0

    def walk(self) -> None:
        """Read the log up to its end or to damage."""
        size_bytes = PIECE_BYTES
        while True:
            try:
                data = self._reader.read(self.position, size_bytes)
            except (StorageError, IndexError) as error:
                if size_bytes == 1:
                    self.damage.append(str(error))
                    return
                size_bytes = 1  # keep the complete batches of the piece one by one
                continue
            if not data:
                break
            self._take(data)
        self._check_end()

    def withheld(self) -> tuple[tuple[int, int], ...]:
        """The offsets of transactions that were aborted or not ended."""
        found: list[tuple[int, int]] = []
        begun: int | None = None
        for offset, name in self._boundaries:
            if name == "BeginTransactionRecord":
                begun = offset
            elif begun is not None:
                if name == "AbortTransactionRecord":
                    found.append((begun, offset))
                begun = None
        return (*found, *([(begun, self.position - 1)] if begun is not None else []))

    def _take(self, data: bytes) -> None:
        batches = record_batches(data)
        first = batches[0].base_offset
        path = str(self._folder / f"{self._segment_of(first):020}{_SEGMENT_SUFFIX}")
        if path != self._path:
            self._path, self._at = path, 0
        self.position = batches[-1].last_offset + 1
        if not self.parts:
            self.start_time_ms = batches[0].base_timestamp_ms
        self.end_time_ms = max(self.end_time_ms, *(batch.max_timestamp_ms for batch in batches))
        self._add(Piece(self._at, len(data)))
        self._at += len(data)
        overview = pa.record_batch(metadata_overview(data, types=_BOUNDARIES, with_fields=False))
        self._boundaries += zip(overview["offset"].to_pylist(), overview["type"].to_pylist(), strict=True)

    def _segment_of(self, offset: int) -> int:
        """Read again for every piece: a running node rolls segments."""
        return max(base for base in _segments(self._folder) if base <= offset)

    def _add(self, piece: Piece) -> None:
        last = self.parts[-1] if self.parts and self.parts[-1].path == self._path else None
        if last is None or (len(last.pieces) == PART_PIECES and not _fits(last.pieces[-1], piece)):
            self.parts.append(Part(self._path, (piece,), self.position))
        elif _fits(last.pieces[-1], piece):
            joined = Piece(last.pieces[-1].position, last.pieces[-1].size_bytes + piece.size_bytes)
            self.parts[-1] = Part(self._path, (*last.pieces[:-1], joined), self.position)
        else:
            self.parts[-1] = Part(self._path, (*last.pieces, piece), self.position)

    def _check_end(self) -> None:
        """A running node may be writing a batch: it is complete a moment later, and not damaged."""
        for attempt in range(2):
            try:
                end, torn = self._reader.end()
            except StorageError as error:
                self.damage.append(str(error))
                return
            if torn is None and end <= self.position:
                return
            if attempt == 0:
                time.sleep(_TORN_PAUSE_S)
                if data := self._reader.read(self.position, PIECE_BYTES):
                    self._take(data)
        self.damage.append(torn or f"{self._path} ends at byte {self._at}: a batch is damaged, and others follow it")


def _fits(piece: Piece, more: Piece) -> bool:
    return piece.size_bytes + more.size_bytes <= PIECE_BYTES


def _segments(folder: Path) -> Iterator[int]:
    for one in folder.iterdir():
        if one.suffix == _SEGMENT_SUFFIX and len(one.stem) == 20 and one.stem.isdecimal():
            yield int(one.stem)


def snapshot_parts(snapshot: SnapshotFile) -> tuple[Part, ...]:
    """The parts of a complete snapshot. HistoryError names the file and the byte."""
    pieces: list[Piece] = []
    last: RecordBatch | None = None
    head: SnapshotHead | None = None
    with snapshot.path.open("rb") as file:
        position, size_bytes = 0, PIECE_BYTES
        while data := os.pread(file.fileno(), size_bytes, position):
            batches = _checked(snapshot.path, position, data)
            whole = sum(batch.size_bytes for batch in batches)
            if not whole:
                if len(data) < size_bytes:
                    raise HistoryError(f"{snapshot.path} ends at byte {position}: a batch is not whole")
                size_bytes *= 2
                continue
            head = head or _head(snapshot, data[:whole])
            pieces.append(Piece(position, whole))
            position, last, size_bytes = position + whole, batches[-1], PIECE_BYTES
    if head is None or last is None:
        raise HistoryError(f"{snapshot.path} is empty: a snapshot begins with a header")
    if control_records.SNAPSHOT_FOOTER not in {row[4] for row in metadata_rows(bytes(last))}:
        raise HistoryError(f"{snapshot.path} ends at byte {position} without a snapshot's footer: it is not whole")
    groups = [tuple(pieces[at : at + PART_PIECES]) for at in range(0, len(pieces), PART_PIECES)]
    path = str(snapshot.path.absolute())
    return tuple(Part(path, group, snapshot.end_offset, head) for group in groups)


def _checked(path: Path, position: int, data: bytes) -> list[RecordBatch]:
    try:
        batches = record_batches(data)
        for batch in batches:
            batch.check()
            position += batch.size_bytes
    except RecordsDamagedError as error:
        raise HistoryError(f"{path} is damaged at byte {position}: {error}") from None
    return batches


def _head(snapshot: SnapshotFile, data: bytes) -> SnapshotHead:
    rows = pa.record_batch(metadata_overview(data, controls=[control_records.SNAPSHOT_HEADER]))
    if not rows.num_rows:
        raise HistoryError(f"{snapshot.path} does not begin with a snapshot's header")
    time_ms = json.loads(rows["fields"][0].as_py())["last_contained_log_timestamp"]
    return SnapshotHead(snapshot.path.name, snapshot.end_offset, snapshot.epoch, time_ms)
