"""The new offsets of restored records, as Parquet next to the state of a restore and as a function.

A row is a run of records that are contiguous in both topics:

    partition int, old_offset bigint, new_offset bigint, records bigint
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from klamm.pipelines.archive.store import make_folder, write_durably
from klamm.pipelines.errors import PipelineError

FOLDER: Final = "mapping"
SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("old_offset", pa.int64(), nullable=False),
        pa.field("new_offset", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
    ]
)
Run = tuple[int, int, int]
"""The first old offset, its new one, and the number of records."""


def runs_of(offsets: pa.Array, new_offset: int) -> list[Run]:
    """The runs of a batch whose first record has `new_offset`."""
    if not len(offsets):
        return []
    steps = pc.subtract(offsets[1:], offsets[:-1])
    starts = [0, *(index + 1 for index in pc.indices_nonzero(pc.not_equal(steps, 1)).to_pylist())]
    ends = [*starts[1:], len(offsets)]
    return [(offsets[start].as_py(), new_offset + start, end - start) for start, end in zip(starts, ends, strict=True)]


def joined(runs: list[Run], more: Iterable[Run]) -> None:
    """Append runs, merging those that continue the previous one."""
    for old, new, records in more:
        if runs and runs[-1][0] + runs[-1][2] == old:
            runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + records)
        else:
            runs.append((old, new, records))


def file_of(state: Path, topic: str, target: str, partition: int, start: int) -> Path:
    """The file with the runs of the range that begins at offset `start`."""
    return _folder_of(state, topic, target) / f"{partition:05}-{start:020}.parquet"


def _folder_of(state: Path, topic: str, target: str) -> Path:
    return state / FOLDER / f"topic={topic}" / f"target={target}"


def forget_runs(state: Path, topic: str, target: str) -> None:
    """Delete the mapping into a target that no longer exists."""
    for file in _folder_of(state, topic, target).glob("*.parquet"):
        file.unlink()


def write_runs(file: Path, partition: int, runs: list[Run]) -> None:
    """Write the runs of a range atomically."""
    old, new, records = zip(*runs, strict=True) if runs else ((), (), ())
    columns = [[partition] * len(runs), old, new, records]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), sink)
    make_folder(file.parent)
    write_durably(file, sink.getvalue().to_pybytes())


@dataclass(slots=True)
class Mapping:
    """Maps old offsets of one restored topic to new ones."""

    bases: dict[int, int]
    """The new offset of each partition's first record."""
    runs: dict[int, list[Run]] = field(default_factory=dict)
    """By partition, ascending."""

    def translate(self, partition: int, offset: int) -> int:
        """The new offset of the first record that had `offset` or a later one: a committed offset means the same there.

        PipelineError for a partition that was not restored.
        """
        if partition not in self.bases:
            raise PipelineError(f"partition {partition} was not restored, so offset {offset} of it has no new one")
        runs = self.runs.get(partition, [])
        found = bisect_right(runs, offset, key=lambda run: run[0]) - 1
        if found < 0:
            return self.bases[partition]
        old, new, records = runs[found]
        return new + min(offset - old, records)


def read_runs(state: Path, topic: str, target: str, bases: dict[int, int]) -> Mapping:
    """The mapping of a topic, for the records restored so far."""
    mapping = Mapping(bases)
    for file in sorted(_folder_of(state, topic, target).glob("*.parquet")):
        for row in pq.read_table(file, schema=SCHEMA).to_pylist():
            run = row["old_offset"], row["new_offset"], row["records"]
            joined(mapping.runs.setdefault(row["partition"], []), [run])
    return mapping
