"""Whether a scenario still goes as its file says."""

from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from klamm.testing.simulator.scenario import play_file

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "raft"


class Noticed(NamedTuple):
    """What is wrong: an invariant that does not hold, a replica that stops, or else the first line that differs."""

    breaks: bool
    text: str


def noticed(scenario: str) -> Noticed | None:
    """Play the file; None when all is as it says."""
    try:
        expected, actual = play_file(SCENARIOS / f"{scenario}.txt", rewrite=False)
    except (AssertionError, ValueError) as error:  # ValueError: a log refuses what it is told to do
        return Noticed(True, str(error).splitlines()[0])
    wanted, found = expected.splitlines(), actual.splitlines()
    for line in found:
        if ": stops: " in line and line not in wanted:
            return Noticed(True, line)
    differing = [new if new is not None else f"missing: {old}" for old, new in zip_longest(wanted, found) if old != new]
    return Noticed(False, differing[0].strip()) if differing else None
