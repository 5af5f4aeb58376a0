"""`value.format`: Spark gets decoded values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.producing import Sent, send
from tests.unit.spark.formats.registry_server import FakeRegistry, serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, at timestamp, parts array<struct<name: string, price: decimal(10, 2)>>"
GOOD = b'{"id": 1, "at": "2024-01-01T00:00:00Z", "parts": [{"name": "a", "price": 1.5}, null]}'


@pytest.fixture
def orders(bootstrap: str, topic: Callable[..., str]) -> str:
    name = topic()
    send(bootstrap, name, [Sent(GOOD), Sent(None), Sent(b"{}"), Sent(b'{"id": '), Sent(b"\xff")])
    return name


@pytest.fixture
def read(spark: SparkSession, bootstrap: str, orders: str) -> Callable[..., DataFrame]:
    def load(value_format: str, **options: str) -> DataFrame:
        reader = spark.read.format("klamm").options(**options).option("value.format", value_format)
        return reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", orders).load()

    return load


def test_json_is_read_as_columns(read: Callable[..., DataFrame]) -> None:
    frame = read("json", **{"value.schema": SCHEMA, "value.onError": "keep", "includeHeaders": "true"})
    assert frame.columns[-2:] == ["headers", "_corrupt"]
    rows = frame.selectExpr(
        "offset", "value is null as is_null", "value.id", "string(value.at) as at", "value.parts", "_corrupt"
    ).orderBy("offset")
    found = [
        (
            row.offset,
            row.is_null,
            row.id,
            row.at,
            row.parts and [part and part.name for part in row.parts],
            row._corrupt,
        )
        for row in rows.collect()
    ]
    assert found == [
        (0, False, 1, "2024-01-01 00:00:00", ["a", None], None),
        (1, True, None, None, None, None),
        (2, False, None, None, None, None),
        (3, True, None, None, None, b'{"id": '),
        (4, True, None, None, None, b"\xff"),
    ]


def test_bad_values_are_dropped_or_fail(read: Callable[..., DataFrame], orders: str) -> None:
    dropped = read("string", **{"value.onError": "drop"}).select("value").collect()
    assert sorted(str(row.value) for row in dropped) == sorted([GOOD.decode(), "None", "{}", '{"id": '])
    with pytest.raises(Exception, match=f"the value at offset 3 of partition {orders}-0 is not valid json: .*"):
        read("json", **{"value.schema": SCHEMA}).collect()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id long, of map<string, int>", "value.of is map<string,int>, which cannot be read from JSON"),
        ("id date", "value.id is date, which cannot be read from JSON"),
    ],
)
def test_unsupported_json_options_are_named(read: Callable[..., DataFrame], schema: str, message: str) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as refused:
        read("json", **{"value.schema": schema}).collect()
    assert message in str(refused.value)


def test_a_schema_without_the_value_decodes_nothing(spark: SparkSession, bootstrap: str, orders: str) -> None:
    reader = spark.read.format("klamm").schema("offset long").option("value.format", "string")
    with pytest.raises(Exception, match=r"the schema has no column 'value', and option 'value\.format' is 'string'"):
        reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", orders).load().collect()


# Schemas of a registry, and of files

GOLDEN = Path(__file__).parents[1] / "golden" / "formats"
FIRST = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
SECOND = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}]}"""


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with serving() as running:
        yield running


def framed(schema_id: int, value: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + value


def golden(name: str) -> list[Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text())  # type: ignore[no-any-return]


def test_avro_of_several_schemas_batch_and_streaming(
    spark: SparkSession, bootstrap: str, topic: Callable[..., str], registry: FakeRegistry, tmp_path: Path
) -> None:
    name = topic()
    first, second = (registry.register(f"{name}-value", schema) for schema in (FIRST, SECOND))
    bad = framed(first, b"\xff")
    send(
        bootstrap,
        name,
        [Sent(framed(first, b"\x02")), Sent(bad), Sent(None), Sent(framed(second, b"\x04\x02\x02n"), key=b"k")],
    )
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "startingOffsets": "earliest"}
    options |= {"value.format": "avro", "value.onError": "keep", "schema.registry.url": registry.url}
    options |= {"key.format": "string"}
    frame = spark.read.format("klamm").options(**options).load()
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,note:string>"
    expected = [
        (0, None, 1, None, None),
        (1, None, None, None, bad),
        (2, None, None, None, None),
        (3, "k", 2, "n", None),
    ]
    columns = ["offset", "key", "value.id", "value.note", "_corrupt"]
    assert [tuple(row) for row in frame.select(columns).orderBy("offset").collect()] == expected
    typed = spark.read.format("klamm").schema("key string, value struct<id: long, note: string>").options(**options)
    assert typed.load().where("value.note = 'n'").count() == 1
    stream = spark.readStream.format("klamm").options(**options).load().select(columns)
    out = str(tmp_path / "out")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    writer.trigger(availableNow=True).start(out).awaitTermination()
    assert [tuple(row) for row in spark.read.parquet(out).orderBy("offset").collect()] == expected


def test_every_type_of_avro(
    spark: SparkSession, bootstrap: str, topic: Callable[..., str], registry: FakeRegistry
) -> None:
    values = golden("avro")["values"]
    written = registry.register("everything", (GOLDEN / "writer.avsc").read_text())
    name = topic()
    send(bootstrap, name, [Sent(framed(written, bytes.fromhex(one["hex"]))) for one in values])
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "value.format": "avro"}
    options |= {"schema.registry.url": registry.url, "value.schema.file": str(GOLDEN / "reader.avsc")}
    frame = spark.read.format("klamm").options(**options).load().orderBy("offset")
    rows = frame.selectExpr("value.*", "unix_micros(value.at_ns) as micros").collect()
    for row, one in zip(rows, values, strict=True):
        wanted = one["value"]
        found = row.asDict(recursive=True)
        assert str(found["price"]) == wanted["price"]
        assert [found[name] for name in ("nested", "pairs", "either")] == [
            wanted[name] for name in ("nested", "pairs", "either")
        ]
        since = datetime.fromisoformat(wanted["at_ns"]) - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        assert found["micros"] == since // timedelta(microseconds=1)
        assert found["local_us"].isoformat() == wanted["local_us"]
        assert (found["day"].isoformat(), bytes(found["blob"]).hex()) == (wanted["day"], wanted["blob"]["hex"])


def test_every_type_of_protobuf(spark: SparkSession, bootstrap: str, topic: Callable[..., str]) -> None:
    values = golden("protobuf")["everything"]
    name = topic()
    # The second message of its file.
    send(bootstrap, name, [Sent(framed(7, b"\x02\x02" + bytes.fromhex(one["hex"]))) for one in values])
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "value.format": "protobuf"}
    options |= {"value.schema.file": str(GOLDEN / "everything.proto"), "value.message": "klamm.golden.Everything"}
    rows = spark.read.format("klamm").options(**options).load().orderBy("offset").select("value.*").collect()
    for row, one in zip(rows, values, strict=True):
        wanted = one["value"]
        found = row.asDict(recursive=True)
        for column in (
            "flag",
            "int64",
            "uint32",
            "sint64",
            "real",
            "text",
            "color",
            "pair",
            "pairs",
            "colors",
            "couple",
        ):
            assert plain(found[column]) == wanted[column], column
        assert (found["uint64"] is None, str(found["uint64"])) == (wanted["uint64"] is None, str(wanted["uint64"]))
        assert sorted(found["counts"].items()) == [tuple(pair) for pair in wanted["counts"]]
        took = found["took"]
        assert (took and took // timedelta(microseconds=1)) == wanted["took"]


def plain(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def test_unavailable_schemas_are_named(
    spark: SparkSession, bootstrap: str, topic: Callable[..., str], registry: FakeRegistry
) -> None:
    name = topic()
    send(bootstrap, name, [Sent(framed(999, b""))])
    reader = spark.read.format("klamm").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
    reader = reader.option("value.format", "avro").option("schema.registry.url", registry.url)
    with pytest.raises(Exception, match=rf"the schema of subject '{name}-value': .* 'value\.schema\.subject' can name"):
        reader.load()
    registry.register(f"{name}-value", FIRST)
    with pytest.raises(Exception, match=r"not valid avro: the registry has no schema 999 .*schema\.registry\.url"):
        reader.load().collect()
    with pytest.raises(Exception, match=r"has column 'value' as struct<id:string>; it is struct<`id`: int>"):
        reader.schema("value struct<id: string>").load().collect()
