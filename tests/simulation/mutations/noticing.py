"""Checks whether a scenario still has the outcome in its file."""

from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from klamm.testing.simulator.scenario import play_file

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "raft"


class Noticed(NamedTuple):
    """The difference: a violated invariant, a replica that stopped, or else the first line that differs."""

    breaks: bool
    text: str


def noticed(scenario: str) -> Noticed | None:
    """Play the file; None without a difference."""
    try:
        expected, actual = play_file(SCENARIOS / f"{scenario}.txt", rewrite=False)
    except (AssertionError, ValueError) as error:  # ValueError: the log rejects an operation
        return Noticed(True, str(error).splitlines()[0])
    wanted, found = expected.splitlines(), actual.splitlines()
    for line in found:
        if ": stops: " in line and line not in wanted:
            return Noticed(True, line)
    differing = [new if new is not None else f"missing: {old}" for old, new in zip_longest(wanted, found) if old != new]
    return Noticed(False, differing[0].strip()) if differing else None
