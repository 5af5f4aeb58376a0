"""Remove a guard of the voter changes, and the simulator must notice within a stated number of seeds (goals R3)."""

import pytest

from klamm.raft import leading, reconfiguration, replica, voter_history
from klamm.raft.quorum import replicated_offset
from klamm.raft.voters import VoterSet
from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.run import SimulationFailedError, play_dynamic

# What a guard is for is seen when leaders are cut off and elected in quick succession, and change the voters meanwhile.
BUSY = Faults(
    drop_chance=0.1,
    partition_every_us=1_000_000,
    crash_every_us=1_500_000,
    strike_leader_chance=0.5,
    power_cut_share=0.3,
    reconfigure_every_us=100_000,
)


def two_changes_at_once(patch):
    check_ready = reconfiguration.Reconfiguration._check_ready

    def careless(self, now_ms, state):
        state.change = None
        refusal = check_ready(self, now_ms, state)
        return None if refusal is not None and "last change" in (refusal.message or "") else refusal

    patch.setattr(reconfiguration.Reconfiguration, "_check_ready", careless)


def a_change_before_a_commit_of_the_own_epoch(patch):
    def careless(self, now_ms, state):
        return None if state.started else reconfiguration.Refusal(reconfiguration.Error.REQUEST_TIMED_OUT)

    patch.setattr(reconfiguration.Reconfiguration, "_check_ready", careless)


def a_change_acts_when_committed(patch):
    newest = replica.Replica.voters_in_log

    def late(self):
        return self.voter_history.below(max(self.high_watermark, 0)) if self.voter_history else newest.fget(self)

    patch.setattr(replica.Replica, "voters_in_log", property(late))


def truncation_undoes_no_change(patch):
    follow = voter_history.VoterHistory.follow

    def forgetful(self, log):
        entries = list(self._entries)
        changed = follow(self, log)
        if len(self._entries) < len(entries) and log.start_offset == self._start_offset:
            self._entries = entries
            return False
        return changed

    patch.setattr(voter_history.VoterHistory, "follow", forgetful)


def a_removed_leader_counts_itself(patch):
    def careless(self, state):
        replica_here = self._replica
        ends = [progress.end_offset for progress in state.voters.values()] + [replica_here.log.flushed_offset]
        offset = replicated_offset(ends)
        if offset > max(state.epoch_start_offset, state.high_watermark):
            state.high_watermark = offset
            replica_here.advance_high_watermark(offset)

    patch.setattr(leading.Leading, "_maybe_advance_high_watermark", careless)


def a_removed_voter_may_not_campaign(patch):
    patch.setattr(replica.Replica, "may_campaign", property(lambda self: self.is_voter))


def a_new_disk_is_as_good_as_the_old_one(patch):
    patch.setattr(VoterSet, "is_voter", lambda self, key: key.id in self.ids)
    patch.setattr("klamm.raft.elections.is_meant_for", lambda replica, voter: voter is None or voter.id == replica.id)
    patch.setattr("klamm.raft.voters.ReplicaKey.matches", lambda self, other: self.id == other.id)


# The seeds within which each is noticed; a few times more than what it took when it was written.
MUTATIONS = {
    two_changes_at_once: range(1, 121),
    a_change_before_a_commit_of_the_own_epoch: range(1, 121),
    a_change_acts_when_committed: range(1, 11),
    truncation_undoes_no_change: range(1, 11),
    a_removed_leader_counts_itself: range(1, 121),
    a_removed_voter_may_not_campaign: range(3, 41),
    a_new_disk_is_as_good_as_the_old_one: range(16, 61),
}
SLOW = [pytest.mark.slow, pytest.mark.timeout(1200)]  # some ten seconds of processor time each
RARE = (two_changes_at_once, a_change_before_a_commit_of_the_own_epoch, a_removed_leader_counts_itself)


@pytest.mark.parametrize(
    "mutate",
    [pytest.param(mutate, marks=SLOW if mutate in RARE else (), id=mutate.__name__) for mutate in MUTATIONS],
)
def test_a_removed_guard_is_noticed(mutate, monkeypatch):
    mutate(monkeypatch)
    for seed in MUTATIONS[mutate]:
        try:
            play_dynamic(seed, directed=BUSY)
        except SimulationFailedError as error:
            print(f"noticed with {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{len(MUTATIONS[mutate])} seeds without {mutate.__name__} being noticed")
