"""`python -m benches.embedded ROUNDS [BROKERS]`: from `Cluster()` to its first acknowledged record, and its close.

Prints a JSON object with medians in ms, after a warm-up with all imports.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import klamm
from benches import client


def once(brokers: int) -> dict[str, float]:
    """Milliseconds of one cluster's start and close. The topic has a replica on each broker."""
    began = time.perf_counter()
    with klamm.Cluster(brokers=brokers) as cluster:
        ready = time.perf_counter()
        cluster.create_topic("t", assignments=[[broker.id for broker in cluster.brokers]])
        client.until_acknowledged(cluster.brokers[0].address, "t")
        acknowledged = time.perf_counter()
    closed = time.perf_counter()
    return {
        "Cluster() ms": (ready - began) * 1000,
        "first acknowledged record ms": (acknowledged - began) * 1000,
        "close ms": (closed - acknowledged) * 1000,
    }


def main(rounds: int, brokers: int = 1) -> None:
    """Measure and print."""
    once(brokers)
    lives = [once(brokers) for _ in range(rounds)]
    print(json.dumps({name: statistics.median(life[name] for life in lives) for name in lives[0]}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
