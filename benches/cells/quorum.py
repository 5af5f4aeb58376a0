"""A quorum of three processes: controllers, one of which is killed, and replicas of the library under load."""

from __future__ import annotations

import statistics
import time

from tests.support.mixed_quorum import MixedQuorum

from benches import client, clusters, raft_library
from benches.cells import Cell, Figures, load, settle, topics
from benches.servers import KAFKA, Bench


def create_one(count: int, others: int) -> Cell:
    """Create topics one by one through a broker with three controllers; also when there are more topics."""
    return topics.create_one(count, others, clusters.quorum)


def creates(seconds: int) -> Cell:
    """50 clients of that broker create topics, one per request and with one request in flight each."""

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.quorum(bench, kind) as server:
            settle(bench)
            before = server.cpu_seconds()
            found = load(server, "create", topic=client.fresh_name("many"), connections=50, seconds=seconds)
            return {
                "topics/s": found["topics"] / found["seconds"],
                "CPU us a topic, all four": (server.cpu_seconds() - before) / found["topics"] * 1e6,
            }

    return cell


def killed_controller(kills: int) -> Cell:
    """SIGKILL of the active controller, that many times: until another one acknowledges the next metadata write."""

    def cell(bench: Bench, kind: str) -> Figures:
        quorum = MixedQuorum(bench.new_folder("quorum"), java=(1, 2, 3) if kind == KAFKA else ())
        try:
            for node_id in quorum.controllers:
                quorum.launch(node_id)
            times_ms = [_kill(quorum, number) for number in range(kills)]
        finally:
            quorum.close()
        return {
            "shortest ms": min(times_ms),
            "median ms": statistics.median(times_ms),
            "longest ms": max(times_ms),
        }

    return cell


def library(seconds: float) -> Cell:
    """Commands of 100 B through `klamm.raft`, with three replicas as processes, each with a synced log."""

    def cell(bench: Bench, kind: str) -> Figures:
        found = raft_library.measure(bench.new_folder("raft"), *raft_library.CELLS["three, batches"], seconds)
        return {"commands/s": found["records_per_s"], "CPU us a command": found["cpu_s_per_million"]}

    return cell


def _kill(quorum: MixedQuorum, number: int) -> float:
    before = {f"before-{number}": 1000}
    quorum.write(f"before-{number}", 1000)
    for node_id in quorum.controllers:
        quorum.wait_for(node_id, before)
    leader, _ = quorum.leader()
    began = time.perf_counter()
    quorum.kill(leader.id)
    quorum.write(f"after-{number}", 1000, quorum.others(leader.id))
    taken = time.perf_counter() - began
    quorum.launch(leader.id)
    return taken * 1000
