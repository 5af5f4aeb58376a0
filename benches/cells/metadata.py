"""The metadata image and the high watermark, measured by a program of their own (benches/load/src/bin/metadata)."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

from benches.cells import Cell, CellError, Figures, run_lines
from benches.servers import Bench, program


def of_row(number: int, wanted: Iterable[str]) -> Cell:
    """What the program measures for a goal. Raises CellError when it does not give all that is `wanted`."""

    def cell(bench: Bench, kind: str) -> Figures:
        found = {
            f"{line['name']}, {line['unit']}": float(line["value"])
            for line in _measured(3 if bench.quick else 7)
            if line["row"] == number
        }
        missing = set(wanted) - found.keys()
        if missing:
            raise CellError(f"klamm-metadata does not measure {', '.join(sorted(missing))}")
        return found

    return cell


@functools.cache
def _measured(rounds: int) -> list[dict[str, Any]]:
    """Every line; the program builds an image of a million partitions, so it runs once for all rows."""
    lines = run_lines([program("klamm-metadata"), f"rounds={rounds}"], "klamm-metadata")
    return [json.loads(line) for line in lines]
