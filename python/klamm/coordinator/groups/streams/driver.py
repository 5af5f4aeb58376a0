"""The APIs of streams groups on top of the shards of the group coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.groups.streams.request_checks import check_heartbeat
from klamm.coordinator.runtime.driver import CoordinatorRuntime
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.streams_messages import (
    DescribedStreamsGroup,
    HeartbeatResult,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

OfNamed = Callable[..., Awaitable[list[Any]]]
"""Passes group ids to the shards of their partitions, gathers what these answer, and refuses empty ids."""


class StreamsGroupRequests:
    """Answers the APIs of streams groups. Errors are in the responses, at the place that Kafka uses."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        hosted: Callable[[str], HostedShard[GroupShard]],
        of_named: OfNamed,
    ) -> None:
        """`hosted` finds the shard of a group, or raises KafkaError."""
        self._runtime: Final = runtime
        self._hosted: Final = hosted
        self._of_named: Final = of_named

    def heartbeat(
        self, caller: Caller, request: StreamsGroupHeartbeatRequest, answer: Callable[[HeartbeatResult], None]
    ) -> None:
        """StreamsGroupHeartbeat (88)."""
        try:
            check_heartbeat(request)
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            answer(HeartbeatResult(StreamsGroupHeartbeatResponse(error.code, error.message)))
            return
        self._runtime.submit(hosted, answer, _refused, hosted.shard.on_streams_heartbeat, caller, request)

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedStreamsGroup]:
        """StreamsGroupDescribe (89)."""
        return await self._of_named(group_ids, GroupShard.on_streams_describe, _undescribed)


def _refused(code: ErrorCode) -> HeartbeatResult:
    return HeartbeatResult(StreamsGroupHeartbeatResponse(code))


def _undescribed(group_ids: tuple[str, ...], code: ErrorCode) -> tuple[DescribedStreamsGroup, ...]:
    return tuple(DescribedStreamsGroup(group_id, code) for group_id in group_ids)
