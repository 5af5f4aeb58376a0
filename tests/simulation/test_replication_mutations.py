"""Remove a guard of replication, and the simulator of brokers must notice (goals R3).

With all guards the same seeds go well: `test_replication`.
"""

import inspect

import pytest
from tests.simulation.broker_mutations.guards import FAULTS, MODULES, SEEDS

from klamm.testing.simulator.brokers.run import play
from klamm.testing.simulator.run import SimulationFailedError

pytestmark = pytest.mark.timeout(900)  # some seconds, on a machine that does nothing else


@pytest.mark.parametrize("mutate", FAULTS, ids=lambda mutate: mutate.__name__)
def test_without_it_a_seed_fails(mutate, monkeypatch):
    mutate(monkeypatch)
    for seed in SEEDS:
        try:
            play(seed, directed=FAULTS[mutate])
        except SimulationFailedError as error:
            print(f"noticed with {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{len(SEEDS)} seeds without {mutate.__name__} being noticed")


def test_every_mutation_is_played():
    written = {
        function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    unplayed = sorted(mutate.__name__ for mutate in written - FAULTS.keys())
    assert not unplayed, f"add to FAULTS of tests/simulation/broker_mutations/guards.py: {unplayed}"
