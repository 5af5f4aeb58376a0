"""Topics created one by one and in bulk; offsets committed."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from tests.interop import apache_kafka

from benches import client
from benches.cells import Cell, Figures, load, settle
from benches.servers import KAFKA, Bench, Server
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client

STOCK_TOOL: Final = ("java", "-Xmx256M", "-cp")
"""The JVM flags with which `kafka-run-class` starts a tool."""
Fresh = Callable[[Bench, str], AbstractContextManager[Server]]
"""Starts one or several servers, and yields the one for the clients."""


def create_one(count: int, others: int, fresh: Fresh = Bench.fresh) -> Cell:
    """Create one topic after the other, at first and when there are `others` more."""

    def cell(bench: Bench, kind: str) -> Figures:
        with fresh(bench, kind) as server:
            settle(bench)
            first = _one_by_one(server, count)
            for _ in range(0, others, 1000):
                client.create(server.address, [client.fresh_name("other") for _ in range(min(others, 1000))])
            settle(bench)
            return {"p50 ms": first, f"p50 at {others:,} topics ms": _one_by_one(server, count)}

    return cell


def _one_by_one(server: Server, count: int) -> float:
    times = []
    with Client(server.address) as connected:
        for _ in range(count):
            name = client.fresh_name("one")
            began = time.perf_counter()
            topic_admin.create(connected, [name], partitions=1, replication_factor=1)
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def create_many(topics: int, partitions: int) -> Cell:
    """Create that many topics in one request; then five topics of that many partitions."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind) as server:
            client.until_answered(server.address)
            settle(bench)
            return {
                f"{topics:,} topics, topics/s": topics / _bulk(server, topics, 1),
                f"5 topics of {partitions:,}, partitions/s": 5 * partitions / _bulk(server, 5, partitions),
            }

    return cell


def _bulk(server: Server, topics: int, partitions: int) -> float:
    names = [client.fresh_name("many") for _ in range(topics)]
    with Client(server.address, client.PATIENCE_S) as connected:
        began = time.perf_counter()
        topic_admin.create(connected, names, partitions=partitions, replication_factor=1)
        return time.perf_counter() - began


def creates(seconds: int) -> Cell:
    """50 clients create topics, one per request and with one request in flight each."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind) as server:
            client.create(server.address, [client.fresh_name("first")])
            settle(bench)
            found = load(server, "create", topic=client.fresh_name("many"), connections=50, seconds=seconds)
            return {
                "topics/s": found["topics"] / found["seconds"],
                "CPU us a topic": found["server_cpu_seconds"] / found["topics"] * 1e6,
            }

    return cell


def commits(seconds: int) -> Cell:
    """50 classic groups commit one offset after the other, with five in flight each."""

    def cell(bench: Bench, kind: str) -> Figures:
        server = bench.shared(kind)
        topic, group = client.fresh_name("bench"), client.fresh_name("readers")
        client.create(server.address, [topic])
        for at in range(50):
            client.until_committed(server.address, f"{group}-{at}", topic)
        settle(bench)
        found = load(server, "commit", topic=topic, group=group, connections=50, seconds=seconds)
        return {
            "commits/s": found["commits"] / found["seconds"],
            "CPU us a commit": found["server_cpu_seconds"] / found["commits"] * 1e6,
        }

    return cell


def command(count: int) -> Cell:
    """`klamm topics list`, or Apache Kafka's tool, on a running node: the run time of its process."""

    def cell(bench: Bench, kind: str) -> Figures:
        server = bench.shared(kind)
        client.create(server.address, [client.fresh_name("listed")])
        settle(bench)
        times = []
        for _ in range(count):
            began = time.perf_counter()
            subprocess.run(_list_topics(kind, server.address), check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - began)
        return {"median ms": statistics.median(times) * 1000}

    return cell


def _list_topics(kind: str, address: str) -> list[str]:
    if kind == KAFKA:
        tool = [f"{apache_kafka.libs()}/*", apache_kafka.TOOLS["topics"]]
        return [*STOCK_TOOL, *tool, "--bootstrap-server", address, "--list"]
    return [sys.executable, "-m", "klamm", "topics", "list", "--bootstrap", address]
