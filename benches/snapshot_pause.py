"""`python -m benches.snapshot_pause`: how long an event loop is blocked while a snapshot is written in another thread.

Prints one JSON object in the form of klamm-metadata. `own` is the longest pause without the time in which the loop's
thread waited for a core, i.e. the effect of the writing itself. `baseline` is the longest pause of the same loop
without a snapshot, i.e. the effect of the machine and its other processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benches.stalls import waited_for_core_ms
from klamm._engine.controller import topic_records
from klamm._engine.metadata import Image
from klamm._engine.quorum import write_snapshot
from klamm.protocol.generated import metadata_records as records

BROKERS = 3
PARTITIONS_OF_A_TOPIC = 10
BATCH_TOPICS = 1000
GOAL_MS = 1.0


def cluster(topics: int) -> Image:
    """An image with that many topics of ten partitions with three replicas."""
    values = [records.encode(records.FeatureLevelRecord(name="metadata.version", feature_level=30), 0)]
    for broker in range(BROKERS):
        directory = bytes([broker + 1] * 16)
        record = records.RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=directory,
            broker_epoch=broker,
            end_points=(),
            features=(),
            rack=None,
            fenced=False,
            log_dirs=(directory,),
        )
        values.append(records.encode(record, 3))
    image = Image().apply(values)
    replicas = [[(first + at) % BROKERS for at in range(3)] for first in range(PARTITIONS_OF_A_TOPIC)]
    for start in range(0, topics, BATCH_TOPICS):
        batch: list[bytes] = []
        for number in range(start, min(topics, start + BATCH_TOPICS)):
            topic_id = (number + 1).to_bytes(16, "little")
            batch += topic_records(image, f"topic-of-some-length-{number}", topic_id, [], replicas)
        image = image.apply(batch)
    return image


class Pause(NamedTuple):
    """The longest turn of the loop, and the longest without the time in which its thread waited for a core."""

    ms: float
    own_ms: float


async def longest_pause(until: asyncio.Future[Any]) -> Pause:
    """The longest of all turns until the future is done."""
    longest = own = 0.0
    last, waited = time.perf_counter(), waited_for_core_ms()
    while not until.done():
        before = time.perf_counter()
        await asyncio.sleep(0)
        after, waited_before, waited = time.perf_counter(), waited, waited_for_core_ms()
        # Waiting while the system is asked counts as a pause, but not as the loop's own.
        longest, last = max(longest, (after - last) * 1e3), after
        own = max(own, (after - before) * 1e3 - (waited - waited_before))
    return Pause(longest, own)


async def measure(image: Image, path: Path) -> tuple[Pause, Pause]:
    """The longest pause while a snapshot is written, and during the same time without one."""

    def write() -> float:
        start = time.perf_counter()
        write_snapshot(path, image, epoch=1, last_contained_log_timestamp_ms=1, now_ms=1)
        return time.perf_counter() - start

    writing = asyncio.ensure_future(asyncio.to_thread(write))
    pause = await longest_pause(writing)
    idle = await longest_pause(asyncio.ensure_future(asyncio.sleep(await writing)))
    return pause, idle


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benches.snapshot_pause")
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    image = cluster(options.partitions // PARTITIONS_OF_A_TOPIC)
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        runs = [asyncio.run(measure(image, Path(folder) / "snapshot")) for _ in range(options.rounds)]
    pause, idle = min(run[0].ms for run in runs), min(run[1].ms for run in runs)
    own = min(run[0].own_ms for run in runs)
    name = f"longest pause of an event loop while a snapshot of {options.partitions} partitions is written"
    found = {"value": pause, "unit": "ms", "goal": GOAL_MS, "own": own, "baseline": idle}
    print(json.dumps({"row": 13, "name": name, **found}))


if __name__ == "__main__":
    main()
