"""`value.format`: values that Spark gets decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.spark.producing import Sent, send

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


def test_json_is_columns(read: Callable[..., DataFrame]) -> None:
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
    with pytest.raises(Exception, match=f"the value at offset 3 of partition {orders}-0 is no json: .*"):
        read("json", **{"value.schema": SCHEMA}).collect()


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("id long, of map<string, int>", "value.of is map<string,int>, which is not read from JSON"),
        ("id date", "value.id is date, which is not read from JSON"),
    ],
)
def test_what_is_not_read_from_json_is_named(read: Callable[..., DataFrame], schema: str, told: str) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as refused:
        read("json", **{"value.schema": schema}).collect()
    assert told in str(refused.value)


def test_a_schema_that_leaves_the_value_away_decodes_nothing(spark: SparkSession, bootstrap: str, orders: str) -> None:
    reader = spark.read.format("klamm").schema("offset long").option("value.format", "string")
    with pytest.raises(Exception, match=r"the schema has no column 'value', and option 'value\.format' is 'string'"):
        reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", orders).load().collect()
