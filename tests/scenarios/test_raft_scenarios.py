"""Plays the scenario files. `KLAMM_REWRITE=1` writes the actual outcome to them: review the diff before you commit."""

import os
from pathlib import Path

import pytest

from klamm.testing.simulator.scenario import play_file

FILES = sorted((Path(__file__).parent / "raft").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path):
    expected, actual = play_file(path, rewrite="KLAMM_REWRITE" in os.environ)
    assert actual == expected
