"""Avro schemas: their types in Spark, and how values written with another schema are read."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from klamm._engine.spark import ValueDecoder
from klamm.spark.formats.avro.binary import encode
from klamm.spark.formats.avro.schema import parse
from klamm.spark.formats.reading import reading_of
from klamm.spark.formats.schema_text import SchemaText
from klamm.spark.formats.shapes import SchemaError


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def text_of(schema: object) -> SchemaText:
    return SchemaText("AVRO", json.dumps(schema))


def ddl(schema: object) -> str:
    return reading_of(text_of(schema), None).shape.ddl()


def read(written: object, wanted: object, *values: object) -> list[Any]:
    """Read values written with one schema with another schema; also returns the errors of bad values."""
    reading = reading_of(text_of(wanted), None)
    native = ValueDecoder(json.dumps(reading.shape.to_json()), framed=False)
    native.learn(None, reading.program(text_of(written)))
    schema = parse(json.dumps(written))
    rows = []
    for value in values:
        raw = value if isinstance(value, bytes) else encode(schema, value, "it")
        found = native.decode(pa.array([raw], pa.binary()))
        rows.append(found.why if found.bad else pa.array(found).to_pylist()[0])
    return rows


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("null", "void"),
        (["null", "int"], "int"),
        (["int", "long"], "bigint"),
        (["null", "double", "float"], "double"),
        (["int", "string", "null"], "struct<`member0`: int, `member1`: string>"),
        ([{"type": "int", "logicalType": "date"}, "long"], "struct<`member0`: date, `member1`: bigint>"),
        ({"type": "map", "values": {"type": "array", "items": "bytes"}}, "map<string, array<binary>>"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}, "binary"),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 9}, "binary"),
        ({"type": "long", "logicalType": "date"}, "bigint"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "string"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "binary"),
        ({"type": {"type": "string", "avro.java.string": "String"}}, "string"),
    ],
)
def test_types_in_spark(schema: object, expected: str) -> None:
    assert ddl(schema) == expected


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is no JSON"),
        ('"Unknown"', "has the type 'Unknown', which nothing defines"),
        ('{"type": "record", "name": "R"}', "record R without a list of fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "record R with the field"),
        ('{"type": "record", "name": "1", "fields": []}', "a record whose name is '1'"),
        ('{"type": "enum", "name": "E"}', "enum E without a list of symbols"),
        ('{"type": "fixed", "name": "F", "size": -1}', "fixed F of size -1"),
        ('{"type": "array"}', "has no type in null"),
        ('["int", ["long"]]', "a union right in a union"),
        ("[]", "a union of nothing"),
        ("5", "has no type in 5"),
        (
            '[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}]',
            "defines 'F' twice",
        ),
        (
            '{"type": "record", "name": "a.R", "fields": [{"name": "next", "type": ["null", "R"]}]}',
            "record a.R is within itself",
        ),
        (
            '{"type": "bytes", "logicalType": "decimal", "precision": 39}',
            "a decimal has 39 digits, and Spark's have 38",
        ),
        ("[" * 3000, "Avro schema is n"),
    ],
)
def test_unsupported_schemas_are_named(schema: str, message: str) -> None:
    with pytest.raises(SchemaError, match=r"(?s).*") as refused:
        reading_of(SchemaText("AVRO", schema), None)
    assert message in str(refused.value)


def test_names_are_found_in_their_namespace_and_in_references() -> None:
    inner = json.dumps({"type": "enum", "name": "shop.Color", "symbols": ["RED"]})
    schema = record({"name": "a", "type": "Color"}, {"name": "b", "type": "shop.Color"}, name="shop.R")
    found = reading_of(SchemaText("AVRO", json.dumps(schema), (("color.avsc", inner),)), None)
    assert found.shape.ddl() == "struct<`a`: string, `b`: string>"


@pytest.mark.parametrize(
    ("written", "wanted", "value", "expected"),
    [
        ("int", "long", 7, 7),
        ("int", "float", 7, 7.0),
        ("int", "double", -7, -7.0),
        ("long", "float", 7, 7.0),
        ("long", "double", 2**40, 2.0**40),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "\u00fc", "\u00fc".encode()),
        ("bytes", "string", "a", "a"),
        ("bytes", "string", "\xff", "a text is not UTF-8"),
        ("int", ["null", "long"], 3, 3),
        (["null", "int"], "long", 3, 3),
        (["null", "int"], "long", None, "it was written as null and cannot be read as long"),
        ("null", ["null", "int"], None, None),
        (["int", "string"], ["string", "int"], 3, {"member0": None, "member1": 3}),
        (["int", "boolean"], ["string", "int"], True, "it was written as boolean and cannot be read as union of"),
        ("int", ["string", "double", "long"], 3, {"member0": None, "member1": 3.0, "member2": None}),
        (["int", "long"], ["long", "int"], 3, 3),
        ({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "double"]}, [1, 2], [1.0, 2.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"a": 1}, [("a", 1)]),
    ],
)
def test_promoted_types(written: object, wanted: object, value: object, expected: object) -> None:
    (found,) = read(written, wanted, value)
    if isinstance(expected, str) and isinstance(found, str):
        assert found.startswith(expected)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("written", "wanted", "message"),
    [
        ("long", "int", "it was written as long and cannot be read as int"),
        ("string", "int", "it was written as string and cannot be read as int"),
        ("string", ["null", "int"], "it was written as string and cannot be read as int"),
        (
            record({"name": "a", "type": record({"name": "b", "type": "string"}, name="I")}),
            record({"name": "a", "type": record({"name": "b", "type": "int"}, name="I")}),
            "a.b was written as string and cannot be read as int",
        ),
        (record(), record({"name": "a", "type": "int"}), "field 'a' was not written and has no default"),
        (
            record(),
            record({"name": "a", "type": "int", "default": "x"}),
            "the default of a is 'x', which is no int",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "it was written as fixed F",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "F", "symbols": ["A"]},
            "it was written as enum E and cannot be read as enum F",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "3 digits after the decimal point, not 2",
        ),
    ],
)
def test_unreadable_fields_are_reported_with_their_path(written: object, wanted: object, message: str) -> None:
    with pytest.raises(SchemaError, match=r"(?s).*") as refused:
        reading_of(text_of(wanted), None).program(text_of(written))
    assert message in str(refused.value)


def test_fields_by_name_alias_and_default() -> None:
    written = record(
        {"name": "gone", "type": {"type": "array", "items": "string"}},
        {"name": "b", "type": "int"},
        {"name": "old", "type": "string"},
    )
    wanted = record(
        {"name": "new", "aliases": ["older", "old"], "type": "string"},
        {"name": "added", "type": ["null", "string"], "default": None},
        {"name": "number", "type": "double", "default": 1},
        {"name": "b", "type": "long"},
        {"name": "inner", "type": record({"name": "x", "type": "int", "default": 4}, name="I"), "default": {}},
    )
    assert read(written, wanted, {"gone": ["a", "b"], "b": 5, "old": "o"}) == [
        {"new": "o", "added": None, "number": 1.0, "b": 5, "inner": {"x": 4}}
    ]


def test_symbols_that_the_reader_does_not_have() -> None:
    written = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    assert read(written, {"type": "enum", "name": "x.E", "symbols": ["C", "A"]}, "A", "B", "C") == [
        "A",
        "the reader's schema has no counterpart for symbol 1 of an enum",
        "C",
    ]
    assert read(written, {"type": "enum", "name": "E", "symbols": ["C"], "default": "C"}, "A", "C") == ["C", "C"]


def test_times_are_read_by_the_unit_they_were_written_in() -> None:
    millis, micros, plain = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros", "x"))
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    for written, wanted, number in (
        (millis, millis, 1),
        (millis, micros, 1),
        (micros, millis, 1000),
        (plain, millis, 1),
        (nanos, micros, 1_000_999),
    ):
        (found,) = read(written, wanted, number)
        assert found.timestamp() == 0.001, (written, wanted)
    (before,) = read(nanos, nanos, -1)
    assert before.isoformat() == "1969-12-31T23:59:59.999999+00:00"
    assert read(millis, "long", 5) == [5]


def test_a_recursive_schema_is_skipped_if_it_is_not_read() -> None:
    tree = record({"name": "kids", "type": {"type": "array", "items": "Tree"}}, name="Tree")
    written = record({"name": "tree", "type": tree}, {"name": "id", "type": "int"})
    deep: dict[str, Any] = {"kids": []}
    for _ in range(20):
        deep = {"kids": [deep, {"kids": []}]}
    assert read(written, record({"name": "id", "type": "int"}), {"tree": deep, "id": 6}) == [{"id": 6}]
    endless = bytes([2]) * 5000
    assert "nested more than 64 deep" in read(written, record({"name": "id", "type": "int"}), endless)[0]
