"""Values are decoded with Arrow; which of them are bad."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.options.options import parse_batch
from klamm.spark.reading.decoding import decode, decode_string, json_decoder
from klamm.spark.reading.rows import CorruptValueError, Rows

PERSON = pa.struct([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def test_objects_of_json() -> None:
    found = decode(
        binary(b'{"id": 1, "name": "a"}', None, b'\n{"tags": ["x", null], "other": {"id": 2}}\r\n', b"{}"),
        json_decoder(PERSON),
        PERSON,
    )
    assert found.bad == []
    assert found.values.type == PERSON
    assert found.values.to_pylist() == [
        {"id": 1, "name": "a", "tags": None},
        None,
        {"id": None, "name": None, "tags": ["x", None]},
        {"id": None, "name": None, "tags": None},
    ]


BAD = [
    b"",
    b"null",
    b"[]",
    b"nonsense",
    b'{"id": 1',
    b'{"id": 1}}',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1} {"id": 2}',
    b'{"id": "1"}',
    b'{"id": 1.5}',
    b'{"name": "a\nb"}',
    b'{"name": "\xff"}',
]


@pytest.mark.parametrize("value", BAD)
def test_values_that_are_no_json_object(value: bytes) -> None:
    good = b'{"id": 7}'
    found = decode(binary(good, good, value, good), json_decoder(PERSON), PERSON)
    assert found.bad == [2]
    assert [one and one["id"] for one in found.values.to_pylist()] == [7, 7, None, 7]


def test_fragments_of_several_records_are_not_joined() -> None:
    for pieces in (
        [b'{"id": 1', b"}"],
        [b'{"tags": [', b"]}"],
        [b'{"id": 1}{"id": 2}', b" "],
        [b'{"name": "}', b'{"}'],
    ):
        assert decode(binary(*pieces), json_decoder(PERSON), PERSON).bad == [0, 1], pieces


people = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(),
        "tags": st.none() | st.lists(st.none() | st.text()),
    },
)


@given(st.lists(st.none() | people | st.sampled_from(BAD), max_size=40), st.booleans())
def test_every_record_is_decoded_independently(rows: list[object], ascii_only: bool) -> None:
    texts = [
        one
        if one is None or isinstance(one, bytes)
        else json.dumps(one, ensure_ascii=ascii_only).encode("utf-8", "replace")
        for one in rows
    ]
    found = decode(binary(*texts), json_decoder(PERSON), PERSON)
    alone = [decode(binary(text), json_decoder(PERSON), PERSON) for text in texts]
    assert found.values.to_pylist() == [one.values.to_pylist()[0] for one in alone]
    assert found.bad == [number for number, one in enumerate(alone) if one.bad]


def test_text() -> None:
    found = decode(binary(b"a", b"\xff", None, "\u00fc".encode()), decode_string, pa.string())
    assert found.values.to_pylist() == ["a", None, None, "\u00fc"]
    assert found.bad == [1]


# Bad values

ROWS = pa.schema([("value", pa.string()), ("offset", pa.int64())])


def rows_of(schema: pa.Schema, **options: str) -> pa.RecordBatch:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "value.format": "string"} | options
    rows = Rows(parse_batch(given), schema)
    columns = {"value": binary(b"a", b"\xff", None), "offset": pa.array([5, 6, 7], pa.int64())}
    fetched = pa.RecordBatch.from_arrays([columns[name] for name in rows.fetched], names=rows.fetched)
    return rows.of(fetched, TopicPartition("t", 0))


def test_a_bad_value_fails_and_is_named() -> None:
    with pytest.raises(
        CorruptValueError,
        match=r"offset 6 of partition t-0 is not valid string: .*set the option value\.onError to drop",
    ):
        rows_of(ROWS)
    with pytest.raises(CorruptValueError, match="offset 6"):
        rows_of(pa.schema([ROWS.field("value")]))


def test_a_bad_value_is_dropped() -> None:
    assert rows_of(ROWS, **{"value.onError": "drop"}).to_pydict() == {"value": ["a", None], "offset": [5, 7]}


def test_a_bad_value_is_kept() -> None:
    schema = ROWS.append(pa.field("_corrupt", pa.binary()))
    assert rows_of(schema, **{"value.onError": "keep"}).to_pydict() == {
        "value": ["a", None, None],
        "offset": [5, 6, 7],
        "_corrupt": [None, b"\xff", None],
    }
