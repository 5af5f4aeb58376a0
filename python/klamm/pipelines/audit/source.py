"""The data source behind the tables: a part a task, its records as Arrow batches out of the engine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from klamm import _engine
from klamm.pipelines.audit.parts import Part, Piece, SnapshotHead, UnreadableError, from_text, to_text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = "klamm-metadata"
SNAPSHOT: Final = pa.field("snapshot", pa.string())
_US_PER_MS: Final = 1000
_PLACES: Final = 5
"""Columns that every type has: where the record stands, and its version."""


class Wanted(NamedTuple):
    """Which rows: of one type, a column a field; of several, a column a type; of any; or a row an epoch or a type."""

    record_type: int | None = None
    types: tuple[tuple[str, int], ...] = ()
    """Names and ids."""
    controls: tuple[int, ...] | None = None
    with_fields: bool = True
    is_epochs: bool = False
    is_counts: bool = False

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Whole batches as rows."""
        if self.record_type is not None:
            return _with_own_names(pa.record_batch(_engine.metadata_columns(data, self.record_type)))
        if self.types:
            return _of_types(data, self.types)
        if self.is_epochs:
            return _epochs(data)
        if self.is_counts:
            return _counts(data)
        found = _engine.metadata_overview(data, controls=self.controls, with_fields=self.with_fields)
        return pa.record_batch(found)

    def schema(self) -> pa.Schema:
        """The columns, with the name of the snapshot in front, which is null in the log."""
        return pa.schema([SNAPSHOT, *self.decode(b"").schema])


def options_of(parts: Sequence[Part], wanted: Wanted) -> dict[str, str]:
    """The options of a table."""
    return {"parts": to_text(parts), "wanted": json.dumps(wanted)}


class MetadataSource(DataSource):
    """A table of records. Its options are made by `options_of`, for this process's own use."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return FORMAT

    def schema(self) -> StructType:
        """Those of the wanted rows."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(_wanted(self.options["wanted"]).schema())

    def reader(self, schema: StructType) -> MetadataReader:
        """Reads the parts."""
        return MetadataReader(from_text(self.options["parts"]), _wanted(self.options["wanted"]))


def _wanted(text: str) -> Wanted:
    record_type, types, *rest = json.loads(text)
    return Wanted(record_type, tuple((name, number) for name, number in types), *rest)


class MetadataReader(DataSourceReader):
    """A task a part."""

    def __init__(self, parts: list[Part], wanted: Wanted) -> None:
        self._parts = parts
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        """The parts."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one part. Spark asks for None where there is none."""
        if partition is not None:
            yield from rows_of(partition.value, self._wanted)


def rows_of(part: Part, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The rows of a part, a batch a piece. UnreadableError."""
    for piece in part.pieces:
        rows = _decoded(part, piece, wanted)
        if rows.num_rows:
            yield _placed(rows, part.snapshot)


def _decoded(part: Part, piece: Piece, wanted: Wanted) -> pa.RecordBatch:
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
    except (_engine.RecordsDamagedError, _engine.MetadataRecordError) as error:
        raise UnreadableError(f"{part.path}, behind byte {piece.position}: {error}") from None


def _of_types(data: bytes, types: tuple[tuple[str, int], ...]) -> pa.RecordBatch:
    """Records of several types in one table: of the columns that have their names, one is not null."""
    tables = []
    for name, record_type in types:
        rows = _with_own_names(pa.record_batch(_engine.metadata_columns(data, record_type)))
        fields = list(rows.schema)[_PLACES:]
        struct = pa.StructArray.from_arrays(rows.columns[_PLACES:], fields=fields)
        places = {rows.schema.names[at]: rows.column(at) for at in range(_PLACES - 1)}
        tables.append(pa.table({**places, "type": pa.repeat(name, rows.num_rows), name: struct}))
    return _one_batch(pa.concat_tables(tables, promote_options="default"))


def _with_own_names(rows: pa.RecordBatch) -> pa.RecordBatch:
    """FenceBrokerRecord's epoch is its broker's, and beside the quorum's."""
    places, fields = rows.schema.names[:_PLACES], rows.schema.names[_PLACES:]
    return rows.rename_columns(places + [f"broker_{name}" if name in places else name for name in fields])


def _placed(rows: pa.RecordBatch, snapshot: SnapshotHead | None) -> pa.RecordBatch:
    """With the snapshot's name; what it holds stands at the last record that it contains."""
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
    rows = pa.record_batch(_engine.metadata_overview(data, with_fields=False)).select(["epoch", "offset", "timestamp"])
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
    rows = pa.record_batch(_engine.metadata_overview(data, with_fields=False)).select(["type"])
    found = pa.Table.from_batches([rows]).group_by("type", use_threads=False).aggregate([("type", "count")])
    return _one_batch(found.select(["type", "type_count"]).rename_columns(["type", "records"]))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    table = table.combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
