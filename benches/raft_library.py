"""`python -m benches.raft_library`: durable records per second through `klamm.raft`, in alternating rounds.

Each cell is a cluster of processes on this machine: the voters, each with its log on the disk of `--folder`, and the
load in the leader's process, as in a program that embeds a replica. `batches` sends commands with `execute_all`,
`single` with that many concurrent calls of `execute`. A record counts when its result has been returned: it is applied,
and on a majority's disks. Prints one JSON object; CPU seconds are those of all processes per million records.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from klamm.raft import Replica, ReplicaConfig

RECORD = bytes(100)
GOAL = 50_000
CELLS = {
    "three, batches": (3, True, True),
    "three, single": (3, True, False),
    "three, batches, no flush": (3, False, True),
    "one, batches": (1, True, True),
    "one, single": (1, True, False),
}
"""Voters, flushed to disk, in batches."""
TASKS = 8
BATCH = 500
SINGLE_TASKS = 1000


class Tally:
    """Counts the applied records."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, command: bytes) -> bytes:
        self.count += 1
        return b""

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, data: bytes) -> None:
        self.count = int(data)


async def serve(
    directory: str, node_id: int, voters: dict[int, str], *, flush: bool, batches: bool, seconds: float
) -> None:
    """A process of a cell: the leader generates the load and prints the result; all print their resource usage."""
    config = ReplicaConfig(flush=flush)
    async with Replica(Tally(), directory, node_id=node_id, voters=voters, config=config) as replica:
        await replica.wait_for_leader(60)
        if replica.leadership.is_self:
            await replica.execute(RECORD)
            begun = resource.getrusage(resource.RUSAGE_SELF)
            tell(event="begin")
            done, took_s = await load(replica, batches, seconds)
            tell(event="end", records=done, seconds=took_s, cpu_s=used(begun))
        else:
            begun = resource.getrusage(resource.RUSAGE_SELF)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            tell(event="follower", cpu_s=used(begun))


async def load(replica: Replica[Tally], batches: bool, seconds: float) -> tuple[int, float]:
    """Send that many records at a time for that long, until the last result."""
    done, begun = 0, time.perf_counter()

    async def send() -> None:
        nonlocal done
        # At least once: on a busy machine the first result may arrive after the end.
        while not done or time.perf_counter() - begun < seconds:
            if batches:
                await replica.execute_all([RECORD] * BATCH, timeout_s=60)
                done += BATCH
            else:
                await replica.execute(RECORD, timeout_s=60)
                done += 1

    await asyncio.gather(*(send() for _ in range(TASKS if batches else SINGLE_TASKS)))
    return done, time.perf_counter() - begun


def used(since: resource.struct_rusage) -> float:
    """CPU seconds of this process."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime - since.ru_utime - since.ru_stime


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def measure(folder: Path, voters: int, flush: bool, batches: bool, seconds: float) -> dict[str, float]:
    """Measure one cell."""
    addresses = {node_id: f"127.0.0.1:{port}" for node_id, port in enumerate(free_ports(voters), 1)}
    with tempfile.TemporaryDirectory(dir=folder) as data:
        os.sync()
        args = [json.dumps(addresses), str(flush), str(batches), str(seconds)]
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benches.raft_library", "--serve", f"{data}/{node_id}", str(node_id), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for node_id in addresses
        ]
        found: list[dict[str, Any]] = []
        pending = list(processes)
        leader = first_to_speak(pending)
        found.append(json.loads(leader.stdout.readline()))  # type: ignore[union-attr]
        leader.wait()
        for process in processes:
            if process is not leader:
                found.append(json.loads(process.communicate("")[0].splitlines()[-1]))
        (end,) = [event for event in found if event["event"] == "end"]
        cpu_s = sum(event["cpu_s"] for event in found)
        return {"records_per_s": end["records"] / end["seconds"], "cpu_s_per_million": cpu_s / end["records"] * 1e6}


def first_to_speak(processes: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """The leader's process: the others print nothing before they are stopped."""
    import selectors

    with selectors.DefaultSelector() as selector:
        for process in processes:
            selector.register(process.stdout, selectors.EVENT_READ, process)  # type: ignore[arg-type]
        ((key, _), *_) = selector.select()
        process = key.data
        process.stdout.readline()
        return process  # type: ignore[no-any-return]


def free_ports(count: int) -> list[int]:
    """Unused ports."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.raft_library", description=__doc__)
    parser.add_argument("--serve", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each cell (5)")
    parser.add_argument("--rounds", type=int, default=3, help="each cell so often, one after the other (3)")
    parser.add_argument("--cells", nargs="*", default=list(CELLS), help=f"of {', '.join(CELLS)}")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where logs are written (the current folder)")
    args = parser.parse_args()
    if args.serve:
        directory, node_id, voters, flush, batches, seconds = args.serve
        addresses = {int(key): address for key, address in json.loads(voters).items()}
        asyncio.run(
            serve(
                directory,
                int(node_id),
                addresses,
                flush=flush == "True",
                batches=batches == "True",
                seconds=float(seconds),
            )
        )
        return
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in args.cells}
    for _ in range(args.rounds):
        for name in args.cells:
            rounds[name].append(measure(args.folder, *CELLS[name], args.seconds))
    report = {
        name: {key: round(statistics.median(cell[key] for cell in cells), 1) for key in cells[0]}
        | {"spread": [round(cell["records_per_s"]) for cell in cells]}
        for name, cells in rounds.items()
    }
    print(json.dumps({"goal": GOAL, "record_bytes": len(RECORD), "cells": report}, indent=2))


if __name__ == "__main__":
    main()
