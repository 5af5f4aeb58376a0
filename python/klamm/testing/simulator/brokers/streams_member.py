"""A member of a streams group in the simulation: it heartbeats with a topology, as Kafka Streams does (KIP-1071).

A task is known by its subtopology and its partition, as a partition is by its topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klamm.coordinator.groups.streams.request_checks import LEAVE_EPOCH
from klamm.node.groups import GROUPS_TOPIC
from klamm.protocol.messages.consumer_groups import UNCHANGED_MS
from klamm.protocol.messages.streams_messages import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from klamm.testing.simulator.brokers.group_member import CALLER, GroupMember
from klamm.testing.simulator.brokers.member_process import NO_EPOCH, REBALANCE_MS

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from klamm.testing.simulator.brokers.coordinators import Coordinators
    from klamm.testing.simulator.brokers.history import Key

SOURCES: Final = {b"a": "t", b"b": GROUPS_TOPIC}
"""The topic that each subtopology reads."""
TOPOLOGY: Final = Topology(1, tuple(Subtopology(key.decode(), (topic,)) for key, topic in SOURCES.items()))
NO_TASKS: Final[tuple[TaskIds, ...]] = ()


class StreamsGroupMember(GroupMember):
    """One member, a process of its own, which wants no standby tasks."""

    def _heartbeat(self, *, says_wanted: bool, says_owned: bool, is_full: bool) -> StreamsGroupHeartbeatRequest:
        is_join = self.epoch == NO_EPOCH
        return StreamsGroupHeartbeatRequest(
            self._group.group_id,
            self.id,
            self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_full else UNCHANGED_MS,
            topology=TOPOLOGY if is_join else None,
            active_tasks=_task_ids(self._reported) if says_owned else None,
            standby_tasks=NO_TASKS if says_owned else None,
            warmup_tasks=NO_TASKS if says_owned else None,
            process_id=self.id if is_full else None,
        )

    def _departure(self, *, will_return: bool) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(self._group.group_id, self.id, LEAVE_EPOCH)

    async def _handled(self, coordinators: Coordinators, request: Any) -> StreamsGroupHeartbeatResponse:
        return (await coordinators.streams_heartbeat(CALLER, request)).response

    def _assigned(self, answer: Any) -> AbstractSet[Key] | None:
        tasks: tuple[TaskIds, ...] | None = answer.active_tasks
        if tasks is None:
            return None
        return frozenset((one.subtopology_id.encode(), index) for one in tasks for index in one.partitions)

    def _topic_of(self, key: Key) -> tuple[str, bytes] | None:
        name = SOURCES[key[0]]
        topic_id = self._group.topic_id(name)
        return None if topic_id is None else (name, topic_id)


def _task_ids(owned: AbstractSet[Key]) -> tuple[TaskIds, ...]:
    found: dict[bytes, list[int]] = {}
    for key, index in sorted(owned):
        found.setdefault(key, []).append(index)
    return tuple(TaskIds(key.decode(), tuple(indexes)) for key, indexes in found.items())
