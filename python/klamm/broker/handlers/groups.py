"""FindCoordinator (10), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups (15),
ListGroups (16) and DeleteGroups (42).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final, Protocol

from klamm.broker.request import Answer, RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.coordinators import FindCoordinatorRequest, FoundCoordinator
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
    FIND_MANY_VERSION,
    read_join_group,
    read_leave_group,
    write_find_coordinator,
    write_join_group,
    write_leave_group,
)
from klamm.protocol.value import Value
from klamm.protocol.wire.codec import read, write

log = logging.getLogger("klamm.broker.groups")

GROUPS_TOPIC: Final = "__consumer_offsets"
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
ALL_GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: all that a group has, where no authorizer is."""


class Groups(Protocol):
    """What these handlers need of the group coordinator. Refusals are in the answers."""

    def partition_for(self, group_id: str) -> int:
        """The partition of the offsets topic that a group belongs to."""
        ...

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


class Endpoint(Value):
    """A broker, as clients of one listener reach it."""

    node_id: int
    host: str
    port: int


class InternalTopics(Protocol):
    """What FindCoordinator needs of the cluster's metadata."""

    def exists(self, topic: str) -> bool:
        """Whether the topic is in the metadata."""
        ...

    def create(self, topic: str) -> None:
        """Ask the controller for an internal topic, unless that is under way. Does not wait."""
        ...

    def leader(self, topic: str, partition: int, listener: str) -> Endpoint | None:
        """The leader of the partition, if there is one that is alive."""
        ...


class GroupHandlers:
    """Serves the APIs of this file."""

    def __init__(self, groups: Groups, topics: InternalTopics) -> None:
        self._groups = groups
        self._topics = topics

    async def find_coordinator(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The broker that leads a key's partition; the topic is made when it is first asked for."""
        request = read(FindCoordinatorRequest, version, body)
        keys: Sequence[str] = request.coordinator_keys if version >= FIND_MANY_VERSION else (request.key,)
        return write_find_coordinator(version, [self._find(context, request.key_type, key) for key in keys])

    def _find(self, context: RequestContext, key_type: int, key: str) -> FoundCoordinator:
        if key_type != GROUP_KEY:
            kind = "transactions" if key_type == TRANSACTION_KEY else f"coordinators of type {key_type}"
            log.info("no coordinator for %r of %s: %s are not supported yet", key, context.address, kind)
            return FoundCoordinator(key, ErrorCode.INVALID_REQUEST, f"{kind} are not supported yet")
        unavailable = FoundCoordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self._topics.exists(GROUPS_TOPIC):
            self._topics.create(GROUPS_TOPIC)
            return unavailable
        found = self._topics.leader(GROUPS_TOPIC, self._groups.partition_for(key), context.listener)
        if found is None:
            return unavailable
        return FoundCoordinator(key, ErrorCode.NONE, node_id=found.node_id, host=found.host, port=found.port)

    async def join_group(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Answered when the group has gathered."""
        # Kafka stores addresses as Java prints them, with a slash where the host name would be.
        caller = Caller(version, context.client_id or "", f"/{context.address}")
        response = await self._groups.join_group(caller, read_join_group(version, body))
        return write_join_group(version, response)

    async def sync_group(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Answered when the leader has assigned. From version 5 the protocol has to be named."""
        request = read(SyncGroupRequest, version, body)
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return write(SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), version)
        return write(await self._groups.sync_group(request), version)

    def heartbeat(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """A member is alive."""
        write_answer = partial(_write_heartbeat, version)
        self._groups.heartbeat(read(HeartbeatRequest, version, body), answer.written(write_answer))

    async def leave_group(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Members go, by themselves or by an admin."""
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
        """Empty groups go, with their offsets."""
        request = read(DeleteGroupsRequest, version, body)
        deleted = await self._groups.delete_groups(request.groups_names)
        return write(DeleteGroupsResponse(tuple(deleted)), version)


@cache
def _write_heartbeat(version: int, error: ErrorCode) -> bytes:
    return write(HeartbeatResponse(error), version)
