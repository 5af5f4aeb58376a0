"""The time in which a group coordinator loads a partition of `__consumer_offsets`."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Final

from benches import client
from benches.cells import Cell, Figures, cool, settle
from benches.servers import Bench
from klamm import records
from klamm._engine.groups import offset_record_key, offset_record_value

GROUP: Final = "first"
BATCH_RECORDS: Final = 500
BATCHES: Final = 200
"""The number of different batches. The log repeats them, which changes neither the work nor the resulting state."""
PARTITIONS_OF_GROUP: Final = 100


def offsets(size: int, places: int) -> Cell:
    """A log of `size` bytes with the offsets of `places` partitions in groups of 100, each committed many times.

    From the first ApiVersions response after a start to the first commit that the coordinator accepts.
    """

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind, {"offsets.topic.num.partitions": "1"}) as server:
            client.create(server.address, ["t"])
            client.until_committed(server.address, GROUP, "t")
            server.process.stop()
            folder = server.data / "__consumer_offsets-0"
            for path in folder.iterdir():
                if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                    path.unlink()
            _write(folder / f"{0:020}.log", size, places)
            # An unclean stop: the indexes are rebuilt before the node responds.
            for path in (*server.data.glob("*checkpoint"), *server.data.glob(".kafka_cleanshutdown")):
                path.unlink()
            settle(bench)
            server.process.start()
            client.until_answered(server.address)
            began = time.perf_counter()
            client.until_committed(server.address, GROUP, "t")
            return {"load s": time.perf_counter() - began, "resident MB": server.resident_mb()}

    return cell


def _write(path: Path, size: int, places: int) -> None:
    rng, now_ms = random.Random(places), time.time_ns() // 1_000_000
    keys = [
        offset_record_key(f"group-{place // PARTITIONS_OF_GROUP}", "orders", place % PARTITIONS_OF_GROUP)
        for place in range(places)
    ]
    value = offset_record_value(123_456, 3, "", now_ms, -1, bytes(16))
    batches = [
        bytearray(records.encode([(now_ms, keys[rng.randrange(places)], value) for _ in range(BATCH_RECORDS)]))
        for _ in range(max(BATCHES, places // BATCH_RECORDS))
    ]
    written, offset = 0, 0
    with path.open("wb") as file:
        while written < size:
            batch = batches[offset // BATCH_RECORDS % len(batches)]
            struct.pack_into(">q", batch, 0, offset)
            struct.pack_into(">i", batch, 12, 0)  # leader epoch
            written += file.write(batch)
            offset += BATCH_RECORDS
    cool(path.parent)
