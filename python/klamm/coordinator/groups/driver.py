"""The group coordinator of a node: the group APIs on top of the shards of the coordinator runtime."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.commits import CommitAnswer, fetch_error
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.consumer.driver import PatternThreads
from klamm.coordinator.groups.consumer.requests import check_heartbeat
from klamm.coordinator.groups.counts import GroupCounts, group_gauges
from klamm.coordinator.groups.effects import CreateStates, GroupEffect
from klamm.coordinator.groups.shard import GroupShard, Replies
from klamm.coordinator.groups.share.driver import (
    EndOffsets,
    NoPersister,
    Persister,
    ShareGroupRequests,
    no_end_offsets,
)
from klamm.coordinator.groups.streams.driver import StreamsGroupRequests
from klamm.coordinator.groups.topics import GroupConfigs, NoTopics, Topics, no_group_configs
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.driver import CoordinatorRuntime, into
from klamm.coordinator.runtime.effects import Ticket
from klamm.coordinator.runtime.hosted_shard import HostedShard, LoadState
from klamm.coordinator.runtime.log import CoordinatorLog, Marker, Producer
from klamm.coordinator.runtime.placement import partition_of
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
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
    TxnOffsetCommitRequest,
)
from klamm.protocol.messages.share_groups import DescribedShareGroup

T = TypeVar("T")

ABORTABLE_MIN_VERSION: Final = 4
"""The first version of TxnOffsetCommit whose clients know TRANSACTION_ABORTABLE."""
ADDING_MIN_VERSION: Final = 5
"""From this version on the offsets partition is added to the transaction; clients send no AddOffsetsToTxn."""


class VerifyTransaction(Protocol):
    """Asks the transaction coordinator whether partitions belong to a transaction, or adds them to it."""

    def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        is_adding: bool,
    ) -> Awaitable[list[ErrorCode]]:
        """An error for each partition, by topic name and index."""
        ...


async def _unavailable(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[tuple[str, int]],
    *,
    is_adding: bool,
) -> list[ErrorCode]:
    return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(partitions)


def draw_uuid() -> str:
    """The random part of a member id."""
    return str(uuid.uuid4())


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
        draw_uuid: Callable[[], str] = draw_uuid,
        verify: VerifyTransaction = _unavailable,
        topics: Topics | None = None,
        group_configs: GroupConfigs = no_group_configs,
        persister: Persister | None = None,
        end_offsets: EndOffsets = no_end_offsets,
    ) -> None:
        """`topics` is the metadata of the cluster, and `group_configs` has the configs of groups.

        `persister` calls share coordinators, and `end_offsets` the leaders of partitions.
        """
        self._config: Final = config
        self._topics: Final[Topics] = NoTopics() if topics is None else topics
        self._topic: Final = offsets_log.topic
        self._verify: Final = verify
        self._partition_count = partition_count
        self.counts: Final = GroupCounts()
        make = partial(GroupShard, config, draw_uuid, self.counts, topics=self._topics, group_configs=group_configs)
        self.runtime: Final = CoordinatorRuntime(offsets_log, make, carry_out=self._carry_out)
        self._patterns: Final = PatternThreads(self.runtime, self._topics)
        self.share: Final = ShareGroupRequests(
            self.runtime, self._hosted, self._topics, NoPersister() if persister is None else persister, end_offsets
        )
        """The APIs of share groups."""
        self.streams: Final = StreamsGroupRequests(self.runtime, self._hosted, self._of_named)
        """The APIs of streams groups."""

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
        self.runtime.feed_all(lambda shard, now_ms: shard.on_topics_deleted(now_ms, deleted))

    def on_metadata(self, changed: Iterable[str], *, created: bool) -> None:
        """Newer metadata: the names of topics that were created, changed or deleted, and whether any was created."""
        names = frozenset(changed)
        self.runtime.feed_all(lambda shard, now_ms: shard.on_metadata(now_ms, names, created=created))

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
        self._patterns.close()
        self.share.close()

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

    def consumer_group_heartbeat(
        self,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        answer: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None:
        """ConsumerGroupHeartbeat (68)."""

        def submit() -> None:
            try:
                check_heartbeat(request, caller.api_version, self._config.group_consumer_assignors)
                hosted = self._hosted(request.group_id)
            except KafkaError as error:
                answer(ConsumerGroupHeartbeatResponse(error.code, error.message))
                return
            event = hosted.shard.on_consumer_heartbeat
            self.runtime.submit(hosted, answer, ConsumerGroupHeartbeatResponse, event, caller, request)

        self._patterns.compile_first(request.subscribed_topic_regex, submit)

    async def consumer_group_describe(self, group_ids: Iterable[str]) -> list[DescribedConsumerGroup]:
        """ConsumerGroupDescribe (69)."""

        def refused(ids: tuple[str, ...], code: ErrorCode) -> tuple[DescribedConsumerGroup, ...]:
            return tuple(DescribedConsumerGroup(group_id, code) for group_id in ids)

        return await self._of_named(group_ids, GroupShard.on_consumer_describe, refused)

    async def share_group_describe(self, group_ids: Iterable[str]) -> list[DescribedShareGroup]:
        """ShareGroupDescribe (77)."""

        def refused(ids: tuple[str, ...], code: ErrorCode) -> tuple[DescribedShareGroup, ...]:
            return tuple(DescribedShareGroup(group_id, code) for group_id in ids)

        return await self._of_named(group_ids, GroupShard.on_share_describe, refused)

    def offset_commit(self, request: CommitRequest, answer: Callable[[CommitAnswer], None]) -> None:
        """OffsetCommit (8) of the partitions that exist."""
        try:
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            answer(int(error.code))
            return
        self.runtime.submit(hosted, answer, int, hosted.shard.on_offset_commit, request)

    async def txn_offset_commit(self, version: int, request: TxnOffsetCommitRequest) -> CommitAnswer:
        """TxnOffsetCommit (28) of the partitions that exist."""
        if not request.group_id:
            return int(ErrorCode.INVALID_GROUP_ID)
        producer = Producer(request.producer_id, request.producer_epoch)
        is_adding = version >= ADDING_MIN_VERSION
        try:
            hosted = self._hosted(request.group_id)
            verification = hosted.shard.begin_verification(producer, is_adding=is_adding)
            try:
                # Kafka checks member and generation after this; an error leaves the partition in the transaction.
                places = [(self._topic, hosted.partition)]
                (code,) = await self._verify(request.transactional_id, *producer, places, is_adding=is_adding)
                if code is not ErrorCode.NONE:
                    return int(_verification_error(version, code))
                if self._hosted(request.group_id) is not hosted:
                    return int(ErrorCode.NOT_COORDINATOR)
                future: asyncio.Future[CommitAnswer] = asyncio.get_running_loop().create_future()
                commit, event = _commit_of(request), hosted.shard.on_transactional_commit
                self.runtime.submit(hosted, into(future), int, event, commit, verification)
            finally:
                hosted.shard.end_verification(verification)
        except KafkaError as error:
            return int(error.code)
        return await future

    def write_marker(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        answer: Callable[[ErrorCode], None],
        *,
        commits: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """The part of WriteTxnMarkers (27) for a partition of the offsets topic.

        NONE: the marker is committed, and the transaction's offsets are visible or gone.
        """
        marker = Marker(Producer(producer_id, producer_epoch), commits, coordinator_epoch, transaction_version)
        try:
            hosted = self.runtime.shards.active(partition)
        except KafkaError as error:
            answer(_marker_error(error.code))
            return

        def translated(code: ErrorCode) -> None:
            answer(_marker_error(code))

        self.runtime.submit(hosted, translated, ErrorCode, hosted.shard.on_marker, marker)

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

    def gauges(self) -> dict[str, int]:
        """The numbers of groups by name. It visits every group. Partitions that are not loaded have none."""
        shards = [one.shard for one in self.runtime.shards.all() if one.state is LoadState.ACTIVE]
        groups = (group for shard in shards for group in shard.list_groups(ListGroupsRequest()))
        return group_gauges(groups, sum(shard.offset_count for shard in shards))

    async def delete_groups(self, group_ids: Iterable[str]) -> list[DeletedGroup]:
        """DeleteGroups (42)."""

        def refused(ids: tuple[str, ...], code: ErrorCode) -> tuple[DeletedGroup, ...]:
            return tuple(DeletedGroup(group_id, code) for group_id in ids)

        ids = dict.fromkeys(group_ids)
        failed = await self.share.delete_states(ids)
        have_failed = {one.group_id for one in failed}
        rest = [group_id for group_id in ids if group_id not in have_failed]
        return [*failed, *await self._of_partitions(rest, GroupShard.on_delete_groups, refused)]

    async def _of_partitions(
        self,
        group_ids: Iterable[str],
        event: Callable[[GroupShard, int, Ticket, tuple[str, ...]], Replies],
        refused: Callable[[tuple[str, ...], ErrorCode], tuple[T, ...]],
    ) -> list[T]:
        """Pass groups to the shards of their partitions, and gather what these answer for each group."""
        by_partition: dict[int, list[str]] = {}
        for group_id in group_ids:
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        work = (self._of_partition(partition, tuple(ids), event, refused) for partition, ids in by_partition.items())
        return [result for results in await asyncio.gather(*work) for result in results]

    async def _of_named(
        self,
        group_ids: Iterable[str],
        event: Callable[[GroupShard, int, Ticket, tuple[str, ...]], Replies],
        refused: Callable[[tuple[str, ...], ErrorCode], tuple[T, ...]],
    ) -> list[T]:
        """The same without empty ids, which are refused with INVALID_GROUP_ID."""
        asked = list(group_ids)
        unnamed = refused(tuple(group_id for group_id in asked if not group_id), ErrorCode.INVALID_GROUP_ID)
        return [*unnamed, *await self._of_partitions(filter(None, asked), event, refused)]

    async def _of_partition(
        self,
        partition: int,
        group_ids: tuple[str, ...],
        event: Callable[[GroupShard, int, Ticket, tuple[str, ...]], Replies],
        refused: Callable[[tuple[str, ...], ErrorCode], tuple[T, ...]],
    ) -> tuple[T, ...]:
        try:
            hosted = self.runtime.shards.active(partition)
        except KafkaError as error:
            return refused(group_ids, error.code)
        future: asyncio.Future[tuple[T, ...]] = asyncio.get_running_loop().create_future()
        refuse = partial(refused, group_ids)
        self.runtime.submit(hosted, into(future), refuse, partial(event, hosted.shard), group_ids)
        return await future

    # Effects of shards

    def _carry_out(self, hosted: HostedShard[GroupShard], effect: GroupEffect) -> None:
        if isinstance(effect, CreateStates):
            self.share.create(hosted, effect)
        else:
            self._patterns.resolve(hosted, effect)


def _commit_of(request: TxnOffsetCommitRequest) -> CommitRequest:
    topics = [
        (
            topic.name,
            ZERO_ID,
            [
                (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.committed_metadata)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return CommitRequest(
        request.group_id,
        topics,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )


def _verification_error(version: int, code: ErrorCode) -> ErrorCode:
    """The error of a commit whose transaction was not verified (Kafka's `AddPartitionsToTxnManager`)."""
    match code:
        case ErrorCode.TRANSACTION_ABORTABLE if version < ABORTABLE_MIN_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return code
        case _:
            return coordinator_error(code)


LEADERSHIP_ERRORS: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def _marker_error(code: ErrorCode) -> ErrorCode:
    """The sender of markers knows errors of partitions, not of group coordinators."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in LEADERSHIP_ERRORS else code
