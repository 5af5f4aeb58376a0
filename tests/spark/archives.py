"""Topics for the tests of archive and restore, and a comparison of topics that is independent of both."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from klamm.client import KafkaClient

COLUMNS = ["key", "value", "headers", "timestamp", "offset"]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DAY_MS = 86_400_000
FIRST_MS = 1_700_000_000_000


def fill(client: KafkaClient, topic: str, partition: int, count: int, *, bytes_each: int = 100) -> None:
    """Produce random records with timestamps over some days, slightly out of order.

    Some have no key, no value, no headers, a header without a value, or two headers of one name.
    """
    for start in range(0, count, 50_000):
        rows = min(50_000, count - start)
        numbers = range(start, start + rows)
        client.produce(
            topic,
            partition,
            _random(rows, 8, 7),
            _random(rows, bytes_each - 8, 11),
            pa.array([_headers(number) for number in numbers], HEADERS),
            pa.array([FIRST_MS + number * 5 * DAY_MS // count - number % 3 * 1000 for number in numbers], pa.int64()),
        )


def _random(rows: int, width: int, null_every: int) -> pa.Array:
    """Random values of `width` bytes; every nth one is null."""
    size = rows * width
    edges = pa.array(range(0, size + 1, width), pa.int32()).buffers()[1]
    whole = pa.Array.from_buffers(pa.binary(), rows, [None, edges, pa.py_buffer(os.urandom(size))])
    keeps = pa.array([number % null_every != 0 for number in range(rows)])
    return pc.if_else(keeps, whole, pa.scalar(None, pa.binary()))


def _headers(number: int) -> list[dict[str, object]] | None:
    match number % 10:
        case 0:
            return [{"key": "trace", "value": b"%d" % number}, {"key": "empty", "value": None}]
        case 1:
            return [{"key": "twice", "value": b""}, {"key": "twice", "value": b"b"}]
        case _:
            return None


def slices(client: KafkaClient, topic: str, partition: int, rows: int) -> Iterator[pa.Table]:
    """All records of a partition, `rows` at a time."""
    at = client.offsets(topic, {partition: -2})[partition]
    end = client.offsets(topic, {partition: -1})[partition]
    kept: list[pa.RecordBatch] = []
    while at < end:
        fetched = client.fetch(topic, partition, at, end, columns=COLUMNS, max_records=rows)
        kept.append(pa.record_batch(fetched))
        at = fetched.next_offset
        table = pa.Table.from_batches(kept)
        while table.num_rows >= rows or (at >= end and table.num_rows):
            yield table.slice(0, rows).combine_chunks()
            table = table.slice(rows)
        kept = table.to_batches()


def assert_identical(
    old: KafkaClient, new: KafkaClient, topic: str, target: str, *, partition: int, rows: int = 50_000
) -> int:
    """Keys, values, headers, timestamps and order are equal; returns the number of records."""
    compared = 0
    new_first = new.offsets(target, {partition: -2})[partition]
    for here, there in zip(slices(old, topic, partition, rows), slices(new, target, partition, rows), strict=True):
        for name in ("key", "value", "headers", "timestamp"):
            assert here.column(name).equals(there.column(name)), f"{name} of {target}-{partition} from {compared} on"
        assert there.column("offset")[0].as_py() == new_first + compared
        compared += here.num_rows
    return compared
