"""The states of members and groups as tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.coordinator.groups.streams.harness import Metadata, StreamsRoom

from klamm.coordinator.groups.streams.group import STATES
from klamm.coordinator.groups.streams.member import NEXT_STATES, MemberState, StreamsMember, state_table
from klamm.coordinator.groups.streams.reconciliation import reconcile
from klamm.coordinator.groups.streams.task_owners import TaskOwners
from klamm.coordinator.groups.streams.tasks import NO_TASKS, AssignedTasks, TaskSets
from klamm.protocol.errors import ErrorCode, KafkaError

HAS = AssignedTasks({"0": {0: 1, 1: 1}}, {}, {})
OWNS = TaskSets({"0": frozenset({0, 1})}, {}, {})
TAKEN = TaskSets({"0": frozenset({9})}, {}, {})


def taken() -> TaskOwners:
    """Task 0_9 is active in another process."""
    from klamm.coordinator.groups.modern.journal import Journal

    owners = TaskOwners()
    owners.update(Journal(), None, StreamsMember("other", assigned=AssignedTasks({"0": {9: 1}}, {}, {})))
    return owners


def test_the_architecture_has_the_table() -> None:
    """After a change, paste the output of `state_table()` into ARCHITECTURE.md."""
    assert state_table() in (Path(__file__).parents[5] / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("before", MemberState)
def test_every_step_is_in_the_table(before: MemberState) -> None:
    """Each state leads to those of the table, by a target that is met, needs a revocation, or is not free."""
    pending = HAS if before is MemberState.UNREVOKED_TASKS else AssignedTasks({}, {}, {})
    assigned = AssignedTasks({"0": {2: 1}}, {}, {}) if before is MemberState.UNREVOKED_TASKS else HAS
    member = StreamsMember("m", member_epoch=3, state=before, assigned=assigned, pending_revocation=pending)
    reports = None if before is MemberState.STABLE else NO_TASKS
    reached = {
        reconcile(member, 5, target, taken(), owned).state
        for target in (NO_TASKS, TAKEN, OWNS)
        for owned in (reports, NO_TASKS)
        if before is not MemberState.UNKNOWN or owned is not None
    }
    assert reached <= NEXT_STATES[before]
    assert {MemberState.STABLE, MemberState.UNRELEASED_TASKS} <= reached


def test_a_member_in_an_unknown_state_first_revokes_everything() -> None:
    member = StreamsMember("m", member_epoch=3, state=MemberState.UNKNOWN, assigned=HAS)
    for owned in (None, OWNS):
        with pytest.raises(KafkaError) as raised:
            reconcile(member, 5, OWNS, TaskOwners(), owned)
        assert raised.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile(member, 5, OWNS, TaskOwners(), NO_TASKS).state is MemberState.STABLE


def test_a_group_goes_through_all_states() -> None:
    room = StreamsRoom(metadata=Metadata())
    seen = []

    def look() -> None:
        seen.append(room.streams_group.state)

    room.beat("m", 0)
    look()
    room.create(input=4)
    epoch = room.beat("m", 2).member_epoch
    look()
    room.beat("n", 0)
    look()
    room.beat("m", epoch)
    room.owning("m", epoch, 0, 1)
    room.beat("n", 4)
    room.group_configs["streams.assignment.interval.ms"] = "15000"
    room.beat("m", 4, rack_id="r")
    look()
    room.beat("m", -1)
    room.beat("n", -1)
    look()
    assert sorted(set(seen)) == sorted(STATES)
