"""Plays the scenario files of brokers. `KLAMM_REWRITE=1` writes the actual outcome to them: review the diff."""

import os
from pathlib import Path

import pytest

from klamm.testing.simulator.brokers.scripted import BrokerCommands
from klamm.testing.simulator.scenario import play_file

FILES = sorted((Path(__file__).parent / "replication").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path):
    with BrokerCommands() as commands:
        expected, actual = play_file(path, rewrite="KLAMM_REWRITE" in os.environ, run=commands.run)
    assert actual == expected
