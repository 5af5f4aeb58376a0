"""`python -m benches.stalls BYTES`: the delays of a node's event loop while the node moves BYTES.

The node is configured like that of `klamm start`, durable, in this process; the load is in another process. Prints a
JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benches.servers import program
from klamm.cli.node import process
from klamm.config.rules import checked
from klamm.config.sources import embedded_default
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.formats.storage import format_blank
from klamm.node.node import Node
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

TICK_S: Final = 0.001
PARTITIONS: Final = 4


def waited_for_core_ms() -> float:
    """How long this thread has been ready to run while others had the cores; 0 if the system does not report it."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e6
    except OSError:
        return 0.0


class Delays:
    """How many milliseconds late each tick was; the timer has a resolution of a millisecond."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.own: list[float] = []
        """Without the time in which the thread was ready to run and had no core."""
        self.processor: list[float] = []
        """The processor time that the thread used while the tick waited: what of its delay is not due to others."""

    def clear(self) -> None:
        """Forget all ticks."""
        for ticks in (self.late, self.own, self.processor):
            ticks.clear()

    async def measure(self) -> None:
        """Tick until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due, waited, used = loop.time() + TICK_S, waited_for_core_ms(), time.thread_time()
            await asyncio.sleep(TICK_S)
            late, used = (loop.time() - due) * 1000, (time.thread_time() - used) * 1000
            self.late.append(late)
            self.own.append(late - (waited_for_core_ms() - waited))
            self.processor.append(used)


async def _load(mode: str, *words: str) -> None:
    command = (program("klamm-load"), mode, "topic=t", *words)
    load = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    code = await load.wait()
    if code != 0:
        raise SystemExit(f"klamm-load {mode} exited {code}")


async def measure(folder: Path, size: int) -> dict[str, float]:
    """p50, p99 and maximum of the delays in ms, and the maximum without waits for a core."""
    config = checked(embedded_default(folder, 0, "127.0.0.1"))
    format_blank(config)
    node = Node(config)
    await node.start()
    process.serve()
    await node.metadata.active_controller.ask(
        CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("t", PARTITIONS, 1),), 30_000)
    )
    clients = next(name for name in node.listeners if name not in config.controller_listener_names)
    address = "address={}:{}".format(*node.listeners[clients])
    delays = Delays()
    ticking = asyncio.ensure_future(delays.measure())
    connections = f"connections={PARTITIONS}"
    await _load("produce", address, f"bytes={size}", f"partitions={PARTITIONS}", connections, f"pid={os.getpid()}")
    await asyncio.gather(
        _load("fetch", address, f"bytes={size // PARTITIONS}"),
        _load("keyed", address, f"bytes={size // 4}", f"partitions={PARTITIONS}", "spread=4", "connections=50"),
    )
    ticking.cancel()
    await node.stop()
    samples = sorted(delays.late)
    return {
        "stall p50 ms": samples[len(samples) // 2],
        "stall p99 ms": samples[len(samples) * 99 // 100],
        "longest stall ms": samples[-1],
        "longest of the loop's own ms": max(delays.own),
    }


def main(size: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        print(json.dumps(asyncio.run(measure(Path(folder) / "data", size))))


if __name__ == "__main__":
    main(int(sys.argv[1]))
