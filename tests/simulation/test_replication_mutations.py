"""Remove a guard of replication, and the simulator of brokers must notice (goals R3).

With all guards the same scenarios go as their files say (`tests/scenarios`), and the same seeds go well
(`test_replication`).
"""

import inspect
from pathlib import Path

import pytest
from tests.simulation.broker_mutations import control
from tests.simulation.broker_mutations.guards import FAULTS, SCENARIOS, SEEDS

from klamm._engine.simulation import SimulatedBroker
from klamm.testing.simulator.brokers.run import play
from klamm.testing.simulator.brokers.scripted import BrokerCommands
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.run import SimulationFailedError
from klamm.testing.simulator.scenario import play_file

FOLDER = Path(__file__).parents[1] / "scenarios" / "replication"
pytestmark = pytest.mark.timeout(900)  # some seconds, on a machine that does nothing else


def name_of(mutation):
    return mutation if isinstance(mutation, str) else mutation.__name__


def begin(mutation, patch):
    """Removes the guard; returns the one that brokers lack."""
    if isinstance(mutation, str):
        return mutation
    mutation(patch)
    return None


@pytest.mark.parametrize("mutation", SCENARIOS, ids=name_of)
def test_without_it_a_scenario_goes_another_way(mutation, monkeypatch):
    path = FOLDER / f"{SCENARIOS[mutation]}.txt"
    with BrokerCommands(begin(mutation, monkeypatch)) as commands:
        try:
            expected, actual = play_file(path, rewrite=False, run=commands.run)
        except InvariantViolatedError as error:
            print(f"noticed with {error}")
            return
    assert actual != expected, f"{path.stem} without {name_of(mutation)} goes on as ever"


@pytest.mark.parametrize("mutation", FAULTS, ids=name_of)
def test_without_it_a_seed_fails(mutation, monkeypatch):
    """The simulator finds by itself what a scenario is led to."""
    without = begin(mutation, monkeypatch)
    for seed in SEEDS:
        try:
            play(seed, directed=FAULTS[mutation], settings={"klamm.flush.before.ack": "all"}, without=without)
        except SimulationFailedError as error:
            print(f"noticed with {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{len(SEEDS)} seeds without {name_of(mutation)} being noticed")


def test_every_mutation_is_played():
    written = {
        function
        for name, function in inspect.getmembers(control, inspect.isfunction)
        if function.__module__ == control.__name__ and not name.startswith("_")
    }
    unplayed = {*written, *SimulatedBroker.guards()} - SCENARIOS.keys() - FAULTS.keys()
    assert not unplayed, (
        f"add to SCENARIOS or FAULTS of tests/simulation/broker_mutations/guards.py: {sorted(map(name_of, unplayed))}"
    )
