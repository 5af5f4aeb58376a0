"""The records of an archived range in the order of offsets, from any number of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from klamm.pipelines.archive.manifest import DataFile, Range
from klamm.pipelines.archive.schema import SCHEMA, conform
from klamm.pipelines.archive.store import locate
from klamm.pipelines.errors import PipelineError

ROWS_MAX: Final = 16_384


def records_of(root: Path, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range. PipelineError names a file that is damaged or missing."""
    return in_order([_batches(root, file) for file in wanted.files])


def in_order(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge streams that are sorted by offset; holds one batch of each in memory.

    A step gives all records up to the smallest offset that ends a batch: no stream has any of them after its batch.
    """
    heads = [(stream, batch) for stream in streams if (batch := _next(stream)) is not None]
    while len(heads) > 1:
        end = min(_last(batch) for _, batch in heads)
        ready: list[pa.RecordBatch] = []
        left: list[tuple[Iterator[pa.RecordBatch], pa.RecordBatch]] = []
        for stream, batch in heads:
            count = _count_up_to(batch, end)
            ready.append(batch.slice(0, count))
            rest = batch.slice(count) if count < batch.num_rows else _next(stream)
            if rest is not None:
                left.append((stream, rest))
        yield _sorted(ready)
        heads = left
    for stream, batch in heads:
        yield batch
        yield from stream


def batches_of(place: Path) -> Iterator[pa.RecordBatch]:
    """The records of a file; holds one row group in memory. Raises pyarrow's exceptions."""
    with pq.ParquetFile(place) as opened:
        for group in range(opened.num_row_groups):
            for batch in opened.iter_batches(ROWS_MAX, row_groups=[group]):
                yield conform(batch)


def _batches(root: Path, file: DataFile) -> Iterator[pa.RecordBatch]:
    place = locate(root, file.path)
    try:
        yield from batches_of(place)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise PipelineError(f"'{place}' is damaged: {str(error).splitlines()[0]}") from None


def _next(stream: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next((batch for batch in stream if batch.num_rows), None)


def _last(batch: pa.RecordBatch) -> int:
    last: int = batch.column("offset")[-1].as_py()
    return last


def _count_up_to(batch: pa.RecordBatch, offset: int) -> int:
    count: int = pc.sum(pc.less_equal(batch.column("offset"), offset)).as_py()
    return count


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema=SCHEMA)
    return table.take(pc.sort_indices(table.column("offset"))).combine_chunks().to_batches()[0]
