from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipelines.archive.mapping import Mapping, Run, file_of, joined, read_runs, runs_of, write_runs
from klamm.pipelines.errors import PipelineError


@given(st.sets(st.integers(0, 40), max_size=25), st.integers(0, 9), st.integers(1, 5))
def test_a_committed_offset_means_the_same_record(old: set[int], base: int, rows: int) -> None:
    """Compared with a linear search."""
    offsets = sorted(old)
    runs: list[Run] = []
    for start in range(0, len(offsets), rows):
        joined(runs, runs_of(pa.array(offsets[start : start + rows], pa.int64()), base + start))
    mapping = Mapping({0: base}, {0: runs})
    for committed in range(43):
        before = sum(offset < committed for offset in offsets)
        assert mapping.translate(0, committed) == base + before
    assert sum(records for _, _, records in runs) == len(offsets)
    assert all(first[0] + first[2] < second[0] for first, second in pairwise(runs))


def test_the_files_of_a_topic_are_its_mapping(tmp_path: Path) -> None:
    for start, runs in ((0, [(0, 7, 3), (5, 10, 1)]), (6, [(6, 11, 2)])):
        write_runs(file_of(tmp_path, "t", "copy", 3, start), 3, runs)
    write_runs(file_of(tmp_path, "t", "other", 3, 0), 3, [(0, 0, 1)])
    mapping = read_runs(tmp_path, "t", "copy", {3: 7})
    assert mapping.runs == {3: [(0, 7, 3), (5, 10, 3)]}
    assert mapping.translate(3, 4) == 10
    with pytest.raises(PipelineError, match="partition 1 was not restored"):
        mapping.translate(1, 0)


def test_an_empty_range_has_an_empty_file(tmp_path: Path) -> None:
    write_runs(file_of(tmp_path, "t", "t", 0, 0), 0, [])
    assert read_runs(tmp_path, "t", "t", {0: 0}).runs == {}
