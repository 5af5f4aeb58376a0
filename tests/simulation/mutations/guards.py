"""How the removal of each guard is detected: by a scenario that leads to it directly, and for some also by seeds.

`python -m tests.simulation.mutations` prints the table.
"""

from collections.abc import Callable
from types import ModuleType

import pytest
from tests.simulation.mutations import (
    connections,
    driver,
    durability,
    elections,
    encodings,
    ends,
    replication,
    snapshots,
    voters,
)

from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.run import Outcome, play, play_dynamic

Play = Callable[[int], Outcome]
Mutation = Callable[[pytest.MonkeyPatch], None]
MODULES: tuple[ModuleType, ...] = (
    elections,
    ends,
    durability,
    replication,
    snapshots,
    voters,
    driver,
    connections,
    encodings,
)

# With these, an invariant is violated in the scenario, or a replica stops: committed records would be lost.
BREAKS: dict[Mutation, str] = {
    elections.vote_without_log_check: "vote_for_the_longer_log",
    elections.vote_twice_in_an_epoch: "a_vote_is_durable",
    elections.half_is_a_majority: "a_vote_is_durable",
    elections.late_votes_count: "late_votes",
    elections.a_redirection_is_followed_at_once_though_it_tells_nothing_new: "redirections",
    elections.a_log_that_lost_records_votes: "lost_records",
    elections.a_log_that_lost_records_campaigns: "lost_records",
    elections.a_new_disk_is_as_good_as_the_old_one: "replaced_disk",
    durability.answer_before_the_election_is_durable: "a_vote_is_durable",
    durability.ask_for_votes_before_the_own_vote_is_durable: "a_vote_is_durable",
    durability.a_finished_write_counts_for_a_newer_ticket: "a_newer_ticket",
    durability.a_vote_is_not_written: "a_vote_is_durable",
    durability.an_epoch_is_not_written: "a_vote_is_durable",
    durability.leader_counts_itself_before_its_flush: "counted_when_durable",
    durability.follower_fetches_before_its_flush: "counted_when_durable",
    durability.leader_appends_before_its_election_is_durable: "a_leader_is_durable",
    durability.a_restarted_leader_may_lead_the_same_epoch_again: "a_leader_is_durable",
    replication.commit_records_of_an_older_epoch: "figure_8",
    replication.commit_all_below_the_own_first_record: "figure_8",
    replication.no_record_begins_an_epoch: "figure_8",
    replication.leader_takes_every_fetch_position: "divergence",
    replication.a_fetch_below_the_log_is_answered_from_it: "snapshot_fetch",
    replication.a_follower_cuts_where_its_leader_says: "divergence",
    replication.a_log_is_cut_below_the_high_watermark: "wrong_answers",
    replication.a_follower_takes_its_leaders_high_watermark_as_it_is: "figure_8",
    replication.observers_count: "observers_do_not_count",
    replication.removed_voters_count: "observers_do_not_count",
    replication.a_diverging_fetch_acknowledges: "divergence",
    replication.a_new_disk_acknowledges_for_the_old_one: "observers_do_not_count",
    replication.a_resigned_leader_answers_fetches: "removed_before_commit",
    replication.a_high_watermark_is_not_told: "observers_do_not_count",
    replication.leadership_is_announced_before_a_commit_of_the_own_epoch: "figure_8",
    snapshots.a_damaged_snapshot_is_installed: "snapshot_fetch_interrupted",
    snapshots.the_log_behind_an_installed_snapshot_is_kept: "snapshot_fetch",
    snapshots.the_state_is_not_loaded_from_an_installed_snapshot: "snapshot_fetch",
    snapshots.a_part_of_a_snapshot_is_served_as_the_whole: "wrong_slices",
    snapshots.the_high_watermark_stays_behind_an_installed_snapshot: "snapshot_fetch",
    snapshots.a_check_of_an_earlier_fetch_installs_a_later_one: "snapshot_fetch_interrupted",
    snapshots.a_static_voter_loses_its_disk_at_any_time: "lost_static_disk",
    voters.two_changes_at_once: "one_change_at_a_time",
    voters.a_change_before_a_commit_of_the_own_epoch: "change_after_own_epoch",
    voters.a_change_is_acknowledged_when_appended: "one_change_at_a_time",
    voters.voters_that_stand_elsewhere_complete_a_change: "cleaned_while_adding",
    voters.a_change_acts_when_committed: "undone_change",
    voters.truncation_undoes_no_change: "undone_change",
    voters.a_removed_leader_counts_itself: "observers_do_not_count",
}

# With these, the quorum deviates from the protocol, but loses nothing.
DIFFERS: dict[Mutation, str] = {
    elections.vote_where_the_leader_is_known: "vote_granting",
    elections.a_vote_stays_given_whatever_is_left_of_the_log: "vote_granting",
    elections.an_observer_believes_a_silent_leader: "needed_observer",
    elections.campaign_without_a_pre_vote: "pre_vote",
    elections.a_pre_vote_is_granted_while_the_leader_is_heard: "pre_vote",
    elections.a_leader_grants_a_pre_vote: "pre_vote",
    elections.a_pre_vote_takes_the_vote: "vote_granting",
    elections.a_removed_voter_may_not_campaign: "removed_before_commit",
    elections.a_second_leader_of_an_epoch_is_believed: "wrong_answers",
    elections.a_leader_is_sought_where_others_say: "leader_says_where",
    elections.a_leader_is_sought_for_ever_where_it_was: "leader_says_where",
    ends.a_leader_that_stops_does_not_wait_for_its_successor: "hand_over",
    ends.a_leader_that_stops_sends_no_end_of_its_epoch: "hand_over",
    ends.all_successors_campaign_at_once: "hand_over",
    ends.a_voter_that_refuses_is_waited_for: "hand_over",
    ends.a_leader_that_refuses_is_waited_for: "crash_detection",
    ends.an_alarm_is_believed_though_the_leader_speaks: "crash_detection",
    durability.ask_for_votes_before_the_own_log_is_durable: "a_candidates_log_is_durable",
    replication.a_leader_without_a_majority_leads_on: "check_quorum",
    replication.any_fetch_keeps_a_leader: "check_quorum",
    replication.a_removed_leader_keeps_itself: "check_quorum",
    replication.an_answer_that_waited_leaves_as_it_was: "old_answer",
    snapshots.a_slice_of_another_snapshot_is_kept: "wrong_slices",
    snapshots.a_slice_of_another_place_is_kept: "wrong_slices",
    snapshots.a_slice_beyond_the_end_is_kept: "wrong_slices",
    snapshots.an_answer_that_brings_nothing_is_followed_by_a_fetch_at_once: "snapshot_fetch_interrupted",
    snapshots.an_older_snapshot_is_installed: "wrong_answers",
    snapshots.a_snapshot_takes_back_what_is_committed: "wrong_answers",
    snapshots.who_fetches_a_snapshot_is_not_there: "check_quorum",
    voters.a_removed_leader_leads_on: "remove_leader",
    voters.a_new_voter_need_not_have_caught_up: "add_refused",
    voters.a_new_voter_may_know_no_kraft_version: "add_refused",
    voters.a_voter_is_added_twice: "add_refused",
    voters.the_last_voter_is_removed: "add_refused",
    voters.a_removal_may_lose_the_majority: "keep_a_majority",
    voters.an_upgrade_asks_nobody: "kraft_version",
    voters.static_voters_are_changed: "add_refused",
    voters.an_update_adds_a_directory: "replaced_disk",
}

# Logs that are cleaned after every snapshot, and replicas that are down or lose their disks until they need one.
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

# With these at least four of ten seeds fail, some with random faults (None).
SEEDS = range(1, 41)
# The first seed that notices a mutation, after many that do not: it is played before them, to save their time.
NOTICED_BY: dict[Mutation, int] = {
    connections.a_lost_connection_is_used_on: 9,
    connections.a_moved_peer_is_asked_at_its_old_address: 19,
    connections.a_peer_that_refused_is_never_connected_again: 3,
    driver.answers_go_on_without_the_leadership: 19,
    driver.quorum_state_is_believed_as_it_is_read: 17,
    driver.the_core_is_not_told_what_a_stream_fetched: 11,
    replication.leader_takes_every_fetch_position: 3,
}
BY_DICE: dict[Mutation, Faults | None] = {
    elections.half_is_a_majority: None,
    durability.leader_counts_itself_before_its_flush: None,
    durability.follower_fetches_before_its_flush: None,
    durability.a_finished_write_counts_for_a_newer_ticket: None,
    replication.leadership_is_announced_before_a_commit_of_the_own_epoch: None,
    replication.leader_takes_every_fetch_position: None,
    replication.a_diverging_fetch_acknowledges: None,
    replication.no_record_begins_an_epoch: None,
    snapshots.the_log_behind_an_installed_snapshot_is_kept: SNAPSHOTS,
    snapshots.the_state_is_not_loaded_from_an_installed_snapshot: SNAPSHOTS,
    snapshots.the_high_watermark_stays_behind_an_installed_snapshot: SNAPSHOTS,
    snapshots.a_static_voter_loses_its_disk_at_any_time: SNAPSHOTS,
}

# The same with changing voters.
BY_DICE_DYNAMIC: dict[Mutation, Faults | None] = {
    voters.two_changes_at_once: None,
    voters.a_change_is_acknowledged_when_appended: None,
    voters.voters_that_stand_elsewhere_complete_a_change: None,
    replication.leadership_is_announced_before_a_commit_of_the_own_epoch: None,
}

# Processes that end while they write, and restart immediately.
WRITES = Faults(crash_in_write_chance=0.05, power_cut_share=0.5, away_us_max=300_000, partition_every_us=1_000_000)

# Mutations of the driver itself, and of the bytes that it writes and sends.
DRIVER: dict[Mutation, Faults | None] = {
    driver.quorum_state_is_renamed_without_fsync: None,
    driver.the_directory_of_quorum_state_is_not_synced: None,
    driver.quorum_state_is_overwritten: WRITES,
    driver.quorum_state_is_believed_as_it_is_read: WRITES,
    driver.a_finished_write_counts_for_a_newer_ticket: None,
    driver.nothing_waits_for_quorum_state: None,
    driver.a_proposal_is_acknowledged_when_it_is_flushed: None,
    driver.a_proposal_is_acknowledged_one_commit_early: None,
    driver.leadership_is_delivered_before_what_was_committed: None,
    driver.a_flush_is_awaited_by_no_one: None,
    driver.a_stream_acknowledges_before_its_flush: None,
    driver.the_core_is_not_told_what_a_stream_fetched: None,
    encodings.a_refused_vote_is_encoded_as_granted: None,
    encodings.a_candidates_log_end_is_not_encoded: None,
    encodings.quorum_state_does_not_name_the_vote: None,
}

# Mutations of the leader's responses without its core: detected only by seeds that use them, with static and with other
# voters.
ANSWERS: dict[Mutation, Play] = {
    driver.answers_count_the_leader_before_its_flush: play,
    driver.answers_go_on_without_the_leadership: play_dynamic,
    driver.a_new_disk_is_answered_as_the_old_one: play_dynamic,
}

# Mutations of connections: detected only by seeds whose requests use connections.
CONNECTIONS: dict[Mutation, Play] = {
    connections.a_moved_peer_is_asked_at_its_old_address: play_dynamic,
    connections.a_peer_that_refused_is_never_connected_again: play_dynamic,
    connections.a_lost_connection_is_used_on: play,
}
