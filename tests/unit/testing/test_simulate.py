"""The progress of a simulation, and how it is continued (`python -m klamm.testing.simulator`)."""

import pytest

from klamm.testing.simulator import __main__ as simulate
from klamm.testing.simulator.run import Outcome, SimulationFailedError


@pytest.fixture
def played(monkeypatch):
    """The seeds that were played; seed 25 raises the exception."""
    seeds: list[int] = []

    def play(seed, trace=None):
        seeds.append(seed)
        if seed == 25 and play.error is not None:
            raise play.error
        return Outcome(seed, 3, 100, 10, 10, 1, 2, wipe_count=1, is_lost=seed == 12, is_stuck=seed in (13, 14))

    play.error = None
    play.seeds = seeds
    monkeypatch.setattr(simulate, "play", play)
    return play


def test_all_seeds_are_played(played, capsys):
    assert simulate.play_all(11, 30, 1, dynamic=False) == 0
    assert played.seeds == list(range(11, 41))
    out = capsys.readouterr().out
    assert "30 of 30 seeds from 11 on, 3000 events, 60 snapshots installed, 30 disks lost" in out
    assert "3 excused (1 lost, 2 stuck)" in out
    assert "every invariant held" in out


def test_a_failing_seed_ends_it_and_is_printed(played, capsys):
    played.error = SimulationFailedError("seed 25: two leaders\nreplay: this line\nthe last of it")
    assert simulate.play_all(11, 30, 1, dynamic=False) == 1
    assert played.seeds == [*range(11, 26), 25]  # played again for its schedule
    out = capsys.readouterr().out
    assert "14 of 30 seeds from 11 on" in out
    assert "replay: this line\nthe last of it" in out


def test_an_interrupt_prints_how_to_continue(played, capsys):
    played.error = KeyboardInterrupt()
    assert simulate.play_all(11, 30, 1, dynamic=False) == 130
    assert "--first 21 --seeds 20" in capsys.readouterr().out  # completed seeds are not played again


def test_processes_play_the_same(capsys):
    """With real runs, which are short: two processes, and one."""
    texts = []
    for jobs in (1, 2):
        assert simulate.play_all(2, 3, jobs, dynamic=True) == 0
        texts.append(capsys.readouterr().out.rsplit(",", 1)[0])
    assert texts[0] == texts[1]
