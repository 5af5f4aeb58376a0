"""The record classes compared with what Apache Kafka 4.3.1 writes for the same fields (tests/golden/metadata)."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm._engine.metadata import MetadataRecordError, metadata_record_schemas, metadata_record_version
from klamm.protocol.generated import metadata_records as records

ROOT = Path(__file__).parents[3]
GOLDEN = [json.loads(line) for line in (ROOT / "tests/golden/metadata/records.jsonl").read_text().splitlines()]
SCHEMAS = {schema["type"]: schema for schema in metadata_record_schemas()}


def from_json(schema: dict[str, Any], given_fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with our names and types."""
    values = {}
    for field in schema["fields"]:
        first, *others = field["name"].split("_")
        name = first + "".join(other.capitalize() for other in others)
        if name in given_fields:
            values[field["name"]] = value_from_json(field, given_fields[name])
    return values


def value_from_json(field: dict[str, Any], value: Any) -> Any:
    if value is None:
        return None
    if field["is_array"]:
        return tuple(element_from_json(field, element) for element in value)
    return element_from_json(field, value)


def element_from_json(field: dict[str, Any], value: Any) -> Any:
    if "struct" in field:
        return getattr(records, field["struct"]["name"])(**from_json(field["struct"], value))
    match field["primitive"]:
        case "uuid":
            return base64.urlsafe_b64decode(value + "==")
        case "bytes":
            return base64.b64decode(value)
    return value


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: f"{SCHEMAS[line['type']]['name']}-v{line['version']}")
def test_fields_and_bytes_are_those_of_apache_kafka(line: dict[str, Any]) -> None:
    schema = SCHEMAS[line["type"]]
    decoded, version = records.decode_with_version(bytes.fromhex(line["hex"]))
    assert version == line["version"]
    assert type(decoded).__name__ == schema["name"]
    expected = from_json(schema, line["fields"])
    assert {name: getattr(decoded, name) for name in expected} == expected
    assert records.encode(decoded, version).hex() == line["hex"]


def test_the_generated_module_is_what_the_engine_describes() -> None:
    script = ROOT / "tools/generate_metadata_records.py"
    command = [sys.executable, str(script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_record_has_a_class_with_its_type() -> None:
    for schema in SCHEMAS.values():
        record_class = getattr(records, schema["name"])
        assert schema["type"] == record_class.TYPE
        assert schema["highest_version"] == record_class.HIGHEST_VERSION
        assert list(record_class.__slots__) == [f["name"] for f in schema["fields"]]


@pytest.mark.parametrize(
    ("level", "broker", "partition", "change"),
    [
        (7, 1, 0, 0),
        (8, 2, 0, 0),
        (16, 2, 0, 0),
        (17, 3, 1, 1),
        (22, 3, 1, 1),
        (23, 3, 2, 2),
        (29, 3, 2, 2),
        (30, 4, 2, 2),
    ],
)
def test_the_level_of_metadata_version_chooses_the_record_version(
    level: int, broker: int, partition: int, change: int
) -> None:
    """Record versions by metadata.version (`MetadataVersion`)."""
    versions = [metadata_record_version(record_type, level) for record_type in (0, 3, 5, 12, 27)]
    assert versions == [broker, partition, change, 0, 0]


def test_a_registration_change_uses_the_lowest_sufficient_version() -> None:
    def version(**fields: Any) -> int:
        return records.version_at(records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, **fields), 30)

    assert version(fenced=1) == 0
    assert version(in_controlled_shutdown=1) == 1
    assert version(log_dirs=[bytes(16)]) == 2
    assert version(cordoned_log_dirs=[]) == 3


def test_fields_that_a_version_lacks_are_rejected() -> None:
    record = records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, in_controlled_shutdown=1)
    with pytest.raises(MetadataRecordError, match="version 0 has no field in_controlled_shutdown"):
        records.encode(record, 0)
    with pytest.raises(MetadataRecordError, match="has no version 4"):
        records.encode(record, 4)
    with pytest.raises(MetadataRecordError, match="too long"):
        records.encode(records.FeatureLevelRecord(name="x" * 40_000, feature_level=1), 0)
    with pytest.raises(MetadataRecordError, match="feature_level"):
        records.encode(records.FeatureLevelRecord(name="x", feature_level=70_000), 0)
    with pytest.raises(MetadataRecordError, match="31 is not supported"):
        metadata_record_version(0, 31)


def test_invalid_frames_are_rejected() -> None:
    good = records.encode(records.NoOpRecord(), 0)
    assert good == bytes([1, 20, 0, 0])
    for bad, reason in [
        (b"\x00" + good[1:], "frame version 0"),
        (b"\x01\x63\x00\x00", "no metadata record 99"),
        (b"\x01\x0d\x00\x00", "no metadata record 13"),
        (b"\x01\x14\x01\x00", "has no version 1"),
        (good + b"\x00", "1 bytes follow the end of a NoOpRecord"),
        (good[:-1], "damaged"),
        (b"", "damaged"),
    ]:
        with pytest.raises(MetadataRecordError, match=reason):
            records.decode(bad)


@given(st.binary(max_size=60), st.sampled_from(sorted(SCHEMAS)))
def test_hostile_bodies_are_refused_or_read(body: bytes, record_type: int) -> None:
    try:
        record = records.decode(bytes([1, record_type, 0]) + body)
    except MetadataRecordError:
        return
    assert records.decode(records.encode(record, 0)) == record
