"""What coordinators of streams groups check (KIP-1071)."""

from klamm.coordinator.groups import commits
from klamm.coordinator.groups.streams import heartbeats, reconciliation
from klamm.coordinator.groups.streams.streams_groups import StreamsGroups
from klamm.coordinator.groups.streams.task_owners import TaskOwners
from klamm.protocol.errors import ErrorCode


def a_member_gets_a_task_that_another_has(patch):
    """An active task is given to a member when no process has it."""
    patch.setattr(TaskOwners, "active", lambda self, task: None)


def a_revocation_of_tasks_is_not_awaited(patch):
    """A task is free when its member has said so."""
    patch.setattr(reconciliation, "overlaps", lambda owned, tasks: False)


def a_silent_streams_member_stays(patch):
    """A member is removed after its session timeout."""
    patch.setattr(StreamsGroups, "_renew_session", lambda self, now_ms, group_id, member_id: None)


def a_slow_streams_member_keeps_its_tasks(patch):
    """A member that gives up nothing is removed after its rebalance timeout."""
    patch.setattr(StreamsGroups, "_arm_rebalance", lambda self, now_ms, group_id, member: None)


def a_new_coordinator_awaits_no_streams_member(patch):
    """A coordinator that loads a group begins the sessions of its members."""
    patch.setattr(StreamsGroups, "on_loaded", lambda self, now_ms: None)


def a_removed_streams_member_commits(patch):
    """Only a member commits the offsets of its tasks."""
    patch.setattr(commits.streams_checks, "check_commit", lambda group, request: ErrorCode.NONE)


def a_lost_assignment_is_not_sent_again(patch):
    """A member that reports less than it has been assigned is sent its tasks again."""
    patch.setattr(heartbeats, "_lacks_tasks", lambda owned, assigned: False)
