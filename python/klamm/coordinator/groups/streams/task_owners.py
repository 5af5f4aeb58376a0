"""Which processes have the tasks of a group, in which role: derived from the members' records, for reconciliation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.streams.tasks import AssignedTasks, Tasks

Task = tuple[str, int]
"""Subtopology and partition."""


class TaskOwners:
    """Tasks count as owned while they are assigned to a member or wait for their revocation."""

    def __init__(self) -> None:
        self._active: dict[Task, str] = {}
        self._passive: dict[Task, tuple[str, ...]] = {}
        """The processes with a standby or warm-up task, once for each member."""

    def active(self, task: Task) -> str | None:
        """The process that has the task active."""
        return self._active.get(task)

    def has(self, process_id: str, task: Task) -> bool:
        """Whether a process has the task in any role."""
        return self._active.get(task) == process_id or process_id in self._passive.get(task, ())

    def update(self, journal: Journal, before: StreamsMember | None, after: StreamsMember | None) -> None:
        """A member changed, came or left.

        Compaction may remove the record in which a member gave a task up. So an active task is taken only from the
        process that the map names, and the later record wins.
        """
        if before is not None:
            for task in _active(before):
                if self._active.get(task) == before.process_id:
                    journal.remove(self._active, task)
            for task in _passive(before):
                self._put_passive(journal, task, _without(self._passive.get(task, ()), before.process_id))
        if after is not None:
            for task in _active(after):
                journal.put(self._active, task, after.process_id)
            for task in _passive(after):
                self._put_passive(journal, task, (*self._passive.get(task, ()), after.process_id))

    def _put_passive(self, journal: Journal, task: Task, processes: tuple[str, ...]) -> None:
        if processes:
            journal.put(self._passive, task, processes)
        else:
            journal.remove(self._passive, task)


def _without(processes: tuple[str, ...], process_id: str) -> tuple[str, ...]:
    at = processes.index(process_id) if process_id in processes else len(processes)
    return processes[:at] + processes[at + 1 :]


def _both(member: StreamsMember) -> tuple[AssignedTasks, AssignedTasks]:
    return member.assigned, member.pending_revocation


def _active(member: StreamsMember) -> Iterator[Task]:
    return ((key, one) for tasks in _both(member) for key, epochs in tasks.active.items() for one in epochs)


def _passive(member: StreamsMember) -> Iterator[Task]:
    def of(tasks: Tasks) -> Iterator[Task]:
        return ((key, one) for key, partitions in tasks.items() for one in partitions)

    return chain(*(of(tasks) for both in _both(member) for tasks in (both.standby, both.warmup)))
