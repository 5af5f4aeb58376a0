"""`python -m benches.group_stalls MEMBERS GROUPS`: the delays of a node's event loop while consumer groups rebalance.

The groups (KIP-848) read one topic, whose number of partitions is doubled: each group then has a new metadata hash, and
computes a new target. The node is configured like that of `klamm start`, durable, in this process; the members are in
another process, and send a heartbeat every 5 seconds like Apache Kafka's consumer. Prints a JSON object, and before it
progress on stderr.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from benches.servers import program
from benches.stalls import Delays
from klamm.cli.node import process
from klamm.config.rules import checked
from klamm.config.sources import embedded_default
from klamm.controller.operations.topics import CREATE_PARTITIONS, CREATE_TOPICS
from klamm.formats.storage import format_blank
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.node import Node
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)

INTERVAL_MS: Final = 5_000
STEADY_S: Final = 10


def figures(name: str, delays: Delays) -> dict[str, float]:
    """p50, p99 and maximum of the delays in ms, without waits for a core, and in processor time; forgets the delays."""
    late, own, processor = sorted(delays.late), sorted(delays.own), sorted(delays.processor)
    delays.clear()
    at_p99 = len(late) * 99 // 100
    return {
        f"{name}: stall p50 ms": late[len(late) // 2],
        f"{name}: stall p99 ms": late[at_p99],
        f"{name}: p99 of the loop's own ms": own[at_p99],
        f"{name}: p99 of processor time ms": processor[at_p99],
        f"{name}: longest stall ms": late[-1],
        f"{name}: longest of the loop's own ms": own[-1],
        f"{name}: longest of processor time ms": processor[-1],
    }


async def measure(folder: Path, members: int, groups: int) -> dict[str, float]:
    """The delays while all members join, while groups are idle, and from new partitions until all are stable."""
    config = checked(embedded_default(folder, 0, "127.0.0.1"))
    format_blank(config)
    node = Node(config)
    await node.start()
    process.serve()
    controller, partitions = node.metadata.active_controller, members // groups
    created = CreatableTopic("t", partitions, 1), CreatableTopic(GROUPS_TOPIC, 50, 1)
    await controller.ask(CREATE_TOPICS, CreateTopicsRequest(created, 30_000))
    clients = next(name for name in node.listeners if name not in config.controller_listener_names)
    words = {
        "address": "{}:{}".format(*node.listeners[clients]),
        "group": "g",
        "topic": "t",
        "partitions": partitions,
        "grow": 2 * partitions,
        "members": members,
        "groups": groups,
        "interval": INTERVAL_MS,
    }
    command = [program("klamm-members"), *(f"{key}={value}" for key, value in words.items())]
    delays = Delays()
    ticking = asyncio.ensure_future(delays.measure())
    load = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert load.stdout is not None
    if not await load.stdout.readline():
        raise SystemExit(f"klamm-members exited {await load.wait()} before all members had joined")
    found = figures("all join", delays)
    await asyncio.sleep(STEADY_S)
    found |= figures("all is quiet", delays)
    grown = CreatePartitionsTopic("t", 2 * partitions)
    await controller.ask(CREATE_PARTITIONS, CreatePartitionsRequest((grown,), 30_000))
    if not (line := await load.stdout.readline()):
        raise SystemExit(f"klamm-members exited {await load.wait()} before every group had its target")
    found |= figures("every group has a new target", delays)
    ticking.cancel()
    await load.wait()
    await node.stop()
    times = json.loads(line)
    return {**found, "all join, s": times["join_s"], "every group has its target, s": times["grow_s"]}


def main(members: int, groups: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        print(json.dumps(asyncio.run(measure(Path(folder) / "data", members, groups)), indent=2))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
