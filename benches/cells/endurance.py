"""Minutes of retention deletes, compaction and a drained backlog: how the last one differs from the first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from benches import clusters
from benches.cells import GB, Cell, CellError, Figures, cool, load, settle
from benches.cells.replicated import BROKERS, new_topic
from benches.clusters import ClusterServer
from benches.servers import Bench

MB: Final = 1_000_000
BACKGROUND_S: Final = 1.0
"""The interval of the background writes. Each is small: they must leave the machine idle half of the time."""
SEGMENT: Final = str(4 * 1024 * 1024)
SETTINGS: Final = {"log.retention.check.interval.ms": "2000", "log.cleaner.backoff.ms": "2000"}
DELETED: Final = {"retention.bytes": str(32 * MB), "segment.bytes": SEGMENT, "file.delete.delay.ms": "1000"}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": SEGMENT,
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "1000",
}


def minutes(count: int, seconds: int, size: int) -> Cell:
    """`count` minutes of `seconds` seconds: records at 1,000/s, then `size` bytes at the maximum rate.

    Meanwhile a topic is written whose oldest segments are deleted, and another one that is compacted. In the middle
    minute a consumer reads a backlog of `size` bytes from the disk.
    """

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.replicated(bench, kind, SETTINGS) as server:
            steady, backlog = new_topic(server, 1), new_topic(server, 1)
            deleted, compacted = (new_topic(server, len(BROKERS), configs) for configs in (DELETED, COMPACTED))
            written = Counter[str]()  # bytes of acknowledged records by topic
            load(server, "produce", topic=backlog, bytes=size)
            _full_rate(server, deleted, size, written)  # the first minute has something to delete, like the last one
            settle(bench)
            measured = []
            for minute in range(count):
                with _background(server, deleted, compacted, written), ThreadPoolExecutor(1) as pool:
                    drained = pool.submit(_drain, server, backlog, size) if minute == count // 2 else None
                    found = load(server, "latency", topic=steady, rate=1000, seconds=seconds)
                    if drained is not None:
                        drained.result()
                measured.append((found["p999_us"], _full_rate(server, deleted, size, written)))
            removed = {topic: written[topic] - _on_disk(server, topic) for topic in (deleted, compacted)}
        (first_us, first_rate), (last_us, last_rate) = measured[0], measured[-1]
        return {
            "first minute, p99.9 us": first_us,
            "last minute, p99.9 us": last_us,
            "last minute's p99.9, times the first's": last_us / first_us,
            "first minute, GB/s": first_rate,
            "last minute, GB/s": last_rate,
            "last minute's GB/s, times the first's": last_rate / first_rate,
            "deleted by retention, MB": max(removed[deleted], 0) / MB,
            "removed by compaction, MB": max(removed[compacted], 0) / MB,
        }

    return cell


def _full_rate(server: ClusterServer, topic: str, size: int, written: Counter[str]) -> float:
    """GB/s of one topic that all three brokers lead."""
    address, count = ",".join(server.leaders), len(BROKERS)
    found = load(server, "produce", address=address, topic=topic, bytes=size, connections=count, partitions=count)
    written[topic] += int(found["bytes"])
    return found["bytes"] / GB / found["seconds"]


@contextmanager
def _background(server: ClusterServer, deleted: str, compacted: str, written: Counter[str]) -> Iterator[None]:
    """Write to both topics until the context ends. Raises CellError there if it could not."""
    ended, failures = threading.Event(), list[CellError]()

    def write() -> None:
        address, count = ",".join(server.leaders), len(BROKERS)
        options = {"address": address, "connections": count, "partitions": count}
        due = time.monotonic()
        try:
            while not ended.wait(max(due - time.monotonic(), 0)):
                due += BACKGROUND_S
                found = load(server, "produce", topic=deleted, bytes=10 * MB, batch=100_000, **options)
                written[deleted] += int(found["bytes"])
                found = load(server, "keyed", topic=compacted, bytes=2 * MB, spread=1, **options)
                written[compacted] += int(found["bytes"])
        except CellError as error:
            failures.append(error)

    thread = threading.Thread(target=write, name="background of a cell")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


def _drain(server: ClusterServer, topic: str, size: int) -> None:
    """Read it from the start, and from the disk."""
    for folder in server.data.rglob(f"{topic}-0"):
        cool(folder)
    found = load(server, "fetch", topic=topic, bytes=size)
    if found["bytes"] < size:
        raise CellError(f"{found['bytes']:,.0f} of {size:,} bytes of the backlog were read")


def _on_disk(server: ClusterServer, topic: str) -> int:
    """Bytes in the segments of one replica of each partition."""
    sizes = [
        sum(path.stat().st_size for path in folder.glob("*.log"))
        for folder in server.data.rglob(f"{topic}-[0-9]*")
        if folder.is_dir()
    ]
    return sum(sizes) // len(BROKERS)
