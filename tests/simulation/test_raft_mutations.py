"""Remove a guard of the protocol, and the simulator must notice (goals R3)."""

import inspect

import pytest
from tests.simulation.mutations.guards import BREAKS, DIFFERS, MODULES
from tests.simulation.mutations.noticing import noticed


@pytest.mark.parametrize("scenario", sorted({*BREAKS.values(), *DIFFERS.values()}))
def test_with_all_guards_nothing_is_noticed(scenario):
    assert noticed(scenario) is None


@pytest.mark.parametrize("mutate", BREAKS, ids=lambda mutate: mutate.__name__)
def test_without_it_an_invariant_breaks(mutate, monkeypatch):
    mutate(monkeypatch)
    found = noticed(BREAKS[mutate])
    assert found is not None
    assert found.breaks, f"{BREAKS[mutate]} without {mutate.__name__}: {found}"


@pytest.mark.parametrize("mutate", DIFFERS, ids=lambda mutate: mutate.__name__)
def test_without_it_the_quorum_does_something_else(mutate, monkeypatch):
    mutate(monkeypatch)
    assert noticed(DIFFERS[mutate]) is not None, f"{DIFFERS[mutate]} without {mutate.__name__} goes on as ever"


def test_every_mutation_is_played():
    written = {
        function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    unplayed = sorted(mutate.__name__ for mutate in written - BREAKS.keys() - DIFFERS.keys())
    assert not unplayed, f"add to BREAKS or DIFFERS of tests/simulation/mutations/guards.py: {unplayed}"
