from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipelines.archive.records import batch

from klamm.pipelines.archive.checksum import CONTENT, Digest

ROW = {
    "key": b"k",
    "value": b"value",
    "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    "timestamp": 5,
    "offset": 1,
}


def checksum(batches: Iterable[pa.RecordBatch]) -> str:
    digest = Digest()
    for one in batches:
        digest.update(one)
    return digest.text()


_bytes = st.none() | st.binary(max_size=4)
_header = st.fixed_dictionaries({"key": st.text(max_size=2), "value": _bytes})
_rows = st.fixed_dictionaries(
    {
        "key": _bytes,
        "value": _bytes,
        "headers": st.none() | st.lists(_header, max_size=3),
        "timestamp": st.integers(-1, 2**40),
        "offset": st.integers(0, 2**62),
    }
)


@given(st.lists(_rows, max_size=12), st.lists(st.integers(0, 12), max_size=4))
def test_the_checksum_is_independent_of_batches(rows: list[dict[str, object]], cuts: list[int]) -> None:
    whole = batch(rows)
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    pieces = [whole.slice(start, end - start) for start, end in pairwise(edges)]
    assert checksum(pieces) == checksum([whole]) == checksum([batch([row]) for row in rows])


@pytest.mark.parametrize(
    "change",
    [
        {"key": None},
        {"key": b""},
        {"key": b"kv", "value": b"alue"},
        {"headers": None},
        {"headers": []},
        {"headers": [{"key": "b", "value": None}, {"key": "a", "value": b"1"}]},
        {"headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]},
        {"timestamp": 6},
        {"timestampType": 1},
        {"offset": 2},
    ],
)
def test_every_change_changes_the_checksum(change: dict[str, object]) -> None:
    assert checksum([batch([ROW | change])]) != checksum([batch([ROW])])


def test_the_order_counts() -> None:
    one, other = batch([ROW]), batch([ROW | {"key": b"z"}])
    assert checksum([one, other]) != checksum([other, one])


def test_the_content_of_equal_records_is_equal_at_other_offsets() -> None:
    texts = set()
    for offset in (1, 7):
        digest = Digest(CONTENT)
        digest.update(batch([ROW | {"offset": offset}]))
        texts.add(digest.text())
    assert len(texts) == 1


def test_bytes_of_null_values_do_not_count() -> None:
    kept = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.array([0, 3, 5], pa.int32()).buffers()[1], pa.py_buffer(b"xxxok")]
    )
    clean = batch([{"value": None}, {"value": b"ok"}])
    columns = [kept if name == "value" else clean.column(name) for name in clean.schema.names]
    assert checksum([pa.RecordBatch.from_arrays(columns, schema=clean.schema)]) == checksum([clean])
