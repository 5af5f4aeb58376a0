"""Remove a guard of the protocol, and the simulator must notice within a stated number of seeds (goals R3)."""

from dataclasses import replace

import pytest

from klamm.raft import following, leading, log, node, replica, role_states, snapshot_fetching, voting
from klamm.raft.effects import Reply, SendRequest
from klamm.raft.messages import FetchSnapshotResponse
from klamm.raft.quorum import replicated_offset
from klamm.testing.simulator import memory_log, world
from klamm.testing.simulator import replica as simulated
from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.run import SimulationFailedError, play


def vote_without_log_check(patch):
    patch.setattr(log.OffsetAndEpoch, "is_up_to_date_with", lambda self, other: True)


def vote_twice_in_an_epoch(patch):
    patch.setattr(voting, "_is_free_or_given", lambda election, candidate, log_is_up_to_date: log_is_up_to_date)


def commit_records_of_an_older_epoch(patch):
    become_leader = replica.Replica.become_leader

    def careless(self, now_ms):
        become_leader(self, now_ms)
        self.state.epoch_start_offset = -1

    patch.setattr(replica.Replica, "become_leader", careless)


def answer_before_the_election_is_durable(patch):
    def hasty_reply(self, request_id, response):
        self.effects.append(Reply(request_id, response, after=0))

    patch.setattr(replica.Replica, "reply", hasty_reply)


def ask_for_votes_before_the_own_vote_is_durable(patch):
    def hasty_send(self, now_ms, to, request, endpoints=()):
        correlation_id = self.requests.begin(now_ms, to, request)
        self.effects.append(SendRequest(to, (), correlation_id, request, after=0))

    patch.setattr(replica.Replica, "send", hasty_send)


def leader_counts_itself_before_its_flush(patch):
    def hasty(self, state):
        ends = [progress.end_offset for progress in state.voters.values()] + [self._replica.log.end_offset]
        offset = replicated_offset(ends)
        if offset > max(state.epoch_start_offset, state.high_watermark):
            state.high_watermark = offset
            self._replica.advance_high_watermark(offset)

    patch.setattr(leading.Leading, "_maybe_advance_high_watermark", hasty)


def follower_fetches_before_its_flush(patch):
    class Flushed:
        def __init__(self, real):
            self._real = real

        def __getattr__(self, name):
            return self._real.end_offset if name == "flushed_offset" else getattr(self._real, name)

    tick = following.Following.tick

    def hasty(self, now_ms, state):
        real, self._replica.log = self._replica.log, Flushed(self._replica.log)
        try:
            return tick(self, now_ms, state)
        finally:
            self._replica.log = real

    patch.setattr(following.Following, "tick", hasty)


def leader_appends_before_its_election_is_durable(patch):
    start = leading.Leading.maybe_start_epoch

    def hasty(self):
        if isinstance(self._replica.state, role_states.Leader):
            self._replica.state.ticket = 0
        start(self)

    take = node.RaftNode._take_effects

    def take_hasty(self):
        self._leading.maybe_start_epoch()
        return take(self)

    patch.setattr(leading.Leading, "maybe_start_epoch", hasty)
    patch.setattr(node.RaftNode, "_take_effects", take_hasty)


def a_restarted_leader_may_lead_the_same_epoch_again(patch):
    initial_state = node.RaftNode._initial_state

    def forgetful(self, now_ms, stored):
        if stored.leader_id == self.replica.id and len(self.replica.voters) == 1:
            stored = stored._replace(leader_id=None, voted=self.replica.key)
        return initial_state(self, now_ms, stored)

    patch.setattr(node.RaftNode, "_initial_state", forgetful)


def leader_takes_every_fetch_position(patch):
    patch.setattr(leading, "check_fetch_position", lambda log, offset, last_epoch: log_valid)


def half_is_a_majority(patch):
    patch.setattr("klamm.raft.quorum.majority_size", lambda voter_count: max(voter_count // 2, 1))


def a_damaged_snapshot_is_installed(patch):
    patch.setattr(memory_log, "damage_of", lambda received: None)


def the_log_behind_an_installed_snapshot_is_kept(patch):
    patch.setattr(memory_log.MemoryLog, "truncate_to_latest_snapshot", lambda self: None)


def the_state_is_not_loaded_from_an_installed_snapshot(patch):
    install = simulated.SimulatedReplica._install

    def forgetful(self, snapshot_id):
        applied, state = self.applied, self.state
        install(self, snapshot_id)
        self.applied, self.state = applied, state

    patch.setattr(simulated.SimulatedReplica, "_install", forgetful)


def a_part_of_a_snapshot_is_served_as_the_whole(patch):
    def hasty(self, request_id, response):
        if isinstance(response, FetchSnapshotResponse) and response.size:
            response = replace(response, size=response.position + len(response.unaligned_records))
        return response

    with_bytes = simulated.with_bytes
    patch.setattr(simulated, "with_bytes", lambda log, response, read: hasty(None, 0, with_bytes(log, response, read)))


def the_high_watermark_stays_behind_an_installed_snapshot(patch):
    on_checked = snapshot_fetching.SnapshotFetching.on_checked

    def forgetful(self, now_ms, attempt, is_valid):
        state = self._replica.state
        known = getattr(state, "leader_high_watermark", None)
        on_checked(self, now_ms, attempt, is_valid)
        if known is not None:
            state.leader_high_watermark = known

    patch.setattr(snapshot_fetching.SnapshotFetching, "on_checked", forgetful)


def a_check_of_an_earlier_fetch_installs_a_later_one(patch):
    on_checked = snapshot_fetching.SnapshotFetching.on_checked

    def careless(self, now_ms, attempt, is_valid):
        fetching = getattr(self._replica.state, "fetching", None)
        on_checked(self, now_ms, fetching.attempt if fetching is not None else attempt, is_valid)

    patch.setattr(snapshot_fetching.SnapshotFetching, "on_checked", careless)


def a_static_voter_loses_its_disk_at_any_time(patch):
    patch.setattr(world, "may_be_wiped", lambda replicas, replica, history: True)
    patch.setattr(world, "WIPED_FOR_US", 10_000)


log_valid = log.Valid()

# Leaders that are struck as soon as they are elected, until the epochs of all logs are interleaved (Raft, figure 8).
STRIKES = Faults(drop_chance=0.2, strike_leader_chance=0.9, delay_us_max=2_000, power_cut_share=0.0)

# Election states that take long to be written, while leaders die by power cuts.
SLOW_DISKS = Faults(slow_disk_chance=0.5, strike_leader_chance=0.9, crash_every_us=300_000, power_cut_share=1.0)

# Logs that are cleaned behind every snapshot, and replicas that are away or lose their disks until they need one.
SNAPSHOTS = Faults(
    drop_chance=0.05,
    partition_every_us=1_000_000,
    crash_every_us=1_000_000,
    crash_in_step_chance=0.002,
    slow_disk_chance=0.05,
    snapshot_every_us=50_000,
    clean_share=1.0,
    snapshot_bytes_max=100,
    damaged_slice_chance=0.1,
    wipe_every_us=500_000,
)

# Within how many seeds each is noticed; a few times what it took when it was written.
MUTATIONS = {
    vote_without_log_check: 40,
    vote_twice_in_an_epoch: 40,
    commit_records_of_an_older_epoch: 40,
    answer_before_the_election_is_durable: 80,
    ask_for_votes_before_the_own_vote_is_durable: 80,
    leader_counts_itself_before_its_flush: 10,
    follower_fetches_before_its_flush: 10,
    leader_appends_before_its_election_is_durable: 100,
    a_restarted_leader_may_lead_the_same_epoch_again: 200,
    leader_takes_every_fetch_position: 40,
    half_is_a_majority: 40,
    a_damaged_snapshot_is_installed: 40,
    the_log_behind_an_installed_snapshot_is_kept: 40,
    the_state_is_not_loaded_from_an_installed_snapshot: 40,
    a_part_of_a_snapshot_is_served_as_the_whole: 40,
    the_high_watermark_stays_behind_an_installed_snapshot: 40,
    a_check_of_an_earlier_fetch_installs_a_later_one: 100,
    a_static_voter_loses_its_disk_at_any_time: 40,
}
DIRECTED = {
    commit_records_of_an_older_epoch: STRIKES,
    leader_appends_before_its_election_is_durable: SLOW_DISKS,
    a_damaged_snapshot_is_installed: SNAPSHOTS,
    the_log_behind_an_installed_snapshot_is_kept: SNAPSHOTS,
    the_state_is_not_loaded_from_an_installed_snapshot: SNAPSHOTS,
    a_part_of_a_snapshot_is_served_as_the_whole: SNAPSHOTS,
    the_high_watermark_stays_behind_an_installed_snapshot: SNAPSHOTS,
    a_check_of_an_earlier_fetch_installs_a_later_one: SNAPSHOTS,
    a_static_voter_loses_its_disk_at_any_time: SNAPSHOTS,
}


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_removed_guard_is_noticed(mutate, monkeypatch):
    mutate(monkeypatch)
    for seed in range(1, MUTATIONS[mutate] + 1):
        try:
            play(seed, directed=DIRECTED.get(mutate))
        except SimulationFailedError as error:
            print(f"noticed with {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{MUTATIONS[mutate]} seeds without {mutate.__name__} being noticed")
