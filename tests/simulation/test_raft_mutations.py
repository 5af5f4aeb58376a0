"""Remove a guard of the protocol; the simulator must detect it.

With all guards, the same scenarios have the outcome in their files: `tests/scenarios`.
"""

import inspect

import pytest
from tests.simulation.mutations.guards import (
    ANSWERS,
    BREAKS,
    BY_DICE,
    BY_DICE_DYNAMIC,
    CONNECTIONS,
    DIFFERS,
    DRIVER,
    MODULES,
    NOTICED_BY,
    SEEDS,
)
from tests.simulation.mutations.noticing import noticed

from klamm.testing.simulator.run import SimulationFailedError, are_connected, are_fetches_leased, play, play_dynamic


@pytest.mark.parametrize("mutate", BREAKS, ids=lambda mutate: mutate.__name__)
def test_without_it_an_invariant_breaks(mutate, monkeypatch):
    mutate(monkeypatch)
    found = noticed(BREAKS[mutate])
    assert found is not None
    assert found.breaks, f"{BREAKS[mutate]} without {mutate.__name__}: {found}"


@pytest.mark.parametrize("mutate", DIFFERS, ids=lambda mutate: mutate.__name__)
def test_without_it_the_quorum_behaves_differently(mutate, monkeypatch):
    mutate(monkeypatch)
    assert noticed(DIFFERS[mutate]) is not None, f"{DIFFERS[mutate]} without {mutate.__name__} changes no outcome"


@pytest.mark.parametrize("mutate", BY_DICE, ids=lambda mutate: mutate.__name__)
def test_without_it_a_seed_fails(mutate, monkeypatch):
    """Random seeds find what the scenarios lead to."""
    mutate(monkeypatch)
    _check_that_a_seed_fails(lambda seed: play(seed, directed=BY_DICE[mutate]), mutate)


@pytest.mark.parametrize("mutate", BY_DICE_DYNAMIC, ids=lambda mutate: mutate.__name__)
def test_without_it_a_seed_whose_voters_change_fails(mutate, monkeypatch):
    mutate(monkeypatch)
    _check_that_a_seed_fails(lambda seed: play_dynamic(seed, directed=BY_DICE_DYNAMIC[mutate]), mutate)


@pytest.mark.parametrize("mutate", DRIVER, ids=lambda mutate: mutate.__name__)
def test_a_driver_without_it_fails_a_seed(mutate, monkeypatch):
    mutate(monkeypatch)
    _check_that_a_seed_fails(lambda seed: play(seed, directed=DRIVER[mutate]), mutate)


@pytest.mark.parametrize("mutate", ANSWERS, ids=lambda mutate: mutate.__name__)
def test_without_it_a_seed_fails_whose_leaders_answer_without_their_cores(mutate, monkeypatch):
    mutate(monkeypatch)
    seed = _check_that_a_seed_fails(ANSWERS[mutate], mutate)
    assert are_fetches_leased(seed), "the core and the driver are noticed by other mutations"


@pytest.mark.parametrize("mutate", CONNECTIONS, ids=lambda mutate: mutate.__name__)
def test_without_it_a_seed_fails_whose_requests_go_by_connections(mutate, monkeypatch):
    mutate(monkeypatch)
    assert are_connected(_check_that_a_seed_fails(CONNECTIONS[mutate], mutate))


def _check_that_a_seed_fails(run, mutate):
    """Return the first failing seed."""
    for seed in sorted(SEEDS, key=lambda seed: seed != NOTICED_BY.get(mutate)):
        try:
            run(seed)
        except SimulationFailedError as error:
            print(f"noticed with {str(error).splitlines()[0]}")
            return seed
    return pytest.fail(f"{len(SEEDS)} seeds without {mutate.__name__} being noticed")


def test_every_mutation_is_played():
    written = {
        function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    played = BREAKS.keys() | DIFFERS.keys() | DRIVER.keys() | ANSWERS.keys() | CONNECTIONS.keys()
    unplayed = sorted(mutate.__name__ for mutate in written - played)
    assert not unplayed, (
        f"add to BREAKS, DIFFERS, DRIVER, ANSWERS or CONNECTIONS of tests/simulation/mutations/guards.py: {unplayed}"
    )
