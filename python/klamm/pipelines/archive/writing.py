"""A task of an archive: reads a range of offsets with the source's reader, and writes its records as Parquet files.

The task that reads also writes the files, with pyarrow: the bytes go once from the engine's client to a file, in offset
order, and each file's checksum is computed on the way. With Spark's own Parquet writer they would go through the JVM
and back, be sorted by day, and have neither counts nor checksums; and it commits by its own renames.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from klamm.pipelines.archive.checksum import Digest
from klamm.pipelines.archive.manifest import DataFile, Range
from klamm.pipelines.archive.schema import SCHEMA, read
from klamm.pipelines.archive.store import hidden, sync_file, sync_folder
from klamm.pipelines.errors import PipelineError
from klamm.spark.options.options import SourceOptions
from klamm.spark.ranges.offsets import OffsetRange

OPEN_FILES_MAX: Final = 16
"""Days that are written at the same time, if timestamps are not in order."""
FILE_BYTES_MAX: Final = 512 << 20
"""Bytes of the columns before compression, after which a new file starts."""
GROUP_ROWS_MAX: Final = 65_536
GROUP_BYTES_MAX: Final = 16 << 20
"""Bytes that a file's writer buffers for a row group."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Shared by all tasks of a run."""

    root: str
    options: SourceOptions
    compression: str

    def __call__(self, wanted: OffsetRange) -> Range:
        """Read and write the range; returns the files, synced but not committed."""
        writer = _Days(Path(self.root), *wanted.partition, self.compression)
        try:
            for batch in read(self.options, wanted):
                writer.write(batch)
            files = writer.close()
        except OSError as error:
            writer.discard()
            raise PipelineError(
                f"cannot write below '{self.root}': {error.strerror or error}; make room or mend it, and run the same "
                "again: it continues where the manifest ends"
            ) from None
        except BaseException:  # also Ctrl-C: no unfinished file stays
            writer.discard()
            raise
        records = sum(file.records for file in files)
        return Range(*wanted.partition, wanted.start, wanted.end, records, tuple(files))


class _Days:
    """A file for each day, or several if it becomes large."""

    def __init__(self, root: Path, topic: str, partition: int, compression: str) -> None:
        self._root = root
        self._folder = f"topic={topic}"
        self._partition = partition
        self._compression = compression
        self._open: OrderedDict[str, _File] = OrderedDict()
        self._done: list[_File] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the next records."""
        for day, rows in by_date(batch):
            file = self._open.get(day) or self._begin(day, rows)
            self._open.move_to_end(day)
            file.write(rows)
            if file.written_bytes >= FILE_BYTES_MAX:
                self._end(day)

    def _begin(self, day: str, rows: pa.RecordBatch) -> _File:
        if len(self._open) >= OPEN_FILES_MAX:
            self._end(next(iter(self._open)))
        first = rows.column("offset")[0].as_py()
        name = f"{self._partition:05}-{first:020}-{uuid.uuid4().hex[:8]}.parquet"
        file = self._open[day] = _File(self._root, f"{self._folder}/date={day}/{name}", day, self._compression)
        return file

    def _end(self, day: str) -> None:
        file = self._open.pop(day)
        self._done.append(file)
        file.close()

    def close(self) -> list[DataFile]:
        """Close all files durably; returns them by offset."""
        for day in list(self._open):
            self._end(day)
        for folder in {file.place.parent for file in self._done}:
            sync_folder(folder)
        if self._done:
            sync_folder(self._root / self._folder)
            sync_folder(self._root)
        return sorted((file.described() for file in self._done), key=lambda file: file.first_offset)

    def discard(self) -> None:
        """Delete the written files: no commit lists them."""
        for file in itertools.chain(self._open.values(), self._done):
            file.discard()


class _File:
    """One file that is being written."""

    def __init__(self, root: Path, path: str, day: str, compression: str) -> None:
        self.path = path
        self.place = hidden(root, path)
        self.written_bytes = 0
        self._day = day
        self._digest = Digest()
        self._kept: list[pa.RecordBatch] = []
        self._kept_bytes = 0
        self._edges: list[tuple[int, int, int, int]] = []
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self._writer: Any = pq.ParquetWriter(
            self.place,
            SCHEMA,
            compression=compression,
            # Keys and values seldom repeat; the other columns are smaller as deltas.
            use_dictionary=["partition", "timestampType", "headers.list.element.key"],
            column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
            write_statistics=["partition", "offset", "timestamp"],
        )

    def write(self, rows: pa.RecordBatch) -> None:
        """Append records."""
        self._digest.update(rows)
        offsets, timestamps = rows.column("offset"), rows.column("timestamp").cast(pa.int64())
        spread = pc.min_max(timestamps)
        self._edges.append((offsets[0].as_py(), offsets[-1].as_py(), spread["min"].as_py(), spread["max"].as_py()))
        self._kept.append(rows)
        self._kept_bytes += rows.nbytes
        self.written_bytes += rows.nbytes
        if self._kept_bytes >= GROUP_BYTES_MAX or sum(one.num_rows for one in self._kept) >= GROUP_ROWS_MAX:
            self._write_group()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._kept, schema=SCHEMA)
        self._kept, self._kept_bytes = [], 0
        if table.num_rows:
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        """Close the file durably."""
        self._write_group()
        self._writer.close()
        with self.place.open("rb") as file:
            sync_file(file.fileno())

    def described(self) -> DataFile:
        """The file's entry in the manifest."""
        first, last, earliest, latest = zip(*self._edges, strict=True)
        return DataFile(
            path=self.path,
            date=self._day,
            records=self._digest.records,
            bytes=self.place.stat().st_size,
            first_offset=first[0],
            last_offset=last[-1],
            first_timestamp_ms=min(earliest),
            last_timestamp_ms=max(latest),
            checksum=self._digest.text(),
        )

    def discard(self) -> None:
        """Delete the file, in any state."""
        with contextlib.suppress(OSError, ValueError):  # closed already, or incomplete: the file is removed next
            self._writer.close()
        with contextlib.suppress(OSError):
            os.unlink(self.place)


def by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of a batch by day (UTC), in order."""
    if not batch.num_rows:
        return
    days = batch.column("timestamp").cast(pa.timestamp("ms")).cast(pa.date32()).cast(pa.int32())
    found = pc.unique(days).to_pylist()
    for day in found:
        yield _date(day), batch if len(found) == 1 else batch.filter(pc.equal(days, day))


def _date(day: int) -> str:
    """The date of a day since 1970. Days outside the calendar become its first or last day."""
    try:
        return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
    except OverflowError:
        return (date.max if day > 0 else date.min).isoformat()
