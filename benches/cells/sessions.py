"""Fetch sessions of many partitions, one of which is busy, measured by a separate program (bin/sessions.rs)."""

from __future__ import annotations

import json

from benches.cells import Cell, Figures, run_lines
from benches.servers import Bench, program


def fetches(*sizes: int) -> Cell:
    """The server's processor time per fetch of a consumer and of a follower, in a session of that many partitions."""

    def cell(bench: Bench, kind: str) -> Figures:
        options = [f"partitions={','.join(map(str, sizes))}", f"fetches={1_000 if bench.quick else 20_000}"]
        found = map(json.loads, run_lines([program("klamm-sessions"), *options], "klamm-sessions"))
        return {f"{line['session']}, {line['partitions']:,} partitions, us": line["us"] for line in found}

    return cell
