"""Values that fastavro and Protobuf's own library wrote are decoded and compared with what these libraries read."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from klamm._engine.spark import ValueDecoder
from klamm.spark.formats.reading import Reading, reading_of
from klamm.spark.formats.schema_text import SchemaText

GOLDEN = Path(__file__).parents[3] / "golden" / "formats"


def schema(name: str, kind: str) -> SchemaText:
    return SchemaText(kind, (GOLDEN / name).read_text())


def plain(value: Any) -> Any:
    """In the form of the golden files."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case Decimal():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case _:
            return value


def with_maps(value: Any, names: tuple[str, ...]) -> Any:
    """Avro's maps as unordered pairs."""
    if not isinstance(value, dict):
        return value
    return {name: dict(one) if name in names and isinstance(one, list) else one for name, one in value.items()}


def decoded(reading: Reading, program: str, golden: list[dict[str, Any]]) -> list[Any]:
    native = ValueDecoder(json.dumps(reading.shape.to_json()), framed=False)
    native.learn(None, program)
    found = native.decode(pa.array([bytes.fromhex(one["hex"]) for one in golden], pa.binary()))
    assert (found.bad, found.why) == ([], None)
    array = pa.array(found)
    array.validate(full=True)
    return [plain(row) for row in array.to_pylist()]


def test_values_of_fastavro() -> None:
    golden = json.loads((GOLDEN / "avro.json").read_text())["values"]
    reading = reading_of(schema("reader.avsc", "AVRO"), None)
    rows = decoded(reading, reading.program(schema("writer.avsc", "AVRO")), golden)
    for row, one in zip(rows, golden, strict=True):
        assert with_maps(row, ("counts", "pairs", "weights")) == one["value"]


@pytest.mark.parametrize(("name", "message"), [("everything", "klamm.golden.Everything"), ("old", None)])
def test_values_of_protobuf(name: str, message: str | None) -> None:
    golden = json.loads((GOLDEN / "protobuf.json").read_text())[name]
    reading = reading_of(schema(f"{name}.proto", "PROTOBUF"), message)
    rows = decoded(reading, reading.program(None), golden)
    for row, one in zip(rows, golden, strict=True):
        for pairs in ("counts", "by_number"):
            if pairs in row:
                row[pairs].sort()
        if row.get("deep"):
            for deepest in row["deep"]["deeper"]["deepest"]:
                deepest["names"].sort()
        assert row == one["value"]


def test_every_truncated_value_is_bad_or_a_value() -> None:
    golden = json.loads((GOLDEN / "avro.json").read_text())["values"]
    reading = reading_of(schema("reader.avsc", "AVRO"), None)
    native = ValueDecoder(json.dumps(reading.shape.to_json()), framed=False)
    native.learn(None, reading.program(schema("writer.avsc", "AVRO")))
    value = bytes.fromhex(golden[0]["hex"])
    found = native.decode(pa.array([value[:end] for end in range(len(value) + 1)], pa.binary()))
    pa.array(found).validate(full=True)
    assert found.bad == list(range(len(value)))


def test_the_engine_s_tests_have_the_programs_of_these_schemas() -> None:
    """`make_formats.py` writes them: run it after a change of the programs."""
    avro = reading_of(schema("reader.avsc", "AVRO"), None)
    everything = reading_of(schema("everything.proto", "PROTOBUF"), "klamm.golden.Everything")
    old = reading_of(schema("old.proto", "PROTOBUF"), None)
    for name, reading, program in (
        ("avro", avro, avro.program(schema("writer.avsc", "AVRO"))),
        ("everything", everything, everything.program(None)),
        ("old", old, old.program(None)),
    ):
        stored = json.loads((GOLDEN / "programs" / f"{name}.json").read_text())
        assert stored == json.loads(json.dumps({"shape": reading.shape.to_json(), "program": json.loads(program)}))
