"""Sets of tasks by subtopology: what is assigned to a member, and in which epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from klamm.protocol.messages.streams_messages import TaskIds
from klamm.protocol.value import Value

Tasks = Mapping[str, frozenset[int]]
"""The tasks of each subtopology that has any."""
TasksWithEpochs = Mapping[str, Mapping[int, int]]
"""The assignment epoch of each task."""


class TaskSets(Value):
    """The tasks of a member by role, as a target or as the member reports them (Kafka's `TasksTuple`)."""

    active: Tasks
    standby: Tasks
    warmup: Tasks

    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)


class AssignedTasks(Value):
    """The tasks that a member has or must revoke; active ones with their epochs (Kafka's `TasksTupleWithEpochs`)."""

    active: TasksWithEpochs
    standby: Tasks
    warmup: Tasks

    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)


NO_TASKS: Final = TaskSets({}, {}, {})
NONE_ASSIGNED: Final = AssignedTasks({}, {}, {})


def overlaps(owned: TaskSets, tasks: AssignedTasks) -> bool:
    """Whether a member owns any of the tasks, in the same role."""
    return (
        any(owned.active.get(key, frozenset()) & epochs.keys() for key, epochs in tasks.active.items())
        or any(owned.standby.get(key, frozenset()) & partitions for key, partitions in tasks.standby.items())
        or any(owned.warmup.get(key, frozenset()) & partitions for key, partitions in tasks.warmup.items())
    )


def contains(assigned: Mapping[str, Iterable[int]], owned: tuple[TaskIds, ...] | None) -> bool:
    """Whether the tasks that a member reports are among the assigned ones; never if it reports nothing."""
    if owned is None:
        return False
    return all(ids.subtopology_id in assigned and assigned_to(assigned, ids) for ids in owned)


def assigned_to(assigned: Mapping[str, Iterable[int]], ids: TaskIds) -> bool:
    """Whether all tasks of one subtopology are among the assigned ones."""
    return set(ids.partitions) <= set(assigned[ids.subtopology_id])


def tasks_of(ids: Iterable[TaskIds]) -> dict[str, frozenset[int]]:
    """The tasks in a message or a record; of a repeated subtopology the last entry counts."""
    return {one.subtopology_id: frozenset(one.partitions) for one in ids}


def task_ids(tasks: Mapping[str, Iterable[int]]) -> tuple[TaskIds, ...]:
    """Tasks for a message, sorted."""
    return tuple(TaskIds(key, tuple(sorted(partitions))) for key, partitions in sorted(tasks.items()))


def merged(first: AssignedTasks, second: AssignedTasks) -> AssignedTasks:
    """The tasks of both; where both have an active task, the epoch of `second`."""
    active = {key: dict(epochs) for key, epochs in first.active.items()}
    for key, epochs in second.active.items():
        active.setdefault(key, {}).update(epochs)
    return AssignedTasks(active, _union(first.standby, second.standby), _union(first.warmup, second.warmup))


def _union(first: Tasks, second: Tasks) -> dict[str, frozenset[int]]:
    keys = (*first, *(key for key in second if key not in first))
    return {key: first.get(key, frozenset()) | second.get(key, frozenset()) for key in keys}
