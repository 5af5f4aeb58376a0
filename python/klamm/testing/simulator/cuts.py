"""Partitions of a simulated network, as the pairs of nodes between which no message passes."""

from __future__ import annotations

import random
from collections.abc import Sequence

Pair = tuple[int, int]
"""Sender and receiver."""


def draw_cut(ids: Sequence[int], rng: random.Random) -> set[Pair]:
    """No cut, two parts, one node that is cut off, or single directions."""
    kind = rng.randrange(4)
    if kind == 0:
        return set()
    if kind == 1:
        side = {node_id for node_id in ids if rng.random() < 0.5}
        return {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
    if kind == 2:
        alone = rng.choice(ids)
        return {(a, b) for a in ids for b in ids if a != b and alone in (a, b)}
    return {(a, b) for a in ids for b in ids if a != b and rng.random() < 0.3}


def describe_cut(cut: set[Pair]) -> str:
    """For the trace of a run."""
    return "messages pass " + ("everywhere" if not cut else f"not {sorted(cut)}")
