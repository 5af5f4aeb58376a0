"""Seeds of the simulated quorum, with all invariants after each event, then liveness.

`make test` plays `SIMULATION_SEEDS=200` of them, CI 2,000. More: `make simulate SEEDS=10000`.
"""

import os
import subprocess
import sys

import pytest

from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.run import play

SEED_COUNT = int(os.environ.get("KLAMM_SIMULATION_SEEDS", "200"))
SEEDS_EACH = 20
pytestmark = pytest.mark.timeout(900)  # a few seconds on an idle machine
STRIKES = Faults(drop_chance=0.2, strike_leader_chance=0.9, delay_us_max=2_000, power_cut_share=0.3)


@pytest.mark.parametrize("first", range(1, SEED_COUNT + 1, SEEDS_EACH))
def test_every_invariant_holds_and_the_quorum_recovers(first):
    for seed in range(first, first + SEEDS_EACH):
        outcome = play(seed)
        assert outcome.acknowledged_count >= 10
        assert not outcome.is_excused  # static voters lose no disk that they need


def test_repeated_crashes_of_leaders():
    for seed in range(1, SEEDS_EACH + 1):
        assert play(seed, directed=STRIKES).acknowledged_count >= 10


def test_a_seed_decides_everything():
    traces = [[], []]
    for trace in traces:
        play(7, trace=trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 1000


SNAPSHOTS = Faults(
    partition_every_us=1_000_000,
    crash_every_us=1_000_000,
    snapshot_every_us=50_000,
    clean_share=1.0,
    wipe_every_us=300_000,
)


def test_replicas_that_need_snapshots_get_them():
    assert sum(play(seed, directed=SNAPSHOTS).installed_count for seed in range(1, SEEDS_EACH + 1)) > SEEDS_EACH


def test_another_process_plays_the_same():
    """Hashes of strings or objects affect nothing, so the printed line replays a failure in any process."""
    command = [sys.executable, "-m", "klamm.testing.simulator", "--seed", "11", "--trace"]
    traces = [
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 10_000
