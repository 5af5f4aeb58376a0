"""The metadata image and the high watermark, measured by a separate program (benches/load/src/bin/metadata)."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable
from typing import Any

from benches.cells import Cell, CellError, Figures, run_json, run_lines
from benches.servers import Bench, program


def of_row(number: int, wanted: Iterable[str], partitions: int = 1_000_000) -> Cell:
    """The program's figures for a goal. Raises CellError unless all of `wanted` are among them."""

    def cell(bench: Bench, kind: str) -> Figures:
        found = {
            f"{line['name']}, {line['unit']}": float(line["value"])
            for line in _measured(3 if bench.quick else 7, partitions)
            if line["row"] == number
        }
        missing = set(wanted) - found.keys()
        if missing:
            raise CellError(f"klamm-metadata does not measure {', '.join(sorted(missing))}")
        return found

    return cell


def pause(*sizes: int) -> Cell:
    """How long an event loop is blocked while snapshots with that many partitions are written."""

    def cell(bench: Bench, kind: str) -> Figures:
        found = {}
        for partitions in sizes:
            words = [
                "-m",
                "benches.snapshot_pause",
                f"--partitions={partitions}",
                f"--rounds={1 if bench.quick else 5}",
            ]
            line = run_json([sys.executable, *words], "benches.snapshot_pause")
            found[f"longest pause, {partitions:,} partitions, ms"] = line["value"]
            found[f"longest of the loop's own, {partitions:,} partitions, ms"] = line["own"]
            found[f"longest pause of as long a time without, {partitions:,} partitions, ms"] = line["baseline"]
        return found

    return cell


@functools.cache
def _measured(rounds: int, partitions: int) -> list[dict[str, Any]]:
    """All figures; the program builds an image with that many partitions, so it runs once for all rows."""
    command = [program("klamm-metadata"), f"rounds={rounds}", f"partitions={partitions}"]
    return [json.loads(line) for line in run_lines(command, "klamm-metadata")]
