"""Makes `records.jsonl` and `changes.jsonl` here: what Apache Kafka 4.3.1 makes of metadata records and elections.

Run from the repository's root: `python -m tests.golden.metadata.make_metadata`. A line of `records.jsonl` is a record
(type, version, fields by Kafka's names, ids in base64url, bytes in base64) and its bytes; one of `changes.jsonl` is a
partition, what is wanted of it, and the bytes of the PartitionChangeRecord of Kafka's builder, empty for none.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from klamm._engine.metadata import metadata_record_schemas
from tests.interop.apache_kafka import java

HERE = Path(__file__).parent
Schema = dict[str, Any]
LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def camel_case(name: str) -> str:
    """Kafka's name of a field."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def id_text(rng: random.Random) -> str:
    """An id as Kafka prints it."""
    return base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")


def primitive(rng: random.Random, field: Schema) -> object:
    """A value of a field, sometimes at a limit of its type."""
    kind = field["primitive"]
    if kind in LIMITS:
        end = 1 << LIMITS[kind]
        return rng.choice([0, -1, end - 1, -end, rng.randrange(-end, end)])
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "uint16":
            return rng.choice([0, 65535, rng.randrange(65536)])
        case "float64":
            return rng.choice([0.0, -1.5, 1e300, rng.random()])
        case "uuid":
            return id_text(rng)
        case "bytes":
            return base64.b64encode(rng.randbytes(rng.randrange(40))).decode()
    return rng.choice(["", "a", "some.key", "päß-\N{GRINNING FACE}", "x" * 130])


def value(rng: random.Random, field: Schema, version: int) -> object:
    """A value of a field."""
    if field["nullable"] and rng.random() < 0.25:
        return None
    make = (lambda: fields(rng, field["struct"], version)) if "struct" in field else (lambda: primitive(rng, field))
    count = rng.choice([0, 1, 1, 2, 3]) if rng.random() < 0.97 else 130
    return [make() for _ in range(count)] if field["is_array"] else make()


def fields(rng: random.Random, schema: Schema, version: int) -> dict[str, object]:
    """The fields of a version."""
    known = [field for field in schema["fields"] if field["since"] <= version]
    given = [field for field in known if field["tag"] is None or rng.random() < 0.7]
    return {camel_case(field["name"]): value(rng, field, version) for field in given}


def records(rng: random.Random) -> Iterator[dict[str, object]]:
    """Some samples of every record in every version."""
    for schema in metadata_record_schemas():
        for version in range(schema["highest_version"] + 1):
            for _ in range(3 if schema["fields"] else 1):
                yield {"type": schema["type"], "version": version, "fields": fields(rng, schema, version)}


def changes(rng: random.Random) -> Iterator[dict[str, object]]:
    """Partitions in every plausible state, and the requested changes."""
    for _ in range(400):
        replicas = rng.sample(range(6), rng.randrange(1, 5))
        elr_enabled = rng.random() < 0.6
        metadata_version = rng.choice([23, 26, 30]) if elr_enabled else rng.choice([7, 11, 12, 17, 23, 30])
        isr = rng.sample(replicas, rng.randrange(0 if elr_enabled else 1, len(replicas) + 1))
        outside = [replica for replica in replicas if replica not in isr]
        elr = rng.sample(outside, rng.randrange(len(outside) + 1)) if elr_enabled else []
        leader = rng.choice(isr) if isr and rng.random() < 0.8 else -1
        unknown = str(base64.urlsafe_b64encode(bytes(16)).decode().rstrip("="))
        has_directories = metadata_version >= 17 and rng.random() < 0.8
        last_known = [rng.choice(replicas)] if elr_enabled and leader == -1 and rng.random() < 0.7 else []
        moving = rng.random() < 0.3
        adding = [replica for replica in replicas if moving and rng.random() < 0.4]
        removing = [replica for replica in replicas if moving and replica not in adding and rng.random() < 0.4]
        change: dict[str, object] = {
            "partition": {
                "replicas": replicas,
                "directories": [id_text(rng) if has_directories else unknown for _ in replicas],
                "isr": isr,
                "removing": removing,
                "adding": adding,
                "elr": sorted(elr),
                "lastKnownElr": last_known,
                "leader": leader,
                "recovery": int(rng.random() < 0.1),
            },
            "mayLead": [replica for replica in replicas if rng.random() < 0.6],
            "metadataVersion": metadata_version,
            "minIsr": rng.randrange(1, 4),
            "elr": elr_enabled,
            "election": rng.choice(["PREFERRED", "ONLINE", "ONLINE", "UNCLEAN"]),
        }
        if rng.random() < 0.5:
            wanted = rng.sample(replicas, rng.randrange(0, len(replicas) + 1))
            change["isr"] = wanted
        if rng.random() < 0.2:
            change["replicas"] = rng.sample(range(6), rng.randrange(1, 5))
        if moving and rng.random() < 0.3:
            change["removing"] = []
            change["adding"] = []
        if rng.random() < 0.1:
            change["recovery"] = int(rng.random() < 0.5)
        if elr_enabled and rng.random() < 0.2:
            change["uncleanShutdown"] = rng.choice(replicas)
        if metadata_version >= 17 and rng.random() < 0.1:
            change["directory"] = [rng.choice(replicas), id_text(rng)]
        yield change


def ask_kafka(lines: Iterator[dict[str, object]]) -> str:
    """The lines with Kafka's results."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    command = java(str(HERE / "KafkaMetadata.java"))
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=True).stdout


def main() -> None:
    """Write both files."""
    rng = random.Random(uuid.NAMESPACE_DNS.int)
    (HERE / "records.jsonl").write_text(ask_kafka(records(rng)))
    (HERE / "changes.jsonl").write_text(ask_kafka(changes(rng)))


if __name__ == "__main__":
    main()
