"""The record codec compared with aiokafka's, in its own process."""

from __future__ import annotations

from benches.cells import Figures, run_json
from benches.cells.lives import PYTHON
from benches.servers import Bench


def ratios(bench: Bench, kind: str) -> Figures:
    """Records per second, and multiples of aiokafka's rate."""
    rounds = "10" if bench.quick else "40"
    return run_json([*PYTHON, "benches.bench_records", "--json", "--rounds", rounds], "the record codecs")
