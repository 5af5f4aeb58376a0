"""The active controller's periodic tasks (`QuorumController`): a table of tasks, and when each is due."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from klamm.protocol.value import Value


class PeriodicTask(enum.Enum):
    """The tasks; names are Kafka's."""

    WRITE_NO_OP_RECORD = "writeNoOpRecord"
    MAYBE_FENCE_STALE_BROKER = "maybeFenceStaleBroker"
    ELECT_PREFERRED = "electPreferred"
    ELECT_UNCLEAN = "electUnclean"


class PeriodicSettings(Value):
    """The keys that time the tasks, in ms."""

    max_idle_interval_ms: int = 500
    session_timeout_ms: int = 9_000
    leader_imbalance_check_interval_ms: int = 300_000
    auto_leader_rebalance: bool = True
    unclean_leader_election_interval_ms: int = 300_000


def stale_look_ms(settings: PeriodicSettings) -> int:
    """The interval of the checks for stale brokers: an eighth of a session, so they are fenced within 112.5 % of it."""
    return max(1, settings.session_timeout_ms // 8)


def intervals_ms(settings: PeriodicSettings) -> Mapping[PeriodicTask, int]:
    """The tasks that run, and how far apart."""
    intervals = {
        PeriodicTask.MAYBE_FENCE_STALE_BROKER: stale_look_ms(settings),
        PeriodicTask.ELECT_UNCLEAN: settings.unclean_leader_election_interval_ms,
    }
    if settings.max_idle_interval_ms > 0:
        intervals[PeriodicTask.WRITE_NO_OP_RECORD] = settings.max_idle_interval_ms
    if settings.auto_leader_rebalance:
        intervals[PeriodicTask.ELECT_PREFERRED] = settings.leader_imbalance_check_interval_ms
    return intervals


class PeriodicSchedule:
    """When each task is due. Empty until the controller is active."""

    def __init__(self, settings: PeriodicSettings) -> None:
        self._intervals_ms: Final = intervals_ms(settings)
        self._due_ms: dict[PeriodicTask, int] = {}
        self.deadline_ms: int | None = None
        """When the next task is due; None while there is none."""

    def _set(self, due_ms: dict[PeriodicTask, int]) -> None:
        self._due_ms = due_ms
        self.deadline_ms = min(due_ms.values(), default=None)

    def start(self, now_ms: int) -> None:
        """The controller is active from now on."""
        self._set({task: now_ms + interval_ms for task, interval_ms in self._intervals_ms.items()})

    def stop(self) -> None:
        """The controller is not active any more."""
        self._set({})

    def pop_due(self, now_ms: int) -> PeriodicTask | None:
        """Take the task that has been due the longest; it is due again after its interval."""
        task = min(self._due_ms, key=self._due_ms.__getitem__, default=None)
        if task is None or self._due_ms[task] > now_ms:
            return None
        self._set({**self._due_ms, task: now_ms + self._intervals_ms[task]})
        return task

    def put_off(self, task: PeriodicTask, now_ms: int) -> None:
        """There is nothing to do: check again together with the next other task, so that this one causes no wake-up."""
        others = (due_ms for other, due_ms in self._due_ms.items() if other is not task)
        self._set({**self._due_ms, task: max(now_ms + self._intervals_ms[task], min(others, default=0))})

    def again(self, task: PeriodicTask, now_ms: int) -> None:
        """There is more to do: run the task again at once, after everything that is already due."""
        self._set({**self._due_ms, task: now_ms})
