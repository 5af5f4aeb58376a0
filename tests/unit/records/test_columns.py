from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.foreign import require_package

from klamm import records
from klamm.records import BytesColumn, NewRecord, Record, RecordColumns

part = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), part), max_size=2)
rows = st.builds(NewRecord, part, part, st.integers(-1, 1 << 45), st.just([]) | headers)
sets = st.lists(st.lists(rows, min_size=1, max_size=20), max_size=4)


def values_of(column: BytesColumn) -> list[bytes | None]:
    """Read in the slow, obvious way."""
    offsets = memoryview(column.offsets).cast("i")
    data = bytes(column.data)
    validity = None if column.validity is None else bytes(column.validity)
    valid = [validity is None or bool(validity[i // 8] >> (i % 8) & 1) for i in range(len(column))]
    assert valid.count(False) == column.null_count
    return [data[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(column))]


def rows_of(columns: RecordColumns) -> list[tuple[int, int, bytes | None, bytes | None, list[object]]]:
    starts = memoryview(columns.header_offsets).cast("i")
    names, values = values_of(columns.header_keys), values_of(columns.header_values)
    pairs = [((name or b"").decode(), value) for name, value in zip(names, values, strict=True)]
    return list(
        zip(
            memoryview(columns.offsets).cast("q"),
            memoryview(columns.timestamps).cast("q"),
            values_of(columns.keys),
            values_of(columns.values),
            [list(pairs[starts[i] : starts[i + 1]]) for i in range(len(columns))],
            strict=True,
        )
    )


def row_of(record: Record) -> tuple[int, int, bytes | None, bytes | None, list[object]]:
    return record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)


@given(sets, st.sampled_from(records.CODECS))
def test_columns_contain_the_records(sets: list[list[NewRecord]], codec: str) -> None:
    data = b""
    offset = 5
    for one in sets:
        data += records.encode(one, compression=codec, base_offset=offset)
        offset += len(one)
    columns = records.decode_columns(data)
    assert rows_of(columns) == [row_of(record) for record in records.decode(data)]
    assert len(columns) == offset - 5


def test_a_buffer_is_read_only_and_outlives_its_columns() -> None:
    columns = records.decode_columns(records.encode([(5, b"key", b"value")]))
    view = memoryview(columns.values.data)
    del columns
    assert view.readonly
    assert bytes(view) == b"value"


def test_columns_of_batches_are_independent() -> None:
    data = records.encode([(1, b"a", None)]) + records.encode([(2, b"b", None)], base_offset=1)
    columns = records.batches(data)[1].columns(decompressed_bytes_max=100)
    assert rows_of(columns) == [(1, 2, b"b", None, [])]


def test_arrow_shares_the_buffers() -> None:
    require_package("pyarrow")
    given = [
        NewRecord(b"value", None, 1_700_000_000_000, [("h", b"1"), ("n", None)]),
        NewRecord(None, b"key", 1_700_000_000_001),
    ]
    columns = records.decode_columns(records.encode(given, compression="zstd", base_offset=7))
    batch = records.to_arrow(columns)
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == [7, 8]
    assert batch.column("timestamp").cast("int64").to_pylist() == [1_700_000_000_000, 1_700_000_000_001]
    assert batch.column("key").to_pylist() == [None, b"key"]
    assert batch.column("value").to_pylist() == [b"value", None]
    assert batch.column("headers").to_pylist() == [
        [{"key": b"h", "value": b"1"}, {"key": b"n", "value": None}],
        [],
    ]
    empty = records.to_arrow(records.decode_columns(b""))
    empty.validate(full=True)
    assert empty.num_rows == 0
