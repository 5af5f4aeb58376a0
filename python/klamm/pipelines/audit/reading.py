"""The reading of one task: the records of a part as Arrow batches from the engine. It needs no Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from klamm._engine.metadata import MetadataRecordError
from klamm._engine.records import RecordsDamagedError
from klamm._engine.tools import metadata_columns, metadata_overview
from klamm.pipelines.audit.parts import Part, Piece, SnapshotHead, UnreadableError

SNAPSHOT: Final = pa.field("snapshot", pa.string())
_US_PER_MS: Final = 1000
_PLACES: Final = 5
"""Columns of every type: the position of the record, and its version."""


class RowFilter(NamedTuple):
    """The kind of rows: records of one type with a column per field, of any type, or a row per epoch or type."""

    record_type: int | None = None
    controls: tuple[int, ...] | None = None
    with_fields: bool = True
    is_epochs: bool = False
    is_counts: bool = False

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Whole batches as rows."""
        if self.record_type is not None:
            return _with_own_names(pa.record_batch(metadata_columns(data, self.record_type)))
        if self.is_epochs:
            return _epochs(data)
        if self.is_counts:
            return _counts(data)
        found = metadata_overview(data, controls=self.controls, with_fields=self.with_fields)
        return pa.record_batch(found)

    def schema(self) -> pa.Schema:
        """The columns, preceded by the name of the snapshot, which is null in the log."""
        return pa.schema([SNAPSHOT, *self.decode(b"").schema])


def rows_of(part: Part, wanted: RowFilter) -> Iterator[pa.RecordBatch]:
    """The rows of a part, a batch per piece. Raises UnreadableError."""
    for piece in part.pieces:
        rows = _decoded(part, piece, wanted)
        if rows.num_rows:
            yield _placed(rows, part.snapshot)


def _decoded(part: Part, piece: Piece, wanted: RowFilter) -> pa.RecordBatch:
    try:
        with open(part.path, "rb") as file:
            data = os.pread(file.fileno(), piece.size_bytes, piece.position)
    except OSError as error:
        raise UnreadableError(
            f"{part.path}: {error.strerror}; every executor must see the log, and where a running node has cleaned it "
            "away meanwhile, run again"
        ) from None
    if len(data) < piece.size_bytes:
        raise UnreadableError(f"{part.path} was cut at byte {piece.position + len(data)} while it was read: run again")
    try:
        return wanted.decode(data)
    except (RecordsDamagedError, MetadataRecordError) as error:
        raise UnreadableError(f"{part.path}, after byte {piece.position}: {error}") from None


def _with_own_names(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The epoch in a FenceBrokerRecord is the broker's, not the quorum's."""
    places, fields = rows.schema.names[:_PLACES], rows.schema.names[_PLACES:]
    return rows.rename_columns(places + [f"broker_{name}" if name in places else name for name in fields])


def _placed(rows: pa.RecordBatch, snapshot: SnapshotHead | None) -> pa.RecordBatch:
    """With the snapshot's name; records of a snapshot have the offset of the last record that it contains."""
    count = rows.num_rows
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    if snapshot is not None:
        last = pa.scalar(snapshot.end_offset - 1, pa.int64())
        time = pa.scalar(snapshot.timestamp_ms * _US_PER_MS, pa.int64()).cast(pa.timestamp("us", "UTC"))
        columns["offset"] = columns["batch"] = pa.repeat(last, count)
        columns["epoch"] = pa.repeat(pa.scalar(snapshot.epoch, pa.int32()), count)
        columns["timestamp"] = pa.repeat(time, count)
    name = pa.repeat(pa.scalar(snapshot.name if snapshot else None, pa.string()), count)
    schema = pa.schema([SNAPSHOT, *rows.schema])
    return pa.RecordBatch.from_arrays([name, *columns.values()], schema=schema)


def _epochs(data: bytes) -> pa.RecordBatch:
    """A row an epoch: its first and last record in these batches."""
    rows = pa.record_batch(metadata_overview(data, with_fields=False)).select(["epoch", "offset", "timestamp"])
    measures = [(name, end) for name in ("offset", "timestamp") for end in ("first", "last")] + [("offset", "count")]
    found = pa.Table.from_batches([rows]).group_by("epoch", use_threads=False).aggregate(measures)
    names = {
        "epoch": "epoch",
        "offset_first": "first_offset",
        "timestamp_first": "first_time",
        "offset_last": "last_offset",
        "timestamp_last": "last_time",
        "offset_count": "records",
    }
    return _one_batch(found.select(list(names)).rename_columns(list(names.values())))


def _counts(data: bytes) -> pa.RecordBatch:
    """A row a type."""
    rows = pa.record_batch(metadata_overview(data, with_fields=False)).select(["type"])
    found = pa.Table.from_batches([rows]).group_by("type", use_threads=False).aggregate([("type", "count")])
    return _one_batch(found.select(["type", "type_count"]).rename_columns(["type", "records"]))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    table = table.combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
