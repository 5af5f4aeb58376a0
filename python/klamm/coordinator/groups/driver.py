"""The group coordinator of a node: the group APIs on top of the shards of the coordinator runtime."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.commits import CommitAnswer, fetch_error
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.counts import GroupCounts
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.runtime.driver import CoordinatorRuntime, into
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.coordinator.runtime.log import CoordinatorLog
from klamm.coordinator.runtime.placement import partition_of
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import (
    Caller,
    DeletedGroup,
    DescribedGroup,
    FetchedGroup,
    FetchGroup,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


class GroupCoordinator:
    """Answers the group APIs for the partitions of `__consumer_offsets` that this node leads.

    Call all methods in the loop's thread. Methods never raise KafkaError: errors are in the response, at the place that
    Kafka uses. The most frequent requests take a callback for the response, which may be called at once, because a task
    and its futures would cost more than the response.
    """

    def __init__(
        self,
        config: GroupConfig,
        offsets_log: CoordinatorLog,
        partition_count: int,
        *,
        draw_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._config: Final = config
        self._partition_count = partition_count
        self.counts: Final = GroupCounts()
        self.runtime: Final = CoordinatorRuntime(offsets_log, lambda: GroupShard(config, draw_uuid, self.counts))

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` for a group."""
        return partition_of(group_id, self._partition_count)

    def use_partition_count(self, partition_count: int) -> None:
        """Set the partition count of the offsets topic. As in Kafka it is fixed from the first election on.

        A partition that is added later gets no groups before a restart, because other groups would change partitions.
        """
        if not self.runtime.shards.all():
            self._partition_count = partition_count

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node became leader of the partition: load it."""
        self.runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This node lost the leadership of the partition, in `leader_epoch` if that is known."""
        self.runtime.on_resigned(partition, leader_epoch)

    def on_topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Delete the offsets of deleted topics (name and id)."""
        deleted = list(topics)
        self.runtime.feed_all(lambda shard, _: shard.on_topics_deleted(deleted))

    def on_pause(self, pause_ms: int) -> None:
        """The process did not run for `pause_ms` and received no heartbeats.

        A pause that is already known has no effect.
        """
        self.runtime.on_pause(pause_ms)

    async def loaded(self) -> None:
        """Wait until each partition that this node leads is active or failed to load."""
        await self.runtime.loaded()

    def close(self) -> None:
        """Unload all partitions. Waiting requests are answered with NOT_COORDINATOR."""
        self.runtime.close()

    def _hosted(self, group_id: str) -> HostedShard[GroupShard]:
        return self.runtime.shards.active(partition_of(group_id, self._partition_count))

    # Requests.

    async def join_group(self, caller: Caller, request: JoinGroupRequest) -> JoinGroupResponse:
        """JoinGroup (11)."""
        config = self._config
        if not request.group_id:
            return JoinGroupResponse(ErrorCode.INVALID_GROUP_ID, request.member_id)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            return JoinGroupResponse(error.code)
        future: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        refuse = partial(JoinGroupResponse, member_id=request.member_id)
        self.runtime.submit(hosted, into(future), refuse, hosted.shard.on_join, caller, request)
        return await future

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """SyncGroup (14)."""
        if not request.group_id:
            return SyncGroupResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            return SyncGroupResponse(error.code)
        future: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
        self.runtime.submit(hosted, into(future), SyncGroupResponse, hosted.shard.on_sync, request)
        return await future

    def heartbeat(self, request: HeartbeatRequest, answer: Callable[[ErrorCode], None]) -> None:
        """Heartbeat (12). While the group is loading the response is NONE."""
        if not request.group_id:
            answer(ErrorCode.INVALID_GROUP_ID)
            return
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer(ErrorCode.NONE if is_loading else error.code)
            return
        self.runtime.submit(hosted, answer, ErrorCode, hosted.shard.on_heartbeat, request)

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup (13)."""
        if not request.group_id:
            return LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            return LeaveGroupResponse(error.code)
        future: asyncio.Future[LeaveGroupResponse] = asyncio.get_running_loop().create_future()
        self.runtime.submit(hosted, into(future), LeaveGroupResponse, hosted.shard.on_leave, request)
        return await future

    def offset_commit(self, request: CommitRequest, answer: Callable[[CommitAnswer], None]) -> None:
        """OffsetCommit (8) of the partitions that exist."""
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            answer(int(error.code))
            return
        self.runtime.submit(hosted, answer, int, hosted.shard.on_offset_commit, request)

    def offset_fetch(
        self, request: FetchGroup, answer: Callable[[FetchedGroup], None], *, require_stable: bool
    ) -> None:
        """OffsetFetch (9) for one group."""
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            answer(fetch_error(request, error.code))
            return
        refuse, fetch = partial(fetch_error, request), hosted.shard.on_offset_fetch
        self.runtime.submit(hosted, answer, refuse, fetch, request, require_stable=require_stable)

    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete (47)."""
        if not request.group_id:
            return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            return OffsetDeleteResponse(error.code)
        future: asyncio.Future[OffsetDeleteResponse] = asyncio.get_running_loop().create_future()
        self.runtime.submit(hosted, into(future), OffsetDeleteResponse, hosted.shard.on_offset_delete, request)
        return await future

    def describe_groups(self, api_version: int, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """DescribeGroups (15)."""
        described = []
        for group_id in group_ids:
            try:
                described.append(self._hosted(group_id).shard.describe(api_version, group_id))
            except KafkaError as error:
                described.append(DescribedGroup(group_id, error.code))
        return described

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups (16)."""
        try:
            shards = self.runtime.shards.all_active()
        except KafkaError as error:
            return ListGroupsResponse(error.code)
        groups = [group for hosted in shards for group in hosted.shard.list_groups(request)]
        return ListGroupsResponse(ErrorCode.NONE, tuple(groups))

    async def delete_groups(self, group_ids: Iterable[str]) -> list[DeletedGroup]:
        """DeleteGroups (42)."""
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        work = (self._delete_groups(partition, tuple(ids)) for partition, ids in by_partition.items())
        return [deleted for results in await asyncio.gather(*work) for deleted in results]

    async def _delete_groups(self, partition: int, group_ids: tuple[str, ...]) -> tuple[DeletedGroup, ...]:
        def refuse(code: ErrorCode) -> tuple[DeletedGroup, ...]:
            return tuple(DeletedGroup(group_id, code) for group_id in group_ids)

        try:
            hosted = self.runtime.shards.active(partition)
        except KafkaError as error:
            return refuse(error.code)
        future: asyncio.Future[tuple[DeletedGroup, ...]] = asyncio.get_running_loop().create_future()
        self.runtime.submit(hosted, into(future), refuse, hosted.shard.on_delete_groups, group_ids)
        return await future
