"""Starts and restarts, and the resources of an idle node."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benches import client
from benches.cells import BLOCK, GB, Cell, CellError, Figures, cool, load, load_command, run_json, run_lines, settle
from benches.servers import Bench, Server

LOADED_S: Final = 60.0
MIB: Final = 1 << 20
PYTHON: Final = (sys.executable, "-m")


def start(bench: Bench, kind: str) -> Figures:
    """From process start on a formatted directory to the first ApiVersions response and acknowledged record."""
    with bench.fresh(kind) as server:
        client.create(server.address, ["t"])
        client.until_acknowledged(server.address, "t")
        server.process.stop()
        answered, acknowledged = _restart(server, "t", [0])
        return {
            "first answer ms": answered * 1000,
            "first acknowledged record ms": acknowledged * 1000,
            "resident MB, idle": server.resident_mb(),
            # These allow to compare figures of different machines, or of one at different times.
            "CPython alone ms": _python_ms("pass"),
            "CPython importing asyncio ms": _python_ms("import asyncio"),
        }


def _python_ms(statement: str) -> float:
    """The run time of an interpreter that executes the statement."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return (time.perf_counter() - began) * 1000


def _restart(server: Server, topic: str, partitions: list[int]) -> tuple[float, float]:
    """Seconds until the first response, and until each partition has accepted a record."""
    began = time.perf_counter()
    server.process.start()
    answered = time.perf_counter() - began
    client.until_acknowledged(server.address, topic, partitions)
    return answered, time.perf_counter() - began


def embedded(rounds: int, brokers: int = 1) -> Cell:
    """`Cluster(brokers=...)` in a process that has already imported everything."""

    def cell(bench: Bench, kind: str) -> Figures:
        return run_json([*PYTHON, "benches.embedded", str(rounds), str(brokers)], "an embedded cluster")

    return cell


def many_partitions(count: int, settings: dict[str, str] | None = None) -> Cell:
    """A topic with that many partitions, each written twice and read; then a restart of the node."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind, settings) as server:
            client.create(server.address, ["many"], count)
            client.until_acknowledged(server.address, "many", [0, count - 1])
            load(server, "touch", topic="many", partitions=count)
            found = {"resident MB": server.resident_mb(), "open files": float(server.open_files())}
            server.process.stop()
            settle(bench)
            answered, acknowledged = _restart(server, "many", [count - 1])
            return found | {
                "restart: first answer ms": answered * 1000,
                "restart: first acknowledged record ms": acknowledged * 1000,
            }

    return cell


def killed(size: int) -> Cell:
    """SIGKILL under load, with that much data in segments of 1 MiB; then a restart."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind) as server:
            client.create(server.address, ["t"], configs={"segment.bytes": str(MIB)})
            client.until_acknowledged(server.address, "t")
            settle(bench)
            with _under_load(server, "t"):
                _until_folder_holds(server.data / "t-0", size)
                server.process.kill()
            answered, acknowledged = _restart(server, "t", [0])
            return {
                "first answer ms": answered * 1000,
                "first acknowledged record ms": acknowledged * 1000,
            }

    return cell


@contextlib.contextmanager
def _under_load(server: Server, topic: str) -> Iterator[None]:
    words = [f"topic={topic}", "batch=100000", f"bytes={1000 * GB}"]
    load = subprocess.Popen(
        [*load_command(server, "produce"), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        load.kill()
        load.wait()


def _until_folder_holds(folder: Path, size: int) -> None:
    deadline = time.monotonic() + LOADED_S
    while sum(path.stat().st_size for path in folder.glob("*.log")) < size:
        if time.monotonic() > deadline:
            raise CellError(f"{folder} did not grow to {size} bytes within {LOADED_S:.0f} s")
        time.sleep(0.002)


def recovery(size: int, flushed: int) -> Cell:
    """SIGKILL with `size` bytes in 4 partitions after the recovery point and `flushed` before; with a cold cache."""
    # The recovery point stays that of the clean stop: no segment is rolled, and the flush timer does not fire.
    settings = {"log.flush.offset.checkpoint.interval.ms": "3600000", "log.segment.bytes": str(2**31 - 1)}

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind, settings) as server:
            client.create(server.address, ["t"], 4)
            client.until_acknowledged(server.address, "t", range(4))
            load(server, "produce", topic="t", bytes=flushed, partitions=4)
            server.process.stop()
            server.process.start()
            client.until_acknowledged(server.address, "t", range(4))
            load(server, "produce", topic="t", bytes=size, partitions=4)
            server.process.kill()
            cool(server.data)
            disk = _read_rate(server.data, size)
            cool(server.data)
            _, seconds = _restart(server, "t", [0, 1, 2, 3])
            if server.read_gb() * GB < 0.95 * size:
                raise CellError(f"only {server.read_gb():.2f} GB of {size / GB:g} lay behind the recovery point")
            return {
                "seconds": seconds,
                "GB/s": size / GB / seconds,
                "disk GB/s": disk / GB,
                "of the disk's rate": size / seconds / disk,
                "GB read a GB behind the recovery point": server.read_gb() * GB / size,
            }

    return cell


def checked(size: int) -> Cell:
    """`klamm storage check --deep` of a stopped node with `size` bytes, and a read of the same files; cache cold."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind, {"log.segment.bytes": str(2**31 - 1)}) as server:
            client.create(server.address, ["t"], 4)
            client.until_acknowledged(server.address, "t", range(4))
            load(server, "produce", topic="t", bytes=size, partitions=4)
            server.process.stop()
            logs = sum(path.stat().st_size for path in server.data.rglob("*.log"))
            cool(server.data)
            disk = _read_rate(server.data, logs)
            cool(server.data)
            began = time.perf_counter()
            run_lines([*PYTHON, "klamm", "storage", "check", str(server.data), "--deep"], "klamm storage check")
            seconds = time.perf_counter() - began
            return {
                "seconds": seconds,
                "GB/s": logs / GB / seconds,
                "disk GB/s": disk / GB,
                "of the disk's rate": logs / seconds / disk,
            }

    return cell


def _read_rate(folder: Path, size: int) -> float:
    """The rate in bytes per second at which the disk reads a folder's logs sequentially."""
    buffer, left = bytearray(len(BLOCK)), size
    began = time.perf_counter()
    for path in sorted(folder.rglob("*.log")):
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while left > 0 and (count := file.readinto(buffer)):
                left -= count
    return (size - left) / (time.perf_counter() - began)


def idle_connections(count: int, seconds: int) -> Cell:
    """The cost of idle connections."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind) as server:
            found = load(server, "idle", connections=count, seconds=seconds)
            return {
                "KiB each": found["kib_each"],
                "wake-ups/s": found["wake_ups"],
                "wake-ups/s without them": found["wake_ups_before"],
            }

    return cell


def stalls(size: int) -> Cell:
    """The delays of a node's control loop while all its cores move data."""

    def cell(bench: Bench, kind: str) -> Figures:
        return run_json([*PYTHON, "benches.stalls", str(size)], "a node under data load")

    return cell
