"""Produce and fetch: at the maximum rate, and at a constant rate."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Final

from benches import client, rdkafka
from benches.cells import GB, Cell, CellError, Figures, load, settle
from benches.servers import KAFKA, Bench, Server

GONE_S: Final = 60
POLL_S: Final = 0.1
PASSES: Final = 4


@contextlib.contextmanager
def topic(bench: Bench, kind: str, partitions: int = 1) -> Iterator[tuple[Server, str]]:
    """The shared server of this kind with a temporary topic, after caches and disks have settled."""
    server, name = bench.shared(kind), client.fresh_name("bench")
    if server.kind == KAFKA and not bench.quick:
        _warm_up(server)
    if not server.is_ceiling:
        client.create(server.address, [name], partitions)
        client.until_acknowledged(server.address, name)
    settle(bench)
    try:
        yield server, name
    finally:
        if server.is_ceiling:
            bench.drop(kind)
        else:
            _delete(server, name)


def _delete(server: Server, name: str) -> None:
    """Delete the topic and its files: a later deletion would use the disk during the next cell."""
    client.delete(server.address, name)
    deadline = time.monotonic() + GONE_S
    while any(entry.name.startswith(f"{name}-") for entry in server.data.iterdir()):
        if time.monotonic() > deadline:
            raise CellError(f"{server.kind} has files of the deleted topic {name} in {server.data} after {GONE_S} s")
        time.sleep(POLL_S)


_warm: set[int] = set()


def _warm_up(server: Server) -> None:
    """Let a JVM compile its code before the first measurement."""
    if server.pid in _warm:
        return
    _warm.add(server.pid)
    name = client.fresh_name("warm")
    client.create(server.address, [name])
    client.until_acknowledged(server.address, name)
    load(server, "produce", topic=name, record=100, bytes=GB // 4)
    load(server, "keyed", topic=name, bytes=GB // 20, partitions=1)
    load(server, "fetch", topic=name, bytes=GB // 4)
    _delete(server, name)


def produce(record: int, size: int) -> Cell:
    """acks=all produce of `size` bytes in records of `record` bytes, one connection, batches of 1 MB."""

    def cell(bench: Bench, kind: str) -> Figures:
        with topic(bench, kind) as (server, name):
            return _rates(load(server, "produce", topic=name, record=record, bytes=size))

    return cell


def fetch(record: int, size: int) -> Cell:
    """Fetch what was just produced from the page cache, several times: one pass takes 20 ms of processor time.

    The records are on disk by then, and no other files are used in between, which might replace them in the cache.
    """

    def cell(bench: Bench, kind: str) -> Figures:
        with topic(bench, kind) as (server, name):
            load(server, "produce", topic=name, record=record, bytes=size)
            os.sync()
            found = _rates(load(server, "fetch", topic=name, bytes=size, passes=PASSES))
            return {unit: found[unit] for unit in ("GB/s", "CPU-s/GB")}

    return cell


def keyed(size: int, producers: Sequence[int]) -> Cell:
    """Ten keyed records of 100 bytes per batch, 20 batches per request; every producer writes to all of 100 partitions.

    The numbers of producers are measured one after the other and compared.
    """

    def cell(bench: Bench, kind: str) -> Figures:
        figures: dict[str, float] = {}
        for count in producers:
            with topic(bench, kind, 100) as (server, name):
                if not server.is_ceiling:
                    client.until_acknowledged(server.address, name, range(100))
                found = _rates(load(server, "keyed", topic=name, bytes=size, connections=count, partitions=100))
            figures |= {f"{count} producers, {figure}": value for figure, value in found.items()}
        return figures

    return cell


def latency(seconds: int) -> Cell:
    """acks=all, 1,000 requests per second, open loop, 1 KiB."""

    def cell(bench: Bench, kind: str) -> Figures:
        with topic(bench, kind) as (server, name):
            if seconds > 1:
                load(server, "latency", topic=name, rate=1000, seconds=1)
            found = load(server, "latency", topic=name, rate=1000, seconds=seconds)
            return {"p50 us": found["p50_us"], "p99 us": found["p99_us"], "p99.9 us": found["p999_us"]}

    return cell


def librdkafka(record: int, size: int) -> Cell:
    """Produce `size` bytes with acks=all and fetch them, with librdkafka; one partition."""

    def cell(bench: Bench, kind: str) -> Figures:
        count = size // record
        with topic(bench, kind) as (server, name):
            produced = rdkafka.produce(server, name, record, count)
            os.sync()
            fetched = rdkafka.fetch(server, name, record, count)
            cells = (("produce", produced), ("fetch", fetched))
            return {f"{what} {figure}": value for what, found in cells for figure, value in found.items()}

    return cell


def through(size: int) -> Cell:
    """Produce and fetch many bytes on a new server: the sustained rate, and the memory that it uses then."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind) as server:
            client.create(server.address, ["bench"])
            client.until_acknowledged(server.address, "bench")
            settle(bench)
            produced = _rates(load(server, "produce", topic="bench", bytes=size))
            fetched = _rates(load(server, "fetch", topic="bench", bytes=size))
            return {
                "produce GB/s": produced["GB/s"],
                "fetch GB/s": fetched["GB/s"],
                "resident MB": server.resident_mb(),
            }

    return cell


def _rates(found: dict[str, float]) -> dict[str, float]:
    gigabytes = found["bytes"] / GB
    return {
        "GB/s": gigabytes / found["seconds"],
        "M records/s": found["records"] / found["seconds"] / 1e6,
        "CPU-s/GB": found["server_cpu_seconds"] / gigabytes,
    }
