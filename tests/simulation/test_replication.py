"""Seeds of simulated brokers, with all invariants after each step, then liveness.

`make test` plays `SIMULATION_BROKER_SEEDS=200` of them, CI 2,000. More: `python -m klamm.testing.simulator --brokers`.
"""

import os
import subprocess
import sys

import pytest

from klamm.testing.simulator.brokers.faults import BrokerFaults
from klamm.testing.simulator.brokers.run import QUORUM_EVERY, play

SEED_COUNT = int(os.environ.get("KLAMM_SIMULATION_BROKER_SEEDS", "40"))
SEEDS_EACH = 10
CRASHES = BrokerFaults(crash_every_us=400_000, power_cut_share=0.7, away_us_max=20_000, slow_flush_chance=0.2)
TRANSACTIONS = BrokerFaults(
    drop_chance=0.05,
    delay_us_max=20_000,
    slow_message_chance=0.1,
    repeat_fetch_chance=0.3,
    crash_every_us=1_000_000,
    power_cut_share=0.5,
    away_us_max=20_000,
    elect_every_us=1_000_000,
    transact_every_us=20_000,
)
pytestmark = pytest.mark.timeout(900)  # a few seconds on an idle machine


@pytest.mark.parametrize("first", range(1, SEED_COUNT + 1, SEEDS_EACH))
def test_every_invariant_holds_and_all_replicas_become_equal(first):
    for seed in range(first, first + SEEDS_EACH):
        assert play(seed).acknowledged_count >= 10


def test_crashes_in_quick_succession():
    """Brokers that crash again before their logs are recovered, and logs that end before a flush."""
    assert sum(play(seed, directed=CRASHES).lives for seed in range(1, 6)) > 100


@pytest.mark.parametrize("first", [1, 11])
def test_transactions_are_isolated_and_end(first):
    for seed in range(first, first + SEEDS_EACH):
        assert play(seed, directed=TRANSACTIONS).acknowledged_count >= 10


@pytest.mark.parametrize("seed", [27, 83, 133, QUORUM_EVERY])
def test_a_seed_decides_everything_in_every_process(seed):
    command = [sys.executable, "-m", "klamm.testing.simulator", "--brokers", "--seed", str(seed), "--trace"]
    traces = [
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 10_000
