"""Quorums whose voters change while everything goes wrong (KIP-853, goals R2).

More of them: `python -m klamm.testing.simulator --dynamic --seeds 10000`.
"""

import pytest

from klamm.testing.simulator.run import play_dynamic

SEEDS_EACH = 10


@pytest.mark.parametrize("first", range(1, 61, SEEDS_EACH))
def test_every_invariant_holds_while_the_voters_change(first):
    changes = 0
    for seed in range(first, first + SEEDS_EACH):
        changes += play_dynamic(seed).voter_changes
    assert changes > SEEDS_EACH  # more than the sets that they begin with


def test_a_seed_decides_everything():
    traces = [[], []]
    for trace in traces:
        play_dynamic(7, trace=trace)
    assert traces[0] == traces[1]
