"""What a run draws and what happens in it: among a few seeds, each schedule occurs, and each option is on and off."""

import pytest

from klamm.testing.simulator.operations import Operations
from klamm.testing.simulator.run import play, play_dynamic
from klamm.testing.simulator.world import World

SEEDS = range(1, 11)
ENOUGH = 3
HAPPENS = {
    "a refused connection": " is refused by ",
    "a hand-over": " receives the signal to stop",
    "an orderly end": " ends",
}
HAPPENS_TO_VOTERS = {
    "another port": " is to listen at port ",
    "a leader that is cut off from a change": "no message passes from or to ",
    "a change that timed out": "Voter: REQUEST_TIMED_OUT",
}
OPTIONS = ["fetches_go_on", "fetches_leased", "crash_detection"]


@pytest.mark.parametrize("run", [play, play_dynamic])
def test_every_schedule_occurs(run, monkeypatch):
    configs, retried = [], []

    class Watched(World):
        def begin(self, calm_us=0):
            configs.append([replica.config for replica in self.replicas.values()])
            super().begin(calm_us)

    retry = Operations._retry

    def watched(self, asked):
        replicas = self._simulation.replicas
        if replicas[asked.target] in self._simulation.leaders() and not all(one.is_up for one in replicas.values()):
            retried.append(asked)
        retry(self, asked)

    monkeypatch.setattr("klamm.testing.simulator.run.World", Watched)
    monkeypatch.setattr(Operations, "_retry", watched)
    traces = []
    for seed in SEEDS:
        trace = []
        run(seed, trace=trace)
        traces.append("\n".join(trace))
    happens = HAPPENS | (HAPPENS_TO_VOTERS if run is play_dynamic else {})
    counts = {what: sum(line in trace for trace in traces) for what, line in happens.items()}
    assert min(counts.values()) >= ENOUGH, counts
    for option in OPTIONS:
        assert {getattr(each[0], option) for each in configs} == {True, False}, option
    if run is play_dynamic:
        assert len(retried) >= ENOUGH, "a change is asked for again while a replica is down"
    else:
        assert {one.never_votes for each in configs for one in each} == {True, False}
