"""Golden values of Avro and Protobuf, made by the formats' own libraries.

    pip install fastavro protobuf grpcio-tools
    PYTHONPATH=python python tests/golden/formats/make_formats.py

writes beside itself `avro.json` and `protobuf.json`: values in hexadecimal digits, and what they are when read;
`programs/`: what klamm tells its engine of the schemas; `seeds/`: values for fuzzing, behind a byte that chooses the
program and a Confluent header. What is expected of Avro is fastavro's own reading of the writer's values with the
reader's schema, where unions are put in the columns that `from_avro` of Spark has; of Protobuf, what its messages have.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import io
import json
import math
import random
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COUNT = 12


def plain(value: Any) -> Any:
    """As JSON: bytes are hexadecimal, times ISO, what JSON does not know is text."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case decimal.Decimal() | uuid.UUID():
            return str(value)
        case datetime.datetime():
            return value.isoformat()
        case datetime.date():
            return value.isoformat()
        case datetime.time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {str(key): plain(one) for key, one in value.items()}
        case list():
            return [plain(one) for one in value]
        case _:
            return value


# Avro

UTC = datetime.UTC


def draw_pair(rng: random.Random) -> dict[str, Any]:
    return {"left": rng.randint(-9, 9), "right": rng.choice([None, 0.5])}


def draw_tree(rng: random.Random, depth: int) -> dict[str, Any]:
    children = [draw_tree(rng, depth - 1) for _ in range(rng.randint(0, 2))] if depth else []
    parent = draw_tree(rng, depth - 1) if depth and rng.random() < 0.3 else None
    return {"label": "x" * rng.randint(0, 3), "children": children, "parent": parent}


def draw_avro(rng: random.Random) -> dict[str, Any]:
    at = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=rng.randint(-(10**12), 10**13))
    words = ["", "a", "\u00fc\u20ac", "\U0001f600" * 20]
    return {
        "gone": draw_tree(rng, 3),
        "flag": rng.random() < 0.5,
        "small": rng.choice([0, -1, 2**31 - 1, -(2**31), rng.randint(-500, 500)]),
        "widened": rng.randint(-(2**31), 2**31 - 1),
        "big": rng.choice([0, 2**63 - 1, -(2**63), rng.randint(-(2**40), 2**40)]),
        "rising": rng.randint(-(2**20), 2**20),
        "single": rng.choice([0.0, -1.5, math.inf, 2.0**-149]),
        "real": rng.choice([0.1, -0.0, 1e308, math.nan]),
        "blob": bytes(rng.randrange(256) for _ in range(rng.randint(0, 70))),
        "text": rng.choice(words),
        "old_name": rng.choice(words),
        "hash": bytes(rng.randrange(256) for _ in range(4)),
        "color": rng.choice(["RED", "GREEN", "PINK"]),
        "maybe": rng.choice([None, 0, 77]),
        "either": rng.choice([None, 5, "text", draw_pair(rng)]),
        "list": [rng.choice([None, *words]) for _ in range(rng.randint(0, 4))],
        "nested": [[draw_pair(rng) for _ in range(rng.randint(0, 3))] for _ in range(rng.randint(0, 3))],
        "counts": {f"k{number}": rng.randint(-99, 99) for number in range(rng.randint(0, 3))},
        "pairs": {f"p{number}": draw_pair(rng) for number in range(rng.randint(0, 2))},
        "price": decimal.Decimal(rng.choice([0, 1, -1, 10**20 - 1, rng.randint(-(10**9), 10**9)])).scaleb(-3),
        "amount": decimal.Decimal(rng.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-2),
        "day": at.date(),
        "time": datetime.time(1, 2, 3, rng.randrange(1000) * 1000),
        "fine_time": datetime.time(23, 59, 59, rng.randrange(10**6)),
        "at_ms": at,
        "at_us": at + datetime.timedelta(microseconds=rng.randrange(1000)),
        # fastavro has no nanoseconds and returns a number.
        "at_ns": rng.randint(-(10**18), 2 * 10**18),
        "local_ms": at.replace(tzinfo=None),
        "local_us": at.replace(tzinfo=None) + datetime.timedelta(microseconds=1),
        "id": uuid.UUID(int=rng.getrandbits(128)),
        "dropped": {f"d{number}": rng.choice([None, True, 1.5, b"abcd", "RED"]) for number in range(rng.randint(0, 4))},
        "nothing": None,
    }


def in_columns(row: dict[str, Any]) -> dict[str, Any]:
    """The values read by fastavro, in the form of Spark's columns."""
    row = dict(row)
    either = row["either"]
    if either is not None:
        members: list[Any] = [None, None, None]
        members[0 if isinstance(either, dict) else 1 if isinstance(either, str) else 2] = either
        row["either"] = dict(zip(("member0", "member1", "member2"), members, strict=True))
    day = datetime.datetime(1970, 1, 1)
    epoch = day.date()
    since = lambda time: datetime.datetime.combine(epoch, time) - day  # noqa: E731
    row["time"] = since(row["time"]) // datetime.timedelta(milliseconds=1)
    row["fine_time"] = since(row["fine_time"]) // datetime.timedelta(microseconds=1)
    row["at_ns"] = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=row["at_ns"] // 1000)
    row["unique"] = "00010203-0405-0607-0809-0a0b0c0d0eff"
    return row


def make_avro() -> dict[str, Any]:
    import fastavro

    written = fastavro.parse_schema(json.loads((HERE / "writer.avsc").read_text()))
    # fastavro has no default for fixed values, and is more correct without one.
    wanted_json = json.loads((HERE / "reader.avsc").read_text())
    wanted_json["fields"] = [field for field in wanted_json["fields"] if field["name"] != "unique"]
    wanted = fastavro.parse_schema(wanted_json)
    rng = random.Random(5)
    values = []
    for _ in range(COUNT):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, written, draw_avro(rng))
        out.seek(0)
        read = fastavro.schemaless_reader(out, written, wanted)
        values.append({"hex": out.getvalue().hex(), "value": plain(in_columns(read))})
    return {"values": values}


# Protobuf


def generated() -> tuple[Any, Any]:
    from grpc_tools import protoc

    folder = tempfile.mkdtemp()
    well_known = str(Path(protoc.__file__).parent / "_proto")
    for name in ("everything", "old"):
        protoc.main(["protoc", f"-I{HERE}", f"-I{well_known}", f"--python_out={folder}", str(HERE / f"{name}.proto")])
    sys.path.insert(0, folder)
    return importlib.import_module("everything_pb2"), importlib.import_module("old_pb2")


def draw_everything(module: Any, rng: random.Random) -> Any:
    message = module.Everything()

    def pair() -> Any:
        return module.Everything.Pair(left=rng.choice(["", "l"]), right=rng.randint(-(2**40), 2**40))

    wide = lambda bits, signed: rng.choice([0, 1, 2 ** (bits - signed) - 1, -(2 ** (bits - 1)) if signed else 300])  # noqa: E731
    choices: dict[str, Any] = {
        f"{prefix}{bits}": lambda bits=bits, signed=signed: wide(bits, signed)
        for prefix, signed in (("int", 1), ("sint", 1), ("sfixed", 1), ("uint", 0), ("fixed", 0))
        for bits in (32, 64)
    }
    choices |= {
        "flag": lambda: True,
        "single": lambda: 1.5,
        "real": lambda: rng.choice([-0.1, math.inf, 1e300]),
        "text": lambda: "\u00fc\u20ac" * rng.randint(1, 40),
        "blob": lambda: bytes(rng.randrange(256) for _ in range(200)),
        "color": lambda: rng.choice([5, -1, 77]),
        "maybe": lambda: rng.choice([0, 5]),
    }
    for name, draw in choices.items():
        if rng.random() < 0.7:
            setattr(message, name, draw())
    if rng.random() < 0.7:
        message.pair.CopyFrom(pair())
    for name, draw in {
        "packed": lambda: rng.randint(-5, 5),
        "unpacked": lambda: rng.randint(-(2**50), 2**50),
        "reals": lambda: 0.5,
        "texts": lambda: rng.choice(["", "t"]),
        "pairs": pair,
        "colors": lambda: rng.choice([0, 5, -1, 9]),
    }.items():
        getattr(message, name).extend(draw() for _ in range(rng.randint(0, 4)))
    for number in range(rng.randint(0, 3)):
        message.counts[f"c{number}" if number else ""] = number
        message.by_number[-number].CopyFrom(pair())
    match rng.randrange(4):
        case 0:
            message.word = "w"
        case 1:
            message.number = 0
        case 2:
            message.couple.CopyFrom(pair())
    if rng.random() < 0.7:
        message.at.seconds, message.at.nanos = rng.randint(-(10**9), 10**10), rng.randrange(10**9)
        message.took.seconds, message.took.nanos = -rng.randint(0, 10**5), -rng.randrange(10**9)
        message.times.add(seconds=1, nanos=999)
        message.wrapped.value = rng.choice([0, 3])
        deepest = message.deep.deeper.deepest.add(end=b"\xff")
        deepest.names[True] = "yes"
        deepest.names[False] = ""
    return message


def draw_old(module: Any, rng: random.Random) -> Any:
    message = module.Old(id=rng.randint(-3, 3))
    if rng.random() < 0.6:
        message.name, message.signed, message.ratio, message.real = "n", 0, 0.0, 0.0
        message.level, message.flag, message.wide = 1, False, 1
        message.part.number = 4
    message.levels.extend([1, 2])
    message.parts.add(of="o")
    message.parts.add()
    return message


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def of_message(message: Any) -> Any:
    """A message in the form of Spark's columns: absent fields are null, or their default in proto2."""
    kind = message.DESCRIPTOR
    if kind.full_name == "google.protobuf.Timestamp":
        return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if kind.full_name == "google.protobuf.Duration":
        return message.seconds * 10**6 + int(message.nanos / 1000)
    row = {}
    for field in kind.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value_field = field.message_type.fields_by_name["value"]
            row[field.name] = [[key, of_value(value_field, value[key])] for key in sorted(value)]
        elif field.is_repeated:
            row[field.name] = [of_value(field, one) for one in value]
        else:
            is_there = message.HasField(field.name) if field.has_presence else value != field.default_value
            row[field.name] = of_value(field, value) if is_there or field.has_default_value else None
    return row


def of_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return of_message(value)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    if field.type in (4, 6):  # uint64, fixed64
        return decimal.Decimal(value)
    return value


def make_protobuf() -> dict[str, Any]:
    everything, old = generated()
    rng = random.Random(6)
    found: dict[str, Any] = {}
    for name, module, draw in (("everything", everything, draw_everything), ("old", old, draw_old)):
        messages = [draw(module, rng) for _ in range(COUNT)]
        found[name] = [
            {"hex": one.SerializeToString(deterministic=True).hex(), "value": plain(of_message(one))}
            for one in messages
        ]
    return found


# For the engine only


def programs() -> dict[str, Any]:
    """The shapes and programs of the three readers."""
    from klamm.spark.formats.reading import reading_of
    from klamm.spark.formats.schema_text import SchemaText

    text = {path.name: path.read_text() for path in HERE.iterdir() if path.suffix in (".avsc", ".proto")}
    avro = reading_of(SchemaText("AVRO", text["reader.avsc"]), None)
    everything = reading_of(SchemaText("PROTOBUF", text["everything.proto"]), "klamm.golden.Everything")
    old = reading_of(SchemaText("PROTOBUF", text["old.proto"]), None)
    made = {
        "avro": (avro, avro.program(SchemaText("AVRO", text["writer.avsc"]))),
        "everything": (everything, everything.program(None)),
        "old": (old, old.program(None)),
    }
    return {name: {"shape": of.shape.to_json(), "program": json.loads(program)} for name, (of, program) in made.items()}


def write_seeds(avro: dict[str, Any], protobuf: dict[str, Any]) -> None:
    seeds = HERE / "seeds"
    seeds.mkdir(exist_ok=True)
    id_1 = bytes([0, 0, 0, 0, 1])
    for name, head, values in (
        ("avro", bytes([0]) + id_1, avro["values"]),
        ("everything", bytes([1]) + id_1 + bytes([2, 2]), protobuf["everything"]),
        ("old", bytes([2]) + id_1 + bytes([0]), protobuf["old"]),
    ):
        for number, one in enumerate(values[:4]):
            (seeds / f"{name}-{number}.bin").write_bytes(head + bytes.fromhex(one["hex"]))


def main() -> None:
    avro, protobuf = make_avro(), make_protobuf()
    for name, made in (("avro", avro), ("protobuf", protobuf)):
        (HERE / f"{name}.json").write_text(json.dumps(made, indent=1, ensure_ascii=True) + "\n")
    (HERE / "programs").mkdir(exist_ok=True)
    for name, program in programs().items():
        (HERE / "programs" / f"{name}.json").write_text(json.dumps(program) + "\n")
    write_seeds(avro, protobuf)


if __name__ == "__main__":
    main()
