"""From options to rows: the reader's schema is fixed, writers' schemas are fetched, bad records follow the policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.formats.registry_server import FakeRegistry, serving

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.formats import registry as module
from klamm.spark.formats.avro.binary import encode
from klamm.spark.formats.avro.schema import parse
from klamm.spark.formats.planning import PlanningError, pin, shape_of
from klamm.spark.formats.registry import RegistryError
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.options import SourceOptions, parse_batch
from klamm.spark.reading.rows import CorruptValueError, Rows

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "note", "type": ["null", "string"], "default": None}, {"name": "id", "type": "long"}],
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(module, "_SCHEMAS", {})
    monkeypatch.setattr(module, "_PAUSE_S", 0)
    with serving() as running:
        yield running


def parsed(**options: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_batch({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"} | named)


def pinned(**options: str) -> SourceOptions:
    found = parsed(**options)
    return replace(found, key=pin(found.key, found.topics), value=pin(found.value, found.topics))


def framed(schema_id: int, schema: object, value: object) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + encode(parse(json.dumps(schema)), value, "it")


def rows_of(options: SourceOptions, *values: bytes | None, key: bytes | None = None) -> list[dict[str, Any]]:
    """The rows of a partition's records from offset 5 on."""
    shape = shape_of(options.value)
    assert shape is not None
    note = pa.struct([("note", pa.string()), ("id", pa.int64())])
    schema = pa.schema([("value", note), ("offset", pa.int64())])
    if options.value.on_bad.value == "keep":
        schema = schema.append(pa.field("_corrupt", pa.binary()))
    rows = Rows(options, schema)
    columns = {"value": pa.array(values, pa.binary()), "offset": pa.array(range(5, 5 + len(values)), pa.int64())}
    fetched = pa.RecordBatch.from_arrays([columns[name] for name in rows.fetched], names=rows.fetched)
    return rows.of(fetched, TopicPartition("orders", 0)).to_pylist()


def test_records_of_several_schemas_are_read_as_the_latest(fake: FakeRegistry) -> None:
    first = fake.register("orders-value", json.dumps(FIRST))
    second = fake.register("orders-value", json.dumps(SECOND))
    options = pinned(value__format="avro", **{"schema.registry.url": fake.url})
    fake.register("orders-value", '"string"')  # readers with this plan do not see it
    values = [framed(first, FIRST, {"id": 1}), None, framed(second, SECOND, {"note": "n", "id": 2})]
    assert [row["value"] for row in rows_of(options, *values)] == [
        {"note": None, "id": 1},
        None,
        {"note": "n", "id": 2},
    ]
    asked = len(fake.asked)
    rows_of(options, *values)
    assert len(fake.asked) == asked, "a process asks once"


def test_a_schema_that_is_unknown_or_does_not_fit_makes_its_values_bad(fake: FakeRegistry) -> None:
    good = fake.register("orders-value", json.dumps(SECOND))
    other = fake.register("others", json.dumps({"type": "record", "name": "X", "fields": []}))
    proto = fake.register("protos", 'syntax = "proto3"; message M { bool b = 1; }', "PROTOBUF")
    options = pinned(value__format="avro", value__onError="keep", **{"schema.registry.url": fake.url})
    bad = [framed(77, "int", 1), framed(other, "null", None), framed(proto, "int", 1), b"\0\0", b"{}", b""]
    value = framed(good, SECOND, {"note": None, "id": 3})
    found = rows_of(options, *bad, value)
    assert [row["_corrupt"] for row in found] == [*bad, None]
    assert [row["value"] for row in found] == [None] * len(bad) + [{"note": None, "id": 3}]
    dropped = replace(options, value=replace(options.value, on_bad=type(options.value.on_bad).DROP))
    assert [row["offset"] for row in rows_of(dropped, *bad, value)] == [11]
    failing = replace(options, value=replace(options.value, on_bad=type(options.value.on_bad).FAIL))
    for one, why in (
        (bad[0], r"the registry has no schema 77 \(option 'schema\.registry\.url' is 'http"),
        (bad[1], rf"schema {other}: it was written as record X and cannot be read as record Order: field 'id'"),
        (bad[2], rf"schema {proto}: schema {proto} is of the kind PROTOBUF"),
        (bad[3], "it is 2 bytes long, and a Confluent header alone is 5"),
        (b"{'id': 1}", "its first byte is 123, and a Confluent header begins with 0"),
    ):
        with pytest.raises(
            CorruptValueError, match=r"the value at offset 5 of partition orders-0 is not valid avro: " + why
        ):
            rows_of(failing, one)


def test_a_registry_that_is_down_makes_no_record_bad(fake: FakeRegistry) -> None:
    fake.register("orders-value", json.dumps(SECOND))
    options = pinned(value__format="avro", value__onError="drop", **{"schema.registry.url": fake.url})
    fake.failures_left = 10
    with pytest.raises(
        RegistryError, match=r"option 'schema\.registry\.url' is 'http.*: schema 9 cannot be requested: HTTP"
    ):
        rows_of(options, framed(9, "int", 1))


def test_a_schema_file_determines_the_columns(fake: FakeRegistry, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SECOND))
    first = fake.register("elsewhere", json.dumps(FIRST))
    by_file = {"value.schema.file": str(file)}
    value = [{"note": "n", "id": 4}]
    alone = pinned(value__format="avro", **by_file)
    assert [row["value"] for row in rows_of(alone, framed(1234, SECOND, value[0]))] == value
    bare = pinned(value__format="avro", value__framing="none", **by_file)
    assert [row["value"] for row in rows_of(bare, framed(0, SECOND, value[0])[5:])] == value
    both = pinned(value__format="avro", **by_file, **{"schema.registry.url": fake.url})
    assert rows_of(both, framed(first, FIRST, {"id": 9}))[0]["value"] == {"note": None, "id": 9}


def test_a_proto_file_finds_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "order.proto").write_text(
        'syntax = "proto3"; package shop; import "shop/line.proto"; import "google/protobuf/timestamp.proto";'
        "message Order { string note = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3; }"
    )
    (tmp_path / "shop" / "line.proto").write_text('syntax = "proto3"; package shop; message Line { int32 n = 1; }')
    options = pinned(value__format="protobuf", **{"value.schema.file": str(tmp_path / "shop" / "order.proto")})
    shape = shape_of(options.value)
    assert shape is not None
    assert shape.ddl() == "struct<`note`: string, `lines`: array<struct<`n`: int>>, `at`: timestamp>"
    (tmp_path / "shop" / "line.proto").unlink()
    with pytest.raises(PlanningError, match=r"value\.schema\.file' is '.*order\.proto': it imports 'shop/line\.proto'"):
        pinned(value__format="protobuf", **{"value.schema.file": str(tmp_path / "shop" / "order.proto")})


def test_a_key_has_its_own_options(fake: FakeRegistry) -> None:
    fake.register("orders-key", '"long"')
    fake.register("orders-value", json.dumps(SECOND))
    registry = {"schema.registry.url": fake.url}
    options = pinned(key__format="avro", key__onError="keep", value__format="avro", value__onError="drop", **registry)
    kinds = pa.struct([("note", pa.string()), ("id", pa.int64())])
    rows = Rows(options, pa.schema([("key", pa.int64()), ("value", kinds), ("_corrupt_key", pa.binary())]))
    keys = [framed(1, "long", 6), b"bad", framed(1, "long", 7)]
    values = [framed(2, SECOND, {"note": None, "id": 1})] * 2 + [b"bad"]
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    columns["offset"] = pa.array([0, 1, 2], pa.int64())
    fetched = pa.RecordBatch.from_arrays([columns[name] for name in rows.fetched], names=rows.fetched)
    found = rows.of(fetched, TopicPartition("orders", 0)).to_pylist()
    assert [(row["key"], row["value"]["id"], row["_corrupt_key"]) for row in found] == [(6, 1, None), (None, 1, b"bad")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value__format": "avor"}, "'value.format' is 'avor': say binary, string, json, avro or protobuf"),
        ({"value__format": "avro"}, "'value.schema.file' is missing: value.format=avro needs a schema"),
        ({"value__schema__file": "x"}, "'value.schema.file' is 'x': it applies to value.format=avro or protobuf"),
        (
            {"value__format": "avro", "value__message": "M"},
            "'value.message' is 'M': it applies to value.format=protobuf",
        ),
        ({"value__framing": "none"}, "'value.framing' is 'none': it applies to"),
        ({"value__onError": "drop"}, "it needs value.format"),
        ({"value__format": "json"}, "'value.schema' is missing: value.format=json needs fields"),
        (
            {"value__format": "avro", "value__schema": '"int"', "value__schema__file": "x"},
            "'value.schema.file' is 'x': value.schema is set too",
        ),
        ({"value__format": "avro", "value__schema__subject": "s"}, "'schema.registry.url' is missing"),
        ({"schema__registry__url": "localhost:8081"}, "is 'localhost:8081': it must be http://host:port"),
        ({"schema__registry__bearer__auth__token": "secret"}, "'schema.registry.url' is missing"),
        ({"schema__registry__basic__auth__userinfo": "secret"}, "did you mean 'schema.registry.basic.auth.user.info'?"),
        (
            {
                "schema__registry__url": "http://x",
                "schema__registry__bearer__auth__token": "secret",
                "schema__registry__basic__auth__user__info": "a:secret",
            },
            "'schema.registry.bearer.auth.token' is (not shown): schema.registry.basic.auth.user.info is set too",
        ),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=r"(?s).*") as refused:
        parsed(**options)
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


def test_unusable_schemas_are_named_in_planning(fake: FakeRegistry, tmp_path: Path) -> None:
    url = {"schema.registry.url": fake.url}
    fake.register("orders-value", 'syntax = "proto3"; message M { bool b = 1; }', "PROTOBUF")
    fake.register("broken", '{"type": "record"}')
    for options, message in (
        (
            {"value.format": "avro", **url},
            "option 'value.format' is 'avro', and the schema of subject 'orders-value' is",
        ),
        ({"value.format": "avro", "value.schema.subject": "none", **url}, "does not have the schema of subject 'none'"),
        ({"value.format": "avro", "value.schema.subject": "broken", **url}, "the schema of subject 'broken': the Avro"),
        ({"value.format": "protobuf", "value.message": "N", **url}, "has no message 'N'; it has M"),
        (
            {"value.format": "avro", "subscribe": "a,b", **url},
            "'value.schema.subject' is missing: there are the topics a, b",
        ),
        ({"value.format": "avro", "value.schema": "{"}, "option 'value.schema': the Avro schema is no JSON"),
        ({"value.format": "avro", "value.schema.file": f"{tmp_path}/no"}, "/no': No such file or directory"),
    ):
        with pytest.raises((PlanningError, RegistryError), match=r"(?s).*") as refused:
            pinned(**options)
        assert message in str(refused.value)
