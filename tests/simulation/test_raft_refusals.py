"""Remove each refusal of the core; a scenario must detect it.

`mutations/refusals.txt` lists which one. `KLAMM_REWRITE=1` writes the list again; a refusal without a scenario needs a
new one.
"""

import os
from pathlib import Path

import pytest
from tests.simulation.mutations import refusals as found
from tests.simulation.mutations.noticing import SCENARIOS, noticed

LIST = Path(found.__file__).with_suffix(".txt")
UNSEEN = "-"


def listed():
    lines = [line.rsplit(" | ", 1) for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return {place: scenario.split() for place, scenario in lines}


def scenario_for(place):
    names = sorted(path.stem for path in SCENARIOS.glob("*.txt"))
    with found.without(place):
        return next((name for name in names if noticed(name) is not None), UNSEEN)


def test_the_list_is_that_of_the_source():
    places = found.refusals()
    assert len(set(places)) == len(places)
    if "KLAMM_REWRITE" in os.environ:
        LIST.write_text("".join(f"{place} | {scenario_for(place)}\n" for place in places))
    missing = {str(place) for place in places} ^ listed().keys()
    assert not missing, f"run this test with KLAMM_REWRITE=1, then read {LIST.name}: {sorted(missing)}"


@pytest.mark.parametrize("place", found.refusals(), ids=str)
def test_without_it_a_scenario_differs(place):
    (scenario,) = listed()[str(place)]
    with found.without(place):
        assert noticed(scenario) is not None, f"{scenario} has the same outcome without it; see {LIST.name}"
