"""The cells of the table: one measurement of one server, a mapping of figures."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.node_process import NodeProcess

from benches.servers import ROOT, TARGET, Server

Figures = Mapping[str, float]
Cell = Callable[[Server], Figures]
GB = 1_000_000_000
_numbers = itertools.count()


def _topic(server: Server, partitions: int) -> str:
    name = f"bench-{next(_numbers)}"
    if server.has_topics:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    return name


def _load(server: Server, mode: str, **options: object) -> dict[str, float]:
    words = [f"{key}={value}" for key, value in options.items()]
    command = [str(TARGET / "klamm-load"), mode, f"address={server.address}", f"pid={server.pid}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{server.name}: {' '.join(command)}: {done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _settle() -> None:
    """Write-back of an earlier cell must not be paid by this one."""
    os.sync()


def produce(record: int, size: int, *, connections: int = 1, partitions: int = 1) -> Cell:
    """acks=all produce of `size` bytes in records of `record` bytes."""

    def cell(server: Server) -> Figures:
        topic = _topic(server, partitions)
        _settle()
        found = _load(
            server, "produce", topic=topic, record=record, bytes=size, connections=connections, partitions=partitions
        )
        gigabytes = found["bytes"] / GB
        return {
            "GB/s": gigabytes / found["seconds"],
            "M records/s": found["records"] / found["seconds"] / 1e6,
            "CPU-s/GB": found["server_cpu_seconds"] / gigabytes,
        }

    return cell


def fetch(record: int, size: int) -> Cell:
    """Fetch from the page cache what was just produced."""

    def cell(server: Server) -> Figures:
        topic = _topic(server, 1)
        _load(server, "produce", topic=topic, record=record, bytes=size)
        _settle()
        found = _load(server, "fetch", topic=topic, bytes=size)
        gigabytes = found["bytes"] / GB
        return {"GB/s": gigabytes / found["seconds"], "CPU-s/GB": found["server_cpu_seconds"] / gigabytes}

    return cell


def latency(seconds: int) -> Cell:
    """acks=all, 1 000 requests a second, open loop, 1 KiB."""

    def cell(server: Server) -> Figures:
        topic = _topic(server, 1)
        _settle()
        found = _load(server, "latency", topic=topic, rate=1000, seconds=seconds)
        return {"p50 us": found["p50_us"], "p99 us": found["p99_us"], "p99.9 us": found["p999_us"]}

    return cell


def create_topics(count: int) -> Cell:
    """One topic after the other; then 1 000 in one request; then 5 topics of 1 000 partitions."""

    def cell(server: Server) -> Figures:
        admin = AdminClient({"bootstrap.servers": server.address})
        times = []
        for _ in range(count):
            name = f"one-{next(_numbers)}"
            began = time.perf_counter()
            admin.create_topics([NewTopic(name, 1, 1)])[name].result()
            times.append(time.perf_counter() - began)
        return {
            "one p50 ms": statistics.median(times) * 1000,
            "1000 in one/s": _bulk(admin, 1000, 1),
            "partitions/s": _bulk(admin, 5, 1000),
        }

    return cell


def _bulk(admin: AdminClient, topics: int, partitions: int) -> float:
    wanted = [NewTopic(f"many-{next(_numbers)}", partitions, 1) for _ in range(topics)]
    began = time.perf_counter()
    for future in admin.create_topics(wanted, request_timeout=60).values():
        future.result()
    return topics * partitions / (time.perf_counter() - began)


def memory(server: Server) -> Figures:
    """Resident memory after all that came before."""
    return {"MB": server.resident_mb()}


def start() -> Figures:
    """A formatted directory: process start to the first ApiVersions answer, and to the first acknowledged record."""
    answered, acknowledged, idle = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        node = NodeProcess(Path(folder) / "data")
        node.start()
        AdminClient({"bootstrap.servers": node.bootstrap}).create_topics([NewTopic("t", 1, 1)])["t"].result()
        node.stop()
        for _ in range(5):
            began = time.perf_counter()
            node.start(poll_s=0.001)
            answered.append(time.perf_counter() - began)
            producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
            producer.produce("t", b"x")
            producer.flush(10)
            acknowledged.append(time.perf_counter() - began)
            idle.append(Server("klamm", node.bootstrap, node.pid, node.stop).resident_mb())
            node.stop()
    return {
        "ApiVersions ms": statistics.median(answered) * 1000,
        "first ack ms": statistics.median(acknowledged) * 1000,
        "idle MB": statistics.median(idle),
    }


EMBEDDED = """
import time, klamm, statistics
from confluent_kafka import Producer
times = []
for _ in range(6):
    began = time.perf_counter()
    with klamm.Cluster() as cluster:
        ready = time.perf_counter()
        cluster.create_topic("t")
        made = time.perf_counter()
    times.append(((ready - began) * 1000, (made - ready) * 1000, (time.perf_counter() - made) * 1000))
print(*(statistics.median(column) for column in zip(*times[1:])))
"""


def embedded() -> Figures:
    """`Cluster()`: ready, a topic made, closed; modules already imported."""
    command = [sys.executable, "-c", EMBEDDED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=ROOT)
    ready, made, closed = map(float, done.stdout.split())
    return {"ready ms": ready, "topic ms": made, "close ms": closed}
