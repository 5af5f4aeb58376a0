"""Transactions of 100 records of 1 KiB, as the producers of Apache Kafka 4 send them (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from benches import client, clusters
from benches.cells import Cell, Figures, load, settle
from benches.cells.replicated import BROKERS, new_topic, with_cpu
from benches.clusters import ClusterServer
from benches.servers import KAFKA, Bench, Server

IDS: Final = 10_000
RATE: Final = 50
"""Transactions a second."""


def at_rate(producers: Sequence[int]) -> str:
    """The name of the figures at a fixed rate."""
    return f"{producers[-1]} producers at {RATE}/s"


def rates(seconds: int, producers: Sequence[int], brokers: int) -> Cell:
    """That many producers commit transactions one by one, on one broker or on three with replication factor 3.

    A faster server has more of them to commit at a time, so the last number of producers also commits at a fixed rate.
    """

    def cell(bench: Bench, kind: str) -> Figures:
        figures: dict[str, float] = {}
        with _started(bench, kind, brokers) as (server, topic, addresses):
            options: dict[str, object] = {"address": addresses, "topic": topic, "partitions": len(BROKERS)}
            warm_up_s = 5 if kind == KAFKA and not bench.quick else 1
            load(server, "transactions", **options, group="first", connections=4, seconds=warm_up_s)
            for count in producers:
                settle(bench)
                options |= {"group": f"bench-{count}", "connections": count, "seconds": seconds}
                found, cpu_s = with_cpu(server, partial(load, server, "transactions", **options))
                name = f"{count} producer{'s' * (count > 1)}"
                figures |= {
                    f"{name}, transactions/s": found["transactions"] / found["seconds"],
                    f"{name}, p99 of a commit us": found["commit_p99_us"],
                    f"{name}, CPU us a transaction": cpu_s / max(found["transactions"], 1) * 1e6,
                }
            settle(bench)
            found = load(server, "transactions", **options, rate=RATE)
            figures[f"{at_rate(producers)}, p99 of a commit us"] = found["commit_p99_us"]
        return figures

    return cell


def memory(ids: int = IDS) -> Cell:
    """The memory of a transactional id that was used once and has no open transaction."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind) as server:
            load(server, "transactions", group="first", connections=max(ids // 10, 1), seconds=0)
            before = server.resident_mb()
            load(server, "transactions", group="many", connections=ids, seconds=0)
            return {"KiB a transactional id": max(server.resident_mb() - before, 0) * 1024 / ids}

    return cell


@contextmanager
def _started(bench: Bench, kind: str, brokers: int) -> Iterator[tuple[Server, str, str]]:
    """The server, a topic of three partitions, and the address of the leader of each."""
    if brokers == 1:
        with bench.fresh(kind) as server:
            topic = client.fresh_name("bench")
            client.create(server.address, [topic], len(BROKERS))
            client.until_acknowledged(server.address, topic, range(len(BROKERS)))
            yield server, topic, server.address
    else:
        with clusters.replicated(bench, kind) as server:
            assert isinstance(server, ClusterServer)
            yield server, new_topic(server, len(BROKERS)), ",".join(server.leaders)
