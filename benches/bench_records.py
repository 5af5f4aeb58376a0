"""The record codec compared with aiokafka's Cython codec.

`pytest benches/bench_records.py` prints pytest-benchmark's tables, `python benches/bench_records.py` the ratios,
measured in turns so that other load affects both. Both codecs get the same rows and produce the same bytes; both verify
the checksum when they decode.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from klamm import records

RECORD_COUNT: Final = 8000
KEY: Final = b"k" * 10
VALUE: Final = b"v" * 100
ROWS: Final = [(1_700_000_000_000 + i, KEY, VALUE) for i in range(RECORD_COUNT)]
BATCH: Final = records.encode(ROWS)


def encode_klamm() -> bytes:
    return records.encode(ROWS)


def encode_aiokafka() -> bytes:
    default_records = pytest.importorskip("aiokafka.record.default_records")
    builder = default_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    append = builder.append
    for offset, (timestamp, key, value) in enumerate(ROWS):
        append(offset, timestamp, key, value, [])
    return bytes(builder.build())


def decode_klamm() -> list[Any]:
    return records.decode(BATCH)


def decode_aiokafka() -> list[Any]:
    default_records = pytest.importorskip("aiokafka.record.default_records")
    batch = default_records.DefaultRecordBatch(BATCH)
    batch.validate_crc()
    return list(batch)


def read(found: list[Any], time_field: str) -> int:
    """Access every field, as a consumer does."""
    total = 0
    for record in found:
        total += record.offset + getattr(record, time_field) + len(record.key) + len(record.value)
        total += len(record.headers)
    return total


def read_klamm() -> int:
    return read(decode_klamm(), "timestamp_ms")


def read_aiokafka() -> int:
    return read(decode_aiokafka(), "timestamp")


def columns_klamm() -> Any:
    return records.decode_columns(BATCH)


def columns_aiokafka() -> Any:
    """Build columns without a column decoder."""
    found = decode_aiokafka()
    return ([record.offset for record in found], [record.timestamp for record in found], [r.value for r in found])


SUBJECTS: Final[list[tuple[str, str, Callable[[], Any]]]] = [
    ("encode", "klamm", encode_klamm),
    ("encode", "aiokafka", encode_aiokafka),
    ("decode to objects", "klamm", decode_klamm),
    ("decode to objects", "aiokafka", decode_aiokafka),
    ("decode and read every field", "klamm", read_klamm),
    ("decode and read every field", "aiokafka", read_aiokafka),
    ("decode to columns", "klamm", columns_klamm),
    ("decode to columns", "aiokafka", columns_aiokafka),
]


@pytest.mark.parametrize(("group", "name", "subject"), SUBJECTS, ids=[f"{one[0]} {one[1]}" for one in SUBJECTS])
def test_record_codec(benchmark: Any, group: str, name: str, subject: Callable[[], Any]) -> None:
    benchmark.group = group
    benchmark(subject)


def test_both_codecs_make_the_same_bytes() -> None:
    assert encode_aiokafka() == encode_klamm()


def measure(rounds: int) -> list[float]:
    """The best time of each subject for all records, in seconds; the subjects take turns."""
    best = [float("inf")] * len(SUBJECTS)
    for _ in range(rounds):
        for place, (_group, _name, subject) in enumerate(SUBJECTS):
            start = time.perf_counter()
            subject()
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def figures(best: list[float]) -> dict[str, float]:
    """klamm's rates, as records per second and as multiples of aiokafka's."""
    taken = {(group, name): seconds for (group, name, _), seconds in zip(SUBJECTS, best, strict=True)}
    found: dict[str, float] = {}
    for (group, name), seconds in taken.items():
        if name == "klamm":
            found[f"{group} M records/s"] = RECORD_COUNT / seconds / 1e6
            found[f"{group}, times aiokafka's rate"] = taken[group, "aiokafka"] / seconds
    return found


def main() -> None:
    """Print nanoseconds per record and multiples of klamm's time; or everything as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    best = measure(options.rounds)
    if options.json:
        print(json.dumps(figures(best)))
        return
    own = {group: best[place] for place, (group, name, _) in enumerate(SUBJECTS) if name == "klamm"}
    for place, (group, name, _) in enumerate(SUBJECTS):
        nanoseconds = best[place] / RECORD_COUNT * 1e9
        print(f"{group:30} {name:14} {nanoseconds:8.1f} ns a record   {best[place] / own[group]:6.2f}")


if __name__ == "__main__":
    main()
