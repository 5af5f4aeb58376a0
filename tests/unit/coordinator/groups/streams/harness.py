"""A shard with streams groups, its metadata, and a log in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.unit.coordinator.groups.harness import Room
from tests.unit.coordinator.memory_log import Entry, loaded

from klamm._engine.groups import TopicPattern
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.counts import GroupCounts
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.request_checks import check_heartbeat
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.streams_messages import (
    DescribedStreamsGroup,
    HeartbeatResult,
    InternalTopic,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from klamm.protocol.topic_info import TopicInfo

GROUP = "application"
CALLER = Caller(0, "client", "/127.0.0.1")
STATELESS = Topology(0, (Subtopology("0", ("input",)),))
STATEFUL = Topology(0, (Subtopology("0", ("input",), state_changelog_topics=(InternalTopic("store-changelog"),)),))
AT_ONCE = GroupConfig(group_streams_initial_rebalance_delay_ms=0, group_streams_assignment_interval_ms=0)
"""Targets are computed in the heartbeat that needs them."""


class Metadata:
    """Topics by name, with partition counts."""

    version = 0

    def __init__(self, **counts: int) -> None:
        self.counts = {name.replace("_", "-"): count for name, count in counts.items()}

    def find(self, name: str) -> TopicInfo | None:
        count = self.counts.get(name)
        return None if count is None else TopicInfo(name, zlib.crc32(name.encode()).to_bytes(16, "big"), count)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name in self.counts if self.find(name) == (name, topic_id, self.counts[name])), None)

    def hash_of(self, name: str) -> int | None:
        count = self.counts.get(name)
        return None if count is None else zlib.crc32(f"{name} {count}".encode())

    def matching(self, pattern: TopicPattern) -> Sequence[str]:
        return pattern.among(sorted(self.counts))


class StreamsRoom(Room):
    """Like `Room`, for requests of streams groups."""

    def __init__(
        self,
        config: GroupConfig = AT_ONCE,
        log: Sequence[Entry] | None = None,
        *,
        metadata: Metadata | None = None,
        group_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.metadata = metadata or Metadata(input=4)
        self.group_configs = dict(group_configs or {})
        super().__init__(config, ())
        self.log = list(log or ())
        self.counts = GroupCounts()
        self.shard = GroupShard(
            config,
            self._draw_uuid,
            self.counts,
            topics=self.metadata,
            group_configs=lambda group_id, key: self.group_configs.get(key),
        )
        self.hosted = HostedShard(0, 0, self.shard)
        for record in loaded(self.log):
            self.shard.replay(record)
        self.take(self.shard.on_loaded(self.now_ms))

    def reloaded(self) -> StreamsRoom:
        """Another shard loaded from the same log, at the same time."""
        room = StreamsRoom(self.config, self.log, metadata=self.metadata, group_configs=self.group_configs)
        room.now_ms = self.now_ms
        return room

    @property
    def streams_group(self) -> StreamsGroup:
        group = self.shard.modern_groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group

    def create(self, **counts: int) -> None:
        """Topics are created, or get more partitions."""
        changed = Metadata(**counts).counts
        is_new = not changed.keys() <= self.metadata.counts.keys()
        self.metadata.counts |= changed
        self.take(self.shard.on_metadata(self.now_ms, frozenset(changed), created=is_new))

    def delete(self, name: str) -> None:
        """A topic is deleted."""
        del self.metadata.counts[name]
        self.take(self.shard.on_metadata(self.now_ms, frozenset({name}), created=False))

    # Requests

    def beat_later(self, member_id: str, epoch: int, *, group_id: str = GROUP, **fields: Any) -> int:
        """A heartbeat; a joining one has all fields."""
        if epoch == 0:
            joining: dict[str, Any] = {"topology": STATELESS, "rebalance_timeout_ms": 60_000, "process_id": member_id}
            fields = joining | {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()} | fields
        request = StreamsGroupHeartbeatRequest(group_id, member_id, epoch, **fields)
        ticket = self.ticket()
        try:
            check_heartbeat(request)
        except KafkaError as error:
            self.answers[ticket] = HeartbeatResult(StreamsGroupHeartbeatResponse(error.code, error.message))
        else:
            self.take(self.shard.on_streams_heartbeat(self.now_ms, ticket, CALLER, request))
        return ticket

    def beat(self, member_id: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatResponse:
        answer: HeartbeatResult = self.answers[self.beat_later(member_id, epoch, **fields)]
        return answer.response

    def result(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatResult:
        answer: HeartbeatResult = self.answers[self.beat_later(member_id, epoch, **fields)]
        return answer

    def owning(self, member_id: str, epoch: int, *active: int, standby: Iterable[int] = (), **fields: Any) -> Any:
        """A heartbeat of a member that reports these tasks of subtopology 0."""
        tasks = {"active_tasks": ids(*active), "standby_tasks": ids(*standby), "warmup_tasks": ()}
        return self.beat(member_id, epoch, **(tasks | fields))

    def error(self, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
        return self.beat(member_id, epoch, **fields).error_code

    def describe(self, group_id: str = GROUP) -> DescribedStreamsGroup:
        ticket = self.ticket()
        self.take(self.shard.on_streams_describe(self.now_ms, ticket, (group_id,)))
        [described] = self.answers[ticket]
        assert isinstance(described, DescribedStreamsGroup)
        return described


def ids(*partitions: int) -> tuple[TaskIds, ...]:
    """Tasks of subtopology 0."""
    return (TaskIds("0", partitions),) if partitions else ()


def active(response: StreamsGroupHeartbeatResponse) -> list[int] | None:
    """The active tasks of subtopology 0 in a response; None if there are no lists."""
    return _of(response.active_tasks)


def standby(response: StreamsGroupHeartbeatResponse) -> list[int] | None:
    """The same for standby tasks."""
    return _of(response.standby_tasks)


def _of(tasks: tuple[TaskIds, ...] | None) -> list[int] | None:
    if tasks is None:
        return None
    return [partition for one in tasks for partition in one.partitions]


def statuses(response: StreamsGroupHeartbeatResponse) -> list[int]:
    """The codes of the statuses in a response."""
    return [status.status_code for status in response.status or ()]
