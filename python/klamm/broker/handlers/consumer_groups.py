"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from klamm.broker.handlers.groups import ALL_GROUP_OPERATIONS
from klamm.broker.request import Answer, RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.wire.codec import read, write


class ConsumerGroups(Protocol):
    """The group coordinator as these handlers use it. Errors are part of the responses."""

    def consumer_group_heartbeat(
        self,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        answer: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None:
        """ConsumerGroupHeartbeat."""
        ...

    async def consumer_group_describe(self, group_ids: Iterable[str]) -> list[DescribedConsumerGroup]:
        """ConsumerGroupDescribe."""
        ...


class ConsumerGroupHandlers:
    """Serves the APIs of this file while `is_enabled` says that the cluster has consumer groups."""

    def __init__(self, groups: ConsumerGroups, is_enabled: Callable[[], bool]) -> None:
        self._groups, self._is_enabled = groups, is_enabled

    def heartbeat(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """A member joins, stays or leaves."""
        write_answer: Callable[[ConsumerGroupHeartbeatResponse], None] = answer.written(partial(_write, version))
        request = read(ConsumerGroupHeartbeatRequest, version, body)
        if not self._is_enabled():
            write_answer(ConsumerGroupHeartbeatResponse(ErrorCode.UNSUPPORTED_VERSION))
            return
        # Kafka stores addresses as Java prints them, with a slash where the host name would be.
        caller = Caller(version, context.client_id or "", f"/{context.address}")
        self._groups.consumer_group_heartbeat(caller, request, write_answer)

    async def describe(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Consumer groups with their members."""
        request = read(ConsumerGroupDescribeRequest, version, body)
        if not self._is_enabled():
            code = ErrorCode.UNSUPPORTED_VERSION
            refused = tuple(DescribedConsumerGroup(group_id, code) for group_id in request.group_ids)
            return write(ConsumerGroupDescribeResponse(refused), version)
        groups = await self._groups.consumer_group_describe(request.group_ids)
        if request.include_authorized_operations:
            groups = [
                group if group.error_code else replace(group, authorized_operations=ALL_GROUP_OPERATIONS)
                for group in groups
            ]
        return write(ConsumerGroupDescribeResponse(tuple(groups)), version)


def _write(version: int, response: ConsumerGroupHeartbeatResponse) -> bytes:
    return write(response, version)
