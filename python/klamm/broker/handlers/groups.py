"""JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups (15),
ListGroups (16) and DeleteGroups (42).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import Final, Protocol

from klamm.broker.request import Answer, RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    Caller,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from klamm.protocol.messages.groups import (
    read_join_group,
    read_leave_group,
    write_join_group,
    write_leave_group,
)
from klamm.protocol.wire.codec import read, write

log = logging.getLogger("klamm.broker.groups")

ALL_GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: all operations on a group, without an authorizer."""


class Groups(Protocol):
    """The group coordinator as these handlers use it. Errors are part of the responses."""

    async def join_group(self, caller: Caller, request: JoinGroupRequest) -> JoinGroupResponse:
        """JoinGroup."""
        ...

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """SyncGroup."""
        ...

    def heartbeat(self, request: HeartbeatRequest, answer: Callable[[ErrorCode], None]) -> None:
        """Heartbeat."""
        ...

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup."""
        ...

    def describe_groups(self, api_version: int, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """DescribeGroups."""
        ...

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups."""
        ...

    async def delete_groups(self, group_ids: Iterable[str]) -> list[DeletedGroup]:
        """DeleteGroups."""
        ...


class GroupHandlers:
    """Serves the APIs of this file."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def join_group(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """JoinGroup: answered when the rebalance has all members."""
        # Kafka stores addresses as Java prints them, with a slash where the host name would be.
        caller = Caller(version, context.client_id or "", f"/{context.address}")
        response = await self._groups.join_group(caller, read_join_group(version, body))
        return write_join_group(version, response)

    async def sync_group(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """SyncGroup: answered when the leader has sent the assignment. From version 5 on it must name the protocol."""
        request = read(SyncGroupRequest, version, body)
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return write(SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), version)
        return write(await self._groups.sync_group(request), version)

    def heartbeat(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """Heartbeat of a member."""
        write_answer = partial(_write_heartbeat, version)
        self._groups.heartbeat(read(HeartbeatRequest, version, body), answer.written(write_answer))

    async def leave_group(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """LeaveGroup: members leave, or an admin removes them."""
        return write_leave_group(version, await self._groups.leave_group(read_leave_group(version, body)))

    async def describe_groups(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Classic groups with their members."""
        request = read(DescribeGroupsRequest, version, body)
        groups = self._groups.describe_groups(version, request.groups)
        if request.include_authorized_operations:
            groups = [
                group if group.error_code else replace(group, authorized_operations=ALL_GROUP_OPERATIONS)
                for group in groups
            ]
        return write(DescribeGroupsResponse(tuple(groups)), version)

    async def list_groups(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """All groups of the partitions that are led here."""
        return write(self._groups.list_groups(read(ListGroupsRequest, version, body)), version)

    async def delete_groups(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """DeleteGroups: delete empty groups and their offsets."""
        request = read(DeleteGroupsRequest, version, body)
        deleted = await self._groups.delete_groups(request.groups_names)
        return write(DeleteGroupsResponse(tuple(deleted)), version)


@cache
def _write_heartbeat(version: int, error: ErrorCode) -> bytes:
    return write(HeartbeatResponse(error), version)
