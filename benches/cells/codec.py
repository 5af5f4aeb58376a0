"""The record codec beside aiokafka's, in a process of its own."""

from __future__ import annotations

from benches.cells import Figures, run_json
from benches.cells.lives import PYTHON
from benches.servers import Bench


def ratios(bench: Bench, kind: str) -> Figures:
    """How many records a second, and how many times aiokafka's rate that is."""
    rounds = "10" if bench.quick else "40"
    return run_json([*PYTHON, "benches.bench_records", "--json", "--rounds", rounds], "the record codecs")
