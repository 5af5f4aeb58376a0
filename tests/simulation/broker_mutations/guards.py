"""How the removal of each guard is detected: by a scenario of `tests/scenarios/replication`, and by seeds."""

from collections.abc import Callable
from typing import Any

from tests.simulation.broker_mutations import cleaning, control, coordinators, groups, migrations, shares, streams

from klamm.testing.simulator.brokers.faults import BrokerFaults

Mutation = Callable[[Any], None] | str
"""A function of one of the modules that `broker_mutations` lists, or the name of a broker's guard."""

SEEDS = range(1, 201)
NOTICED_BY: dict[Mutation, int] = {
    control.an_inactive_broker_joins_an_isr: 13,
    coordinators.every_partition_counts_as_added: 20,
    groups.a_slow_member_keeps_its_partitions: 14,
    groups.an_instance_id_is_taken_from_a_live_member: 8,
    migrations.a_silent_member_of_a_classic_group_stays: 27,
    shares.a_late_write_moves_the_start_offset_back: 6,
    shares.a_repeated_initialization_begins_a_state_again: 47,
    shares.a_share_state_keeps_what_was_not_appended: 19,
    "append-with-min-isr": 14,
    "clean-committed": 10,
    "commit-with-min-isr": 61,
    "gaps-are-losses": 28,
}
"""The first seed that notices a mutation, after many that do not: it is played before them, to save their time."""

SCENARIOS: dict[Mutation, str] = {
    control.a_heartbeat_of_an_earlier_life_counts: "late_heartbeat",
    control.a_broker_that_stops_keeps_its_partitions: "resigned_leader",
    control.a_member_of_an_earlier_life_joins_an_isr: "member_of_an_earlier_life",
    control.a_proposal_of_an_earlier_life_counts: "proposal_of_an_earlier_life",
    control.a_silent_broker_is_never_fenced: "failover",
    control.an_inactive_broker_joins_an_isr: "inactive_member",
    control.an_isr_is_changed_by_epochs_of_before: "old_proposals",
    control.a_broker_is_unfenced_before_it_caught_up: "unfenced_when_caught_up",
    control.a_broker_stops_before_others_know_the_new_leaders: "shutdown_waits_for_others",
    control.a_fenced_broker_stays_in_its_isrs: "failover",
    control.a_live_broker_is_replaced: "rolled_segments",
    control.sessions_end_while_the_controller_is_paused: "paused_controller",
    control.every_shutdown_counts_as_a_clean_one: "elr_unclean_shutdown",
    control.leaders_are_elected_from_all_replicas: "unclean_election",
    "append-with-min-isr": "min_isr",
    "begin-at-leader-start": "below_the_log_start",
    "begin-inside-batch": "below_the_log_start",
    "begin-outside-isr": "unclean_leader_that_begins_earlier",
    "commit-with-min-isr": "min_isr",
    "consumer-limit": "stale_leader",
    "count-maximal-isr": "maximal_isr",
    "delete-committed": "delete_records",
    "delete-everywhere": "delete_records",
    "divergence": "truncation",
    "fail-acks": "resigned_leader",
    "fetch-epoch": "unknown_epoch",
    "fetch-in-role": "append_before_a_new_role",
    "flush": "acknowledged_when_flushed",
    "follow-epoch": "answer_of_an_earlier_epoch",
    "follower-epoch": "old_fetch",
    "follower-flush": "acknowledged_when_flushed",
    "forget-progress": "progress_of_an_earlier_epoch",
    "gaps-are-losses": "damage_before_a_power_cut",
    "high-watermark-in-log": "rolled_segments",
    "join-eligible": "old_proposals",
    "join-from-epoch-start": "join_from_epoch_start",
    "join-from-high-watermark": "join_from_high_watermark",
    "join-from-log-start": "join_from_log_start",
    "keep-named": "fetch_sessions",
    "keep-refused": "refused_proposal",
    "name-forgotten": "fetch_sessions",
    "new-session": "fetch_sessions",
    "newer-assignment": "old_image",
    "offset-not-available": "end_offset",
    "proven-ends": "damage_before_a_power_cut",
    "repeat-proposals": "repeated_proposal",
    "session-epoch": "fetch_sessions",
    "session-forget": "fetch_sessions",
    "shrink-isr": "repeated_proposal",
    "truncate-to-own-end": "truncation_to_own_end",
    "withdraw-ineligible": "ineligible_member",
}

RANDOM_ONLY: set[Mutation] = {
    control.heartbeats_are_not_awaited_after_a_pause,
    cleaning.tombstones_are_removed_at_once,
    "clean-committed",
    "sync-cleaned",
}
"""Rules of replication that no scenario has: only random runs have a cleaner, and pauses within pauses."""
OF_COORDINATORS: set[Mutation] = {
    "aborted-transactions",
    "append-in-epoch",
    "append-in-series",
    "delivery-limit",
    "expire-locks",
    "hold-locks",
    "marker-epoch",
    "share-limit",
    "stable-offset",
    "verified-transactions",
}
"""Rules of the engine for transactions, coordinators and share groups."""

_CUTS = BrokerFaults(partition_every_us=700_000, repeat_chance=0.5, repeat_us_max=5_000_000, elect_every_us=700_000)
_STOPS = BrokerFaults(delay_us_max=20_000, shutdown_every_us=300_000, crash_every_us=600_000, away_us_max=20_000)
_CRASHES = BrokerFaults(
    delay_us_max=20_000,
    slow_message_chance=0.1,
    slow_flush_chance=0.1,
    crash_every_us=500_000,
    away_us_max=300_000,
    elect_every_us=500_000,
)
_TRANSACTIONS = BrokerFaults(
    drop_chance=0.05,
    delay_us_max=100_000,
    slow_message_chance=0.1,
    repeat_fetch_chance=0.3,
    transact_every_us=20_000,
)
_COORDINATORS = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    slow_message_chance=0.02,
    crash_every_us=2_000_000,
    away_us_max=100_000,
    elect_every_us=500_000,
    transact_every_us=10_000,
    effect_crash_chance=0.01,
)
_MOVES = BrokerFaults(
    drop_chance=0.02,
    delay_us_max=5_000,
    crash_every_us=800_000,
    away_us_max=2_000_000,
    elect_every_us=150_000,
    transact_every_us=10_000,
)
_LATE = BrokerFaults(
    drop_chance=0.1,
    delay_us_max=3_000,
    slow_message_chance=0.15,
    repeat_fetch_chance=0.8,
    transact_every_us=6_000,
)
_REPEATS = BrokerFaults(delay_us_max=2_000, repeat_fetch_chance=0.9, repeat_us_max=100_000, transact_every_us=5_000)
_FEW_REPLICAS = BrokerFaults(
    delay_us_max=5_000,
    crash_every_us=700_000,
    power_cut_share=0.0,
    away_us_max=3_000_000,
    transact_every_us=10_000,
    commit_offsets_chance=0.5,
)
_OFFSETS = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    slow_message_chance=0.02,
    crash_every_us=1_500_000,
    away_us_max=100_000,
    elect_every_us=300_000,
    transact_every_us=10_000,
    commit_offsets_chance=0.5,
    effect_crash_chance=0.01,
)
_MEMBERS = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    slow_message_chance=0.02,
    crash_every_us=1_500_000,
    away_us_max=100_000,
    elect_every_us=700_000,
    member_every_us=150_000,
)
_INSTANCES = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    slow_message_chance=0.02,
    crash_every_us=3_000_000,
    away_us_max=100_000,
    elect_every_us=1_500_000,
    member_every_us=150_000,
    instance_share=1.0,
)
_STATIC_LEAVES = BrokerFaults(delay_us_max=5_000, member_every_us=300_000, instance_share=1.0)
_PATTERNS = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    crash_every_us=2_000_000,
    away_us_max=100_000,
    member_every_us=400_000,
    pattern_share=0.7,
)
_MEMBERS_AND_FEW_REPLICAS = BrokerFaults(
    delay_us_max=5_000,
    crash_every_us=700_000,
    power_cut_share=0.0,
    away_us_max=3_000_000,
    member_every_us=100_000,
)
_MIGRATIONS = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    slow_message_chance=0.02,
    crash_every_us=2_000_000,
    away_us_max=100_000,
    elect_every_us=1_000_000,
    member_every_us=150_000,
    classic_share=0.5,
)
_CLASSIC_INSTANCES = BrokerFaults(
    delay_us_max=5_000,
    member_every_us=100_000,
    instance_share=1.0,
    classic_share=1.0,
)
_CLASSIC_MEMBERS = BrokerFaults(
    delay_us_max=5_000,
    crash_every_us=1_000_000,
    away_us_max=100_000,
    elect_every_us=200_000,
    effect_crash_chance=0.02,
    member_every_us=150_000,
    classic_share=1.0,
)
_STREAMS = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    slow_message_chance=0.02,
    crash_every_us=1_500_000,
    away_us_max=100_000,
    elect_every_us=700_000,
    member_every_us=50_000,
    streams_groups=1,
)
_LOST_TASKS = BrokerFaults(drop_chance=0.25, delay_us_max=5_000, member_every_us=900_000, streams_groups=1)
_TOPICS = BrokerFaults(delay_us_max=5_000, recreate_every_us=2_000_000, member_every_us=500_000)
_SHARES = BrokerFaults(
    drop_chance=0.01,
    delay_us_max=5_000,
    slow_message_chance=0.05,
    slow_flush_chance=0.1,
    crash_every_us=1_000_000,
    away_us_max=100_000,
    elect_every_us=300_000,
    share_every_us=300_000,
    effect_crash_chance=0.005,
)
_SHARES_AND_STALLS = BrokerFaults(
    delay_us_max=5_000,
    stall_every_us=300_000,
    reassign_every_us=300_000,
    elect_every_us=500_000,
    share_every_us=500_000,
)
_SHARES_AND_FEW_REPLICAS = BrokerFaults(
    delay_us_max=5_000,
    crash_every_us=700_000,
    power_cut_share=0.0,
    away_us_max=3_000_000,
    share_every_us=300_000,
)
_SHARES_AND_CUTS = BrokerFaults(
    delay_us_max=5_000,
    partition_every_us=700_000,
    elect_every_us=500_000,
    share_every_us=300_000,
)
_LATE_SHARE_STATES = BrokerFaults(
    drop_chance=0.1,
    delay_us_max=5_000,
    slow_message_chance=0.1,
    repeat_fetch_chance=0.5,
    repeat_us_max=3_000_000,
    elect_every_us=700_000,
    share_every_us=150_000,
)
_CLEANING = BrokerFaults(
    drop_chance=0.05,
    delay_us_max=20_000,
    slow_message_chance=0.05,
    crash_every_us=1_000_000,
    away_us_max=300_000,
    elect_every_us=500_000,
    clean_every_us=50_000,
    clean_crash_share=0.3,
)

_HOLES = BrokerFaults(
    delay_us_max=20_000,
    slow_flush_chance=0.5,
    crash_every_us=300_000,
    power_cut_share=1.0,
    away_us_max=1_000_000,
    clean_every_us=2_000_000,
)

_PAUSES = BrokerFaults(
    delay_us_max=5_000,
    pause_every_us=300_000,
    pause_us_max=1_500_000,
    pause_controller_every_us=1_500_000,
    pause_controller_us_max=1_000_000,
)
_LOST_FETCHES = BrokerFaults(
    drop_chance=0.05,
    delay_us_max=5_000,
    slow_flush_chance=0.2,
    slow_flush_us_max=100_000,
    crash_every_us=1_500_000,
    away_us_max=300_000,
    elect_every_us=200_000,
    reassign_every_us=300_000,
    role_delay_us_max=100_000,
)

FAULTS: dict[Mutation, BrokerFaults] = {
    control.sessions_end_while_the_controller_is_paused: _PAUSES,
    control.heartbeats_are_not_awaited_after_a_pause: _PAUSES,
    "session-epoch": _REPEATS,
    "session-forget": _LOST_FETCHES,
    "new-session": _LOST_FETCHES,
    "name-forgotten": _LOST_FETCHES,
    "keep-named": _LOST_FETCHES,
    control.an_isr_is_changed_by_epochs_of_before: _CUTS,
    control.an_inactive_broker_joins_an_isr: _STOPS,
    control.a_heartbeat_of_an_earlier_life_counts: _CRASHES,
    control.leaders_are_elected_from_all_replicas: _CUTS,
    coordinators.a_fenced_producer_goes_on: _COORDINATORS,
    coordinators.a_lost_marker_is_not_sent_again: _COORDINATORS,
    coordinators.a_new_coordinator_writes_no_markers: _COORDINATORS,
    coordinators.a_refused_marker_counts_as_written: _MOVES,
    coordinators.a_response_does_not_wait_for_its_record: _COORDINATORS,
    coordinators.a_silent_producer_keeps_its_transaction: _COORDINATORS,
    coordinators.a_transition_begins_during_another: _COORDINATORS,
    coordinators.every_partition_counts_as_added: _LATE,
    coordinators.markers_do_not_wait_for_the_decision: _COORDINATORS,
    cleaning.tombstones_are_removed_at_once: _CLEANING,
    "clean-committed": _CLEANING,
    "sync-cleaned": _CLEANING,
    "gaps-are-losses": _HOLES,
    groups.a_failed_transition_stays_pending: _FEW_REPLICAS,
    groups.a_group_keeps_its_topics: _TOPICS,
    groups.a_group_keeps_what_was_not_appended: _MEMBERS_AND_FEW_REPLICAS,
    groups.a_loaded_marker_ends_nothing: _OFFSETS,
    groups.a_marker_is_answered_before_it_is_committed: _OFFSETS,
    groups.a_member_gets_what_another_uses: _MEMBERS,
    groups.a_new_coordinator_awaits_no_member: _MEMBERS,
    groups.a_regular_expression_finds_nothing: _PATTERNS,
    groups.a_removed_member_commits: _MEMBERS,
    groups.a_replaced_process_goes_on: _INSTANCES,
    groups.a_revocation_is_not_awaited: _MEMBERS,
    groups.a_silent_member_stays: _MEMBERS,
    groups.a_slow_member_keeps_its_partitions: _MEMBERS,
    groups.a_static_member_that_left_stays: _STATIC_LEAVES,
    groups.an_abort_commits_offsets: _OFFSETS,
    groups.an_elected_coordinator_loads_nothing: _OFFSETS,
    groups.an_instance_id_is_taken_from_a_live_member: _INSTANCES,
    groups.pending_offsets_are_visible: _OFFSETS,
    migrations.a_classic_member_is_not_asked_to_join: _MIGRATIONS,
    migrations.a_downgraded_group_counts_from_the_start: _MIGRATIONS,
    migrations.a_group_of_classic_members_stays_a_consumer_group: _MIGRATIONS,
    migrations.a_member_of_an_earlier_generation_commits: _CLASSIC_INSTANCES,
    migrations.a_silent_classic_member_stays: _MIGRATIONS,
    migrations.a_silent_member_of_a_classic_group_stays: _CLASSIC_MEMBERS,
    migrations.a_slow_classic_member_keeps_its_partitions: _MIGRATIONS,
    migrations.an_assignment_is_given_before_it_is_committed: _CLASSIC_MEMBERS,
    migrations.an_upgraded_group_forgets_what_members_use: _MIGRATIONS,
    shares.a_late_write_moves_the_start_offset_back: _LATE_SHARE_STATES,
    shares.a_repeated_initialization_begins_a_state_again: _LATE_SHARE_STATES,
    shares.a_replaced_leader_writes_its_state: _SHARES_AND_STALLS,
    shares.a_share_state_keeps_what_was_not_appended: _SHARES_AND_FEW_REPLICAS,
    shares.an_acknowledgement_does_not_wait_for_its_record: _SHARES,
    streams.a_lost_assignment_is_not_sent_again: _LOST_TASKS,
    streams.a_member_gets_a_task_that_another_has: _STREAMS,
    streams.a_new_coordinator_awaits_no_streams_member: _STREAMS,
    streams.a_removed_streams_member_commits: _STREAMS,
    streams.a_revocation_of_tasks_is_not_awaited: _STREAMS,
    streams.a_silent_streams_member_stays: _STREAMS,
    streams.a_slow_streams_member_keeps_its_tasks: _STREAMS,
    "delivery-limit": _SHARES,
    "expire-locks": _SHARES,
    "hold-locks": _SHARES,
    "share-limit": _SHARES_AND_CUTS,
    "append-with-min-isr": _CUTS,
    "commit-with-min-isr": _CUTS,
    "consumer-limit": _CUTS,
    "count-maximal-isr": _CUTS,
    "divergence": _CUTS,
    "fail-acks": _CUTS,
    "flush": _CRASHES,
    "follower-flush": _CRASHES,
    "join-from-epoch-start": _CRASHES,
    "aborted-transactions": _TRANSACTIONS,
    "marker-epoch": _REPEATS,
    "stable-offset": _TRANSACTIONS,
}

QUORUM_FAULTS: dict[Mutation, BrokerFaults] = {
    control.sessions_end_while_the_controller_is_paused: _PAUSES,
}
"""Detected with three controllers, too."""

DIRECTED: set[Mutation] = {
    coordinators.a_failed_append_ends_no_series,
    coordinators.a_marker_belongs_to_the_following_series,
    coordinators.a_marker_overtakes_one_of_an_earlier_completion,
    coordinators.later_writes_stay_after_a_failed_one,
    coordinators.the_newest_write_is_appended_first,
    "append-in-epoch",
    "append-in-series",
    "verified-transactions",
    shares.an_initialization_of_an_earlier_epoch_counts,
    shares.a_write_of_an_earlier_state_epoch_counts,
}
"""Detected by a test of their own."""
