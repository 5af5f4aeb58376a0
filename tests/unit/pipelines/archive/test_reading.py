from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipelines.archive.records import offsets

from klamm.pipelines.archive.reading import in_order


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 7))
def test_files_of_several_days_are_read_in_the_order_of_offsets(files: list[int], rows: int) -> None:
    """Offset n is in file `files[n]`."""
    streams: list[list[pa.RecordBatch]] = []
    for number in range(4):
        mine = [offset for offset, file in enumerate(files) if file == number]
        streams.append([offsets(*mine[start : start + rows]) for start in range(0, len(mine), rows)])
    found = [row for batch in in_order([iter(one) for one in streams]) for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == list(range(len(files)))
    assert [row["value"] for row in found] == [b"%d" % number for number in range(len(files))]
