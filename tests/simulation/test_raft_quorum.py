"""Some hundred seeds of the simulated quorum, each with all invariants after every event, then liveness.

More of them: `python -m klamm.testing.simulator --seeds 10000`.
"""

import pytest

from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.run import play

SEEDS_EACH = 20
STRIKES = Faults(drop_chance=0.2, strike_leader_chance=0.9, delay_us_max=2_000, power_cut_share=0.3)


@pytest.mark.parametrize("first", range(1, 201, SEEDS_EACH))
def test_every_invariant_holds_and_the_quorum_recovers(first):
    for seed in range(first, first + SEEDS_EACH):
        outcome = play(seed)
        assert outcome.acknowledged_count >= 10


def test_leaders_that_are_struck_one_after_the_other():
    for seed in range(1, SEEDS_EACH + 1):
        play(seed, directed=STRIKES)


def test_a_seed_decides_everything():
    traces = [[], []]
    for trace in traces:
        play(7, trace=trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 1000
