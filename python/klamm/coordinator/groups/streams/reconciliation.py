"""Moves a member from its tasks towards its target (Kafka's `streams.CurrentAssignmentBuilder`).

A member keeps what it has and should have. It revokes what it should not have, before it reaches the epoch of the
target. It gets the rest when that is free: an active task when no process has it active and its own process has it in
no role; a standby when its own process has it in no role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from klamm.coordinator.groups.streams.member import NEXT_STATES, MemberState, StreamsMember
from klamm.coordinator.groups.streams.task_owners import TaskOwners
from klamm.coordinator.groups.streams.tasks import NONE_ASSIGNED, AssignedTasks, Tasks, TaskSets, merged, overlaps
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.value import Value

IsFree = Callable[[str, int], bool]


def reconcile(
    member: StreamsMember, target_epoch: int, target: TaskSets, owners: TaskOwners, owned: TaskSets | None
) -> StreamsMember:
    """The member's next step. `owned` is what it reports to have; None if it reports nothing.

    Raises FENCED_MEMBER_EPOCH for a member in a state that only newer versions know, until it owns nothing.
    """
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch:
            return member
        case MemberState.STABLE | MemberState.UNRELEASED_TASKS:
            epoch = member.member_epoch
        case MemberState.UNREVOKED_TASKS:
            if owned is None or overlaps(owned, member.pending_revocation):
                return member
            epoch = member.member_epoch + 1
        case MemberState.UNKNOWN:
            if owned is None or not owned.is_empty():
                detail = (
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
                )
                raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, detail)
            epoch = target_epoch
    step = _next_step(member, target_epoch, target, owners)
    if not step.to_revoke.is_empty() and (owned is None or overlaps(owned, step.to_revoke)):
        return _moved(member, MemberState.UNREVOKED_TASKS, epoch, step.kept, step.to_revoke)
    state = MemberState.UNRELEASED_TASKS if step.has_unreleased else MemberState.STABLE
    return _moved(member, state, target_epoch, merged(step.kept, step.added), NONE_ASSIGNED)


def _moved(
    member: StreamsMember, state: MemberState, epoch: int, assigned: AssignedTasks, pending: AssignedTasks
) -> StreamsMember:
    assert state in NEXT_STATES[member.state], f"{member.member_id}: {member.state} -> {state}"
    return replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending,
    )


class _Step(Value):
    kept: AssignedTasks
    to_revoke: AssignedTasks
    added: AssignedTasks
    has_unreleased: bool


def _next_step(member: StreamsMember, target_epoch: int, target: TaskSets, owners: TaskOwners) -> _Step:
    process = member.process_id

    def is_free(subtopology_id: str, partition: int) -> bool:
        """For a standby: the process has the task in no role."""
        return not owners.has(process, (subtopology_id, partition))

    def is_free_active(subtopology_id: str, partition: int) -> bool:
        return owners.active((subtopology_id, partition)) is None and is_free(subtopology_id, partition)

    has = member.assigned
    active = _difference(has.active, target.active, is_free_active)
    standby = _difference(has.standby, target.standby, is_free)
    warmup = _difference(has.warmup, target.warmup, is_free)

    def epochs(tasks: Tasks) -> dict[str, dict[int, int]]:
        return {key: {one: has.active[key][one] for one in partitions} for key, partitions in tasks.items()}

    new = {key: dict.fromkeys(partitions, target_epoch) for key, partitions in active.added.items()}
    return _Step(
        AssignedTasks(epochs(active.kept), standby.kept, warmup.kept),
        AssignedTasks(epochs(active.to_revoke), standby.to_revoke, warmup.to_revoke),
        AssignedTasks(new, standby.added, warmup.added),
        active.has_unreleased or standby.has_unreleased or warmup.has_unreleased,
    )


class _Difference(Value):
    kept: Tasks
    to_revoke: Tasks
    added: Tasks
    has_unreleased: bool


def _difference(current: Mapping[str, Iterable[int]], target: Tasks, is_free: IsFree) -> _Difference:
    """The tasks in one role that are kept, revoked and added."""
    kept: dict[str, frozenset[int]] = {}
    to_revoke: dict[str, frozenset[int]] = {}
    added: dict[str, frozenset[int]] = {}
    has_unreleased = False
    for key in (*target, *(key for key in current if key not in target)):
        before, wanted = frozenset(current.get(key, ())), target.get(key, frozenset())
        missing = wanted - before
        free = frozenset(one for one in missing if is_free(key, one))
        has_unreleased = has_unreleased or len(free) < len(missing)
        for result, partitions in ((kept, before & wanted), (to_revoke, before - wanted), (added, free)):
            if partitions:
                result[key] = partitions
    return _Difference(kept, to_revoke, added, has_unreleased)
