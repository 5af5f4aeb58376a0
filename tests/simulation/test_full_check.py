"""Checks after an event skip what has not changed, to be fast; a full check shows that they miss nothing."""

import pytest

from klamm.raft import replica_state as replica
from klamm.raft.driver import raft_driver as driver
from klamm.raft.replication import leading
from klamm.raft.voters.quorum import replicated_offset
from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.full_check import OverlookedError
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.run import SimulationFailedError, play, play_dynamic
from klamm.testing.simulator.simulated_replica import SimulatedReplica

BUSY = Faults(
    drop_chance=0.1,
    partition_every_us=1_000_000,
    crash_every_us=1_000_000,
    strike_leader_chance=0.5,
    power_cut_share=1.0,
    snapshot_every_us=100_000,
    clean_share=1.0,
    reconfigure_every_us=100_000,
)


@pytest.mark.parametrize("run", [play, play_dynamic])
def test_a_full_check_holds_after_every_event(run):
    for seed in (2, 4):
        run(seed, full_check=True)


def leader_counts_itself_before_its_flush(patch):
    def hasty(self, state):
        ends = [progress.end_offset for progress in state.voters.values()] + [self._replica.log.end_offset]
        offset = replicated_offset(ends)
        if offset > max(state.epoch_start_offset, state.high_watermark):
            state.high_watermark = offset
            self._replica.advance_high_watermark(offset)

    patch.setattr(leading.Leading, "_maybe_advance_high_watermark", hasty)


def own_records_of_an_epoch_are_written_twice(patch):
    apply = driver.RaftDriver._apply

    def twice(self, effect):
        apply(self, effect)
        if isinstance(effect, replica.PersistElection) and self._log.end_offset:
            self._log.append([b"again"], self._log.last_epoch, 0)

    patch.setattr(driver.RaftDriver, "_apply", twice)


MUTATIONS = [leader_counts_itself_before_its_flush, own_records_of_an_epoch_are_written_twice]
SEEDS = range(1, 41)
ENOUGH = 3


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_violations_are_detected_by_the_partial_check(mutate, monkeypatch):
    mutate(monkeypatch)
    count = 0
    for seed in SEEDS:
        error = failure_of(seed)
        assert not isinstance(error, OverlookedError)
        count += isinstance(error, InvariantViolatedError)
        if count == ENOUGH:
            return
    raise AssertionError(f"only {count} of {len(SEEDS)} seeds notice it")


def test_an_overlooked_violation_is_reported(monkeypatch):
    leader_counts_itself_before_its_flush(monkeypatch)
    monkeypatch.setattr(SimulatedReplica, "look", lambda self: ())
    assert any(isinstance(failure_of(seed), OverlookedError) for seed in SEEDS)


def failure_of(seed):
    try:
        play_dynamic(seed, directed=BUSY, full_check=True)
    except SimulationFailedError as error:
        return error.__cause__
    return None
