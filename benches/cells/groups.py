"""Members of one consumer group (KIP-848) join, rebalance and leave (benches/load/src/bin/members.rs)."""

from __future__ import annotations

from benches import client
from benches.cells import Cell, Figures, run_json, settle
from benches.cells.lives import PYTHON
from benches.servers import Bench, program
from klamm.admin.client import Client

INTERVAL_MS = 1_000
"""The heartbeat interval of an idle member: a fifth of that of Apache Kafka's consumer."""


def members(count: int, more: int) -> Cell:
    """Seconds until the group is stable after `count` members joined, after `more` joined, and after these left."""

    def cell(bench: Bench, kind: str) -> Figures:
        partitions = count + more
        with bench.fresh(kind) as server:
            topic = client.fresh_name("bench")
            client.create(server.address, [topic], partitions)
            client.until_acknowledged(server.address, topic, range(partitions))
            with Client(server.address) as admin:
                admin.coordinator(topic)
            settle(bench)
            before = server.cpu_seconds()
            found = run_json(
                [
                    program("klamm-members"),
                    *(f"address={server.address}", f"group={topic}", f"topic={topic}", f"partitions={partitions}"),
                    *(f"members={count}", f"more={more}", f"interval={INTERVAL_MS}"),
                ],
                f"klamm-members on {server.kind}",
            )
            cpu_s = server.cpu_seconds() - before
        return {
            "join, s": found["join_s"],
            "rebalance, s": found["rebalance_s"],
            "leave, s": found["leave_s"],
            "p99 of a heartbeat us": found["p99_us"],
            "CPU us a heartbeat": cpu_s / found["heartbeats"] * 1e6,
        }

    return cell


def stalls(count: int, groups: int) -> Cell:
    """The delays of a node's event loop while `groups` groups with `count` members in total get new targets."""

    def cell(bench: Bench, kind: str) -> Figures:
        return run_json([*PYTHON, "benches.group_stalls", str(count), str(groups)], "a node with groups")

    return cell
