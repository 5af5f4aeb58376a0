"""What a quorum of three controllers, each a process, does when one is killed."""

from __future__ import annotations

import statistics
import time

from tests.support.mixed_quorum import MixedQuorum

from benches.cells import Cell, Figures
from benches.servers import KAFKA, Bench


def killed_controller(kills: int) -> Cell:
    """SIGKILL of the active controller, so many times: until the next metadata write is acknowledged by another."""

    def cell(bench: Bench, kind: str) -> Figures:
        quorum = MixedQuorum(bench.new_folder("quorum"), java=(1, 2, 3) if kind == KAFKA else ())
        try:
            for node_id in quorum.controllers:
                quorum.launch(node_id)
            times_ms = [_kill(quorum, number) for number in range(kills)]
        finally:
            quorum.close()
        return {
            "shortest ms": min(times_ms),
            "median ms": statistics.median(times_ms),
            "longest ms": max(times_ms),
        }

    return cell


def _kill(quorum: MixedQuorum, number: int) -> float:
    before = {f"before-{number}": 1000}
    quorum.write(f"before-{number}", 1000)
    for node_id in quorum.controllers:
        quorum.wait_for(node_id, before)
    leader, _ = quorum.leader()
    began = time.perf_counter()
    quorum.kill(leader.id)
    quorum.write(f"after-{number}", 1000, quorum.others(leader.id))
    taken = time.perf_counter() - began
    quorum.launch(leader.id)
    return taken * 1000
