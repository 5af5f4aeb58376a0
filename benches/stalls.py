"""`python -m benches.stalls BYTES`: how late a node's event loop runs what is due, while it moves BYTES.

The node is one as `klamm start` runs, durable, in this process; the load comes from outside. Prints a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from benches.servers import program
from klamm.node.node import Node
from klamm.node.rules import checked
from klamm.node.sources import embedded_default
from klamm.node.storage import format_blank
from klamm.protocol.topics import CreatableTopic, CreateTopicsRequest

TICK_S: Final = 0.001
PARTITIONS: Final = 4


async def _lateness(samples: list[float]) -> None:
    """Milliseconds by which each tick came too late; the timer itself is a millisecond coarse."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        samples.append((loop.time() - due) * 1000)


async def _load(mode: str, *words: str) -> None:
    command = (program("klamm-load"), mode, "topic=t", *words)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    code = await process.wait()
    if code != 0:
        raise SystemExit(f"klamm-load {mode} exited {code}")


async def measure(folder: Path, size: int) -> dict[str, float]:
    """p50, p99 and the longest stall, in ms."""
    config = checked(embedded_default(folder, 0, "127.0.0.1"))
    format_blank(config)
    node = Node(config)
    await node.start()
    await node.metadata.controller.create_topics(CreateTopicsRequest((CreatableTopic("t", PARTITIONS, 1),), 30_000))
    clients = next(name for name in node.listeners if name not in config.controller_listener_names)
    address = "address={}:{}".format(*node.listeners[clients])
    samples: list[float] = []
    ticking = asyncio.ensure_future(_lateness(samples))
    connections = f"connections={PARTITIONS}"
    await _load("produce", address, f"bytes={size}", f"partitions={PARTITIONS}", connections, f"pid={os.getpid()}")
    await asyncio.gather(
        _load("fetch", address, f"bytes={size // PARTITIONS}"),
        _load("keyed", address, f"bytes={size // 4}", f"partitions={PARTITIONS}", "spread=4", "connections=50"),
    )
    ticking.cancel()
    await node.stop()
    samples.sort()
    return {
        "stall p50 ms": samples[len(samples) // 2],
        "stall p99 ms": samples[len(samples) * 99 // 100],
        "longest stall ms": samples[-1],
    }


def main(size: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        print(json.dumps(asyncio.run(measure(Path(folder) / "data", size))))


if __name__ == "__main__":
    main(int(sys.argv[1]))
