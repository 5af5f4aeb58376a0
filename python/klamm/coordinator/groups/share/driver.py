"""The APIs of share groups on top of the shards of the group coordinator, and the calls of share coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from klamm.coordinator.groups.context import log
from klamm.coordinator.groups.effects import CreateStates
from klamm.coordinator.groups.shard import GroupShard, Replies
from klamm.coordinator.groups.share.heartbeats import check_heartbeat
from klamm.coordinator.groups.share.offsets import Alteration, Deletion
from klamm.coordinator.groups.topics import Topics
from klamm.coordinator.runtime.driver import CoordinatorRuntime, into
from klamm.coordinator.runtime.effects import Ticket
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import ZERO_ID, Caller, DeletedGroup
from klamm.protocol.messages.share_groups import (
    NO_START_OFFSET,
    AlteredPartitionResult,
    AlteredTopicResult,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeletedTopicResult,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribedOffsetsGroup,
    DescribedOffsetsTopic,
    DescribedShareOffset,
    OffsetsGroup,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from klamm.protocol.messages.share_state import (
    NO_COUNT,
    InitializedPartition,
    PartitionError,
    PartitionSummary,
    SharePartitionKey,
)

INVALID_GROUP_ID: Final = "The group id is invalid."
_INT64_MIN: Final = -(2**63)
Created = tuple[SharePartitionKey, InitializedPartition]


class Persister(Protocol):
    """Calls the share coordinators of share partitions. Errors are in the results."""

    async def initialize(self, key: SharePartitionKey, asked: InitializedPartition) -> PartitionError:
        """Begin a state."""
        ...

    async def delete(self, key: SharePartitionKey) -> PartitionError:
        """Delete a state."""
        ...

    async def read_summary(self, key: SharePartitionKey) -> PartitionSummary:
        """Read how far a state is."""
        ...


class NoPersister:
    """No share coordinator can be called."""

    async def initialize(self, key: SharePartitionKey, asked: InitializedPartition) -> PartitionError:
        """COORDINATOR_NOT_AVAILABLE."""
        return PartitionError(key.partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def delete(self, key: SharePartitionKey) -> PartitionError:
        """COORDINATOR_NOT_AVAILABLE."""
        return PartitionError(key.partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def read_summary(self, key: SharePartitionKey) -> PartitionSummary:
        """COORDINATOR_NOT_AVAILABLE."""
        return PartitionSummary(key.partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def no_end_offsets(asked: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[ErrorCode, int]]:
    """No end offset is known."""
    return dict.fromkeys(asked, (ErrorCode.LEADER_NOT_AVAILABLE, -1))


EndOffsets = Callable[[Iterable[tuple[str, int]]], Awaitable[Mapping[tuple[str, int], tuple[ErrorCode, int]]]]
"""The end offsets of partitions by topic name and index, or errors."""


class ShareGroupRequests:
    """Answers the APIs of share groups for the partitions of `__consumer_offsets` that this node leads.

    Errors are in the responses, not raised.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        hosted: Callable[[str], HostedShard[GroupShard]],
        topics: Topics,
        persister: Persister,
        end_offsets: EndOffsets,
    ) -> None:
        """`hosted` is the active shard of a group id; it raises KafkaError."""
        self._runtime, self._hosted, self._topics = runtime, hosted, topics
        self._persister: Final = persister
        self._end_offsets = end_offsets
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Forget the calls under way."""
        for task in list(self._tasks):
            task.cancel()

    def heartbeat(
        self,
        caller: Caller,
        request: ShareGroupHeartbeatRequest,
        answer: Callable[[ShareGroupHeartbeatResponse], None],
    ) -> None:
        """ShareGroupHeartbeat (76)."""
        try:
            check_heartbeat(request)
            hosted = self._hosted(request.group_id)
        except KafkaError as error:
            answer(ShareGroupHeartbeatResponse(error.code, error.message))
            return
        event = hosted.shard.on_share_heartbeat
        self._runtime.submit(hosted, answer, ShareGroupHeartbeatResponse, event, caller, request)

    # States

    def create(self, hosted: HostedShard[GroupShard], creation: CreateStates) -> None:
        """Carry out an effect of a shard: create states, and report what became of them."""
        task = asyncio.get_running_loop().create_task(self._create_for_members(hosted, creation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_for_members(self, hosted: HostedShard[GroupShard], creation: CreateStates) -> None:
        errors = await self._create(creation.partitions)
        if errors:
            log.warning("group %s: states of %d partitions could not be created", creation.group_id, len(errors))
        self._report(hosted, creation.group_id, creation.partitions, is_done=not errors)

    async def _create(self, created: Iterable[Created]) -> dict[SharePartitionKey, PartitionError]:
        """The results of those that failed."""
        asked = list(created)
        results = await asyncio.gather(*(self._persister.initialize(*one) for one in asked))
        found = zip((key for key, _ in asked), results, strict=True)
        return {key: result for key, result in found if result.error_code is not ErrorCode.NONE}

    def _report(
        self, hosted: HostedShard[GroupShard], group_id: str, created: Iterable[Created], *, is_done: bool
    ) -> None:
        places: dict[bytes, set[int]] = {}
        for key, _ in created:
            places.setdefault(key.topic_id, set()).add(key.partition)

        def report(shard: GroupShard, now_ms: int) -> Replies:
            return shard.on_states_created(now_ms, group_id, places, is_done=is_done)

        self._runtime.feed(hosted, report)

    async def _delete(self, keys: Iterable[SharePartitionKey]) -> dict[SharePartitionKey, ErrorCode]:
        """The errors of those that failed."""
        deleted = list(keys)
        results = await asyncio.gather(*map(self._persister.delete, deleted))
        codes = {key: result.error_code for key, result in zip(deleted, results, strict=True)}
        return {key: code for key, code in codes.items() if code is not ErrorCode.NONE}

    async def _ask(self, group_id: str, event: Callable[..., Replies], *args: object) -> Any:
        """The response of a shard once it is committed. Raises KafkaError."""
        hosted = self._hosted(group_id)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def bound(now_ms: int, ticket: Ticket) -> Replies:
            return event(hosted.shard, now_ms, ticket, *args)

        self._runtime.submit(hosted, into(future), KafkaError, bound)
        found = await future
        if isinstance(found, KafkaError):
            raise found
        return found

    # Offsets

    async def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        """AlterShareGroupOffsets (91)."""
        if not request.group_id:
            return AlterShareGroupOffsetsResponse(ErrorCode.INVALID_GROUP_ID, INVALID_GROUP_ID)
        try:
            hosted = self._hosted(request.group_id)
            begun: Alteration = await self._ask(request.group_id, GroupShard.on_alter_share_offsets, request)
        except KafkaError as error:
            return AlterShareGroupOffsetsResponse(error.code, error.message)
        errors = await self._create(begun.created)
        if not errors:
            self._report(hosted, request.group_id, begun.created, is_done=True)
        results = tuple(_altered(request.group_id, topic, errors) for topic in begun.results)
        return AlterShareGroupOffsetsResponse(responses=results)

    async def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        """DeleteShareGroupOffsets (92)."""
        if not request.group_id:
            return DeleteShareGroupOffsetsResponse(ErrorCode.INVALID_GROUP_ID, INVALID_GROUP_ID)
        try:
            begun: Deletion = await self._ask(request.group_id, GroupShard.on_delete_share_offsets, request)
            errors = {key.topic_id: code for key, code in (await self._delete(begun.deleted)).items()}
            topic_ids = dict.fromkeys(key.topic_id for key in begun.deleted)
            done = [topic_id for topic_id in topic_ids if topic_id not in errors]
            if done:
                await self._ask(request.group_id, GroupShard.on_share_states_deleted, request.group_id, done)
        except KafkaError as error:
            return DeleteShareGroupOffsetsResponse(error.code, error.message)
        results = tuple(
            DeletedTopicResult(self._topics.name_of(topic_id) or "", topic_id, errors.get(topic_id, ErrorCode.NONE))
            for topic_id in topic_ids
        )
        return DeleteShareGroupOffsetsResponse(responses=(*results, *begun.refused))

    async def delete_states(self, group_ids: Iterable[str]) -> list[DeletedGroup]:
        """The part of DeleteGroups (42) for share groups, before the groups are deleted.

        Returns those that cannot be deleted, because they have members or a state could not be deleted.
        """
        results = await asyncio.gather(*map(self._delete_states, dict.fromkeys(group_ids)))
        return [result for result in results if result.error_code is not ErrorCode.NONE]

    async def _delete_states(self, group_id: str) -> DeletedGroup:
        try:
            if not self._hosted(group_id).shard.is_share_group(group_id):
                return DeletedGroup(group_id)
            begun: Deletion = await self._ask(group_id, GroupShard.on_delete_share_states, group_id)
        except KafkaError as error:
            return DeletedGroup(group_id, error.code)
        errors = await self._delete(begun.deleted)
        return DeletedGroup(group_id, next(iter(errors.values()), ErrorCode.NONE))

    async def describe_offsets(self, asked: OffsetsGroup) -> DescribedOffsetsGroup:
        """DescribeShareGroupOffsets (90) of one group. As in Kafka, it need not exist."""
        unknown: list[DescribedOffsetsTopic] = []
        found: dict[bytes, tuple[str, tuple[int, ...]]] = {}
        if asked.topics is None:
            try:
                places = await self._ask(asked.group_id, GroupShard.on_initialized, asked.group_id)
            except KafkaError as error:
                return DescribedOffsetsGroup(asked.group_id, (), error.code, error.message)
            named = ((topic_id, self._topics.name_of(topic_id), parts) for topic_id, parts in places.items())
            found = {topic_id: (name, parts) for topic_id, name, parts in named if name is not None}
        for topic in asked.topics or ():
            info = self._topics.find(topic.topic_name)
            if info is None:
                offsets = tuple(DescribedShareOffset(one, NO_START_OFFSET) for one in topic.partitions)
                unknown.append(DescribedOffsetsTopic(topic.topic_name, ZERO_ID, offsets))
            else:
                found[info.topic_id] = topic.topic_name, topic.partitions
        described = await self._described_topics(asked.group_id, found)
        return DescribedOffsetsGroup(asked.group_id, (*described, *unknown))

    async def _described_topics(
        self, group_id: str, found: Mapping[bytes, tuple[str, tuple[int, ...]]]
    ) -> list[DescribedOffsetsTopic]:
        keys = [SharePartitionKey(group_id, topic_id, one) for topic_id, (_, parts) in found.items() for one in parts]
        summaries = dict(zip(keys, await asyncio.gather(*map(self._persister.read_summary, keys)), strict=True))
        lagging = [(found[key.topic_id][0], key.partition) for key, one in summaries.items() if _has_lag(one)]
        ends = await self._end_offsets(lagging) if lagging else {}
        topics: dict[bytes, list[DescribedShareOffset]] = {topic_id: [] for topic_id in found}
        for key, summary in summaries.items():
            end = ends.get((found[key.topic_id][0], key.partition))
            topics[key.topic_id].append(_described_offset(summary, end))
        return [DescribedOffsetsTopic(found[topic_id][0], topic_id, tuple(parts)) for topic_id, parts in topics.items()]


def _altered(
    group_id: str, topic: AlteredTopicResult, errors: Mapping[SharePartitionKey, PartitionError]
) -> AlteredTopicResult:
    partitions = []
    for one in topic.partitions:
        error = errors.get(SharePartitionKey(group_id, topic.topic_id, one.partition_index))
        if error is not None and one.error_code is ErrorCode.NONE:
            partitions.append(AlteredPartitionResult(one.partition_index, error.error_code, error.error_message))
        else:
            partitions.append(one)
    return AlteredTopicResult(topic.topic_name, topic.topic_id, tuple(partitions))


def _has_lag(summary: PartitionSummary) -> bool:
    is_known = summary.start_offset != NO_START_OFFSET and summary.delivery_complete_count != NO_COUNT
    return summary.error_code is ErrorCode.NONE and is_known


def _described_offset(summary: PartitionSummary, end: tuple[ErrorCode, int] | None) -> DescribedShareOffset:
    if summary.error_code is not ErrorCode.NONE:
        return DescribedShareOffset(summary.partition, NO_START_OFFSET)
    if end is None:
        return DescribedShareOffset(summary.partition, summary.start_offset, summary.leader_epoch)
    code, end_offset = end
    if code is not ErrorCode.NONE:
        return DescribedShareOffset(summary.partition, error_code=code)
    lag = end_offset - summary.start_offset - summary.delivery_complete_count
    # A client's WriteShareGroupState may have set any start offset: the lag overflows as in Apache Kafka.
    lag = (lag - _INT64_MIN) % 2**64 + _INT64_MIN
    return DescribedShareOffset(summary.partition, summary.start_offset, summary.leader_epoch, lag)
