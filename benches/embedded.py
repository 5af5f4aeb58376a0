"""`python -m benches.embedded ROUNDS`: from `Cluster()` to its first acknowledged record, and its end.

Prints a JSON object: medians in ms, everything imported and run once before.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import klamm
from benches import client


def once() -> dict[str, float]:
    """Milliseconds of one life."""
    began = time.perf_counter()
    with klamm.Cluster() as cluster:
        ready = time.perf_counter()
        cluster.create_topic("t")
        client.until_acknowledged(cluster.bootstrap_servers, "t")
        acknowledged = time.perf_counter()
    closed = time.perf_counter()
    return {
        "Cluster() ms": (ready - began) * 1000,
        "first acknowledged record ms": (acknowledged - began) * 1000,
        "close ms": (closed - acknowledged) * 1000,
    }


def main(rounds: int) -> None:
    """Measure and print."""
    once()
    lives = [once() for _ in range(rounds)]
    print(json.dumps({name: statistics.median(life[name] for life in lives) for name in lives[0]}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
