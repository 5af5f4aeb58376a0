"""ShareGroupHeartbeat (76), ShareGroupDescribe (77), DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91) and
DeleteShareGroupOffsets (92).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from klamm.broker.handlers.groups import ALL_GROUP_OPERATIONS
from klamm.broker.request import Answer, RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribedOffsetsGroup,
    DescribedShareGroup,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    OffsetsGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from klamm.protocol.wire.codec import read, write

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


class ShareGroups(Protocol):
    """The group coordinator as these handlers use it. Errors are part of the responses."""

    def heartbeat(
        self,
        caller: Caller,
        request: ShareGroupHeartbeatRequest,
        answer: Callable[[ShareGroupHeartbeatResponse], None],
    ) -> None:
        """ShareGroupHeartbeat."""
        ...

    async def describe_offsets(self, asked: OffsetsGroup) -> DescribedOffsetsGroup:
        """DescribeShareGroupOffsets of one group."""
        ...

    async def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        """AlterShareGroupOffsets."""
        ...

    async def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        """DeleteShareGroupOffsets."""
        ...


class Describer(Protocol):
    """Describes share groups."""

    async def share_group_describe(self, group_ids: Iterable[str]) -> list[DescribedShareGroup]:
        """ShareGroupDescribe."""
        ...


class ShareGroupHandlers:
    """Serves the APIs of this file while `is_enabled` says that the cluster has share groups."""

    def __init__(self, groups: ShareGroups, describer: Describer, is_enabled: Callable[[], bool]) -> None:
        self._groups, self._describer, self._is_enabled = groups, describer, is_enabled

    def heartbeat(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """A member joins, stays or leaves."""
        write_answer: Callable[[ShareGroupHeartbeatResponse], None] = answer.written(partial(_write, version))
        request = read(ShareGroupHeartbeatRequest, version, body)
        if not self._is_enabled():
            write_answer(ShareGroupHeartbeatResponse(UNSUPPORTED))
            return
        # Kafka stores addresses as Java prints them, with a slash where the host name would be.
        caller = Caller(version, context.client_id or "", f"/{context.address}")
        self._groups.heartbeat(caller, request, write_answer)

    async def describe(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Share groups with their members."""
        request = read(ShareGroupDescribeRequest, version, body)
        if not self._is_enabled():
            refused = tuple(DescribedShareGroup(group_id, UNSUPPORTED) for group_id in request.group_ids)
            return write(ShareGroupDescribeResponse(refused), version)
        groups = await self._describer.share_group_describe(request.group_ids)
        if request.include_authorized_operations:
            groups = [
                group if group.error_code else replace(group, authorized_operations=ALL_GROUP_OPERATIONS)
                for group in groups
            ]
        return write(ShareGroupDescribeResponse(tuple(groups)), version)

    async def describe_offsets(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The start offsets and lag of share groups."""
        request = read(DescribeShareGroupOffsetsRequest, version, body)
        if not self._is_enabled():
            groups = [DescribedOffsetsGroup(one.group_id, error_code=UNSUPPORTED) for one in request.groups]
        else:
            groups = await asyncio.gather(*map(self._groups.describe_offsets, request.groups))
        return write(DescribeShareGroupOffsetsResponse(tuple(groups)), version)

    async def alter_offsets(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Set the start offsets of a share group without members."""
        request = read(AlterShareGroupOffsetsRequest, version, body)
        is_enabled = self._is_enabled()
        response = (
            await self._groups.alter_offsets(request) if is_enabled else AlterShareGroupOffsetsResponse(UNSUPPORTED)
        )
        return write(response, version)

    async def delete_offsets(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Delete a share group's offsets of topics; it must have no members."""
        request = read(DeleteShareGroupOffsetsRequest, version, body)
        if not self._is_enabled():
            return write(DeleteShareGroupOffsetsResponse(UNSUPPORTED), version)
        return write(await self._groups.delete_offsets(request), version)


def _write(version: int, response: ShareGroupHeartbeatResponse) -> bytes:
    return write(response, version)
