"""The target of a streams group, by the sticky task assignor (Kafka's `streams.TargetAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.streams.settings import STANDBY_REPLICAS
from klamm.coordinator.groups.streams.tasks import NO_TASKS, TaskSets
from klamm.coordinator.groups.streams.topology import ConfiguredTopology

TaskMember = tuple[str, str, Mapping[str, Iterable[int]], Mapping[str, Iterable[int]]]
"""Member id, process id, and the present target: active and standby tasks by subtopology."""
TaskLists = tuple[dict[str, list[int]], dict[str, list[int]]]


class AssignTasks(Protocol):
    """The assignor: `klamm._engine.groups.assign_tasks`."""

    def __call__(
        self, members: Sequence[TaskMember], subtopologies: Sequence[tuple[str, int, bool]], *, standby_replicas: int
    ) -> list[TaskLists]:
        """The active and standby tasks of each member. Raises ValueError if there are tasks but no members."""
        ...


def compute(
    assign: AssignTasks,
    members: Iterable[StreamsMember],
    targets: Mapping[str, TaskSets],
    topology: ConfiguredTopology,
    configs: Mapping[str, str],
) -> dict[str, TaskSets]:
    """The target of each member; no tasks unless all topics exist. Raises ValueError if the assignor fails."""
    if not topology.is_ready:
        return {member.member_id: NO_TASKS for member in members}
    specs: list[TaskMember] = []
    for member in members:
        target = targets.get(member.member_id, NO_TASKS)
        specs.append((member.member_id, member.process_id, target.active, target.standby))
    subtopologies = [(one.subtopology_id, one.task_count, one.is_stateful) for one in topology.subtopologies or ()]
    assigned = assign(specs, subtopologies, standby_replicas=int(configs.get(STANDBY_REPLICAS, 0)))
    return {
        spec[0]: TaskSets(_tasks(active), _tasks(standby), {})
        for spec, (active, standby) in zip(specs, assigned, strict=True)
    }


def _tasks(lists: Mapping[str, Iterable[int]]) -> dict[str, frozenset[int]]:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in lists.items()}
