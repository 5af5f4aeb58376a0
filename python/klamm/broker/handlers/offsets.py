"""OffsetCommit (8), OffsetFetch (9) and OffsetDelete (47)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from klamm.broker.request import RequestContext
from klamm.protocol.codec import read, write
from klamm.protocol.errors import ErrorCode
from klamm.protocol.group_messages import (
    CommittedPartition,
    CommittedTopic,
    CommitTopic,
    DeletedPartition,
    DeletedTopic,
    DeletePartition,
    DeleteTopic,
    FetchedGroup,
    FetchedPartition,
    FetchedTopic,
    FetchGroup,
    FetchTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
)
from klamm.protocol.groups import write_offset_fetch

TOPIC_ID_VERSION: Final = 10


class Offsets(Protocol):
    """What these handlers need of the group coordinator. Refusals are in the answers."""

    async def offset_commit(self, api_version: int, request: OffsetCommitRequest) -> tuple[CommittedTopic, ...]:
        """OffsetCommit."""
        ...

    async def offset_fetch(self, request: FetchGroup, *, require_stable: bool) -> FetchedGroup:
        """OffsetFetch of one group."""
        ...

    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete."""
        ...


class TopicInfo(NamedTuple):
    """A topic of the metadata."""

    name: str
    topic_id: bytes
    partition_count: int


class TopicDirectory(Protocol):
    """Topics of the newest metadata that the broker has."""

    def by_name(self, name: str) -> TopicInfo | None:
        """The topic of this name."""
        ...

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of this id, 16 bytes."""
        ...


class OffsetHandlers:
    """Serves the APIs of this file."""

    def __init__(self, offsets: Offsets, topics: TopicDirectory) -> None:
        self._offsets = offsets
        self._topics = topics

    async def offset_commit(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Commits for partitions that exist; the others get their own errors."""
        request = read(OffsetCommitRequest, version, body)
        known: list[CommitTopic] = []
        refused: list[CommittedTopic] = []
        for topic in request.topics:
            self._sort_out(version, topic, known, refused)
        results: tuple[CommittedTopic, ...] = ()
        if known:
            results = await self._offsets.offset_commit(version, _with_topics(request, known))
        return write(OffsetCommitResponse(_merged(refused, results) if refused else results), version)

    def _sort_out(
        self, version: int, topic: CommitTopic, known: list[CommitTopic], refused: list[CommittedTopic]
    ) -> None:
        by_id = version >= TOPIC_ID_VERSION
        info = self._topics.by_id(topic.topic_id) if by_id else self._topics.by_name(topic.name)
        if info is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = tuple(CommittedPartition(partition.partition_index, code) for partition in topic.partitions)
            refused.append(CommittedTopic(topic.name, topic.topic_id, partitions))
            return
        count = info.partition_count
        existing = tuple(partition for partition in topic.partitions if 0 <= partition.partition_index < count)
        if len(existing) < len(topic.partitions):
            missing = tuple(
                CommittedPartition(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for partition in topic.partitions
                if not 0 <= partition.partition_index < count
            )
            refused.append(CommittedTopic(info.name, info.topic_id, missing))
        if existing:
            known.append(CommitTopic(info.name, info.topic_id, existing))

    async def offset_fetch(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Committed offsets of one or, from version 8, many groups."""
        request = read(OffsetFetchRequest, version, body)
        asked = request.all_groups(version)
        work = (self._fetch(version, group, request.require_stable) for group in asked)
        groups = [await one for one in work] if len(asked) == 1 else await asyncio.gather(*work)
        return write_offset_fetch(version, groups)

    async def _fetch(self, version: int, group: FetchGroup, require_stable: bool) -> FetchedGroup:
        if version < TOPIC_ID_VERSION:
            return await self._offsets.offset_fetch(group, require_stable=require_stable)
        unknown: list[FetchedTopic] = []
        named = group if group.topics is None else replace(group, topics=self._named(group.topics, unknown))
        fetched = await self._offsets.offset_fetch(named, require_stable=require_stable)
        topics = self._with_ids(fetched.topics) if group.topics is None else fetched.topics
        return replace(fetched, topics=(*topics, *unknown))

    def _named(self, topics: tuple[FetchTopic, ...], unknown: list[FetchedTopic]) -> tuple[FetchTopic, ...]:
        """The topics with their names; those whose id nobody knows are answered at once."""
        named = []
        for topic in topics:
            info = self._topics.by_id(topic.topic_id)
            if info is not None:
                named.append(replace(topic, name=info.name))
                continue
            code = ErrorCode.UNKNOWN_TOPIC_ID
            partitions = tuple(FetchedPartition(index, error_code=code) for index in topic.partition_indexes)
            unknown.append(FetchedTopic("", topic.topic_id, partitions))
        return tuple(named)

    def _with_ids(self, topics: tuple[FetchedTopic, ...]) -> list[FetchedTopic]:
        """The topics with their ids, which this version shows instead of names; deleted topics cannot be shown."""
        infos = ((topic, self._topics.by_name(topic.name)) for topic in topics)
        return [replace(topic, topic_id=info.topic_id) for topic, info in infos if info is not None]

    async def offset_delete(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Offsets of partitions that exist go, unless the group needs them."""
        request = read(OffsetDeleteRequest, version, body)
        known: list[DeleteTopic] = []
        refused: list[DeletedTopic] = []
        for topic in request.topics:
            self._sort_out_deletion(topic, known, refused)
        response = await self._offsets.offset_delete(replace(request, topics=tuple(known)))
        if refused and not response.error_code:
            response = replace(response, topics=_merged_deletions(refused, response.topics))
        return write(response, version)

    def _sort_out_deletion(self, topic: DeleteTopic, known: list[DeleteTopic], refused: list[DeletedTopic]) -> None:
        info = self._topics.by_name(topic.name)
        count = 0 if info is None else info.partition_count
        existing: list[DeletePartition] = []
        missing: list[DeletedPartition] = []
        for partition in topic.partitions:
            if 0 <= partition.partition_index < count:
                existing.append(partition)
            else:
                missing.append(DeletedPartition(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if missing:
            refused.append(DeletedTopic(topic.name, tuple(missing)))
        if existing:
            known.append(DeleteTopic(topic.name, tuple(existing)))


def _with_topics(request: OffsetCommitRequest, topics: list[CommitTopic]) -> OffsetCommitRequest:
    # What `replace` does, which takes three times as long, and this is asked ten thousand times a second.
    return OffsetCommitRequest(
        request.group_id,
        tuple(topics),
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms,
    )


def _merged(refused: list[CommittedTopic], results: tuple[CommittedTopic, ...]) -> tuple[CommittedTopic, ...]:
    """One entry per topic, the refused partitions first."""
    merged: dict[tuple[str, bytes], CommittedTopic] = {}
    for topic in (*refused, *results):
        key = (topic.name, topic.topic_id)
        before = merged.get(key)
        merged[key] = topic if before is None else replace(topic, partitions=before.partitions + topic.partitions)
    return tuple(merged.values())


def _merged_deletions(refused: list[DeletedTopic], topics: tuple[DeletedTopic, ...]) -> tuple[DeletedTopic, ...]:
    merged: dict[str, DeletedTopic] = {}
    for topic in (*refused, *topics):
        before = merged.get(topic.name)
        partitions = topic.partitions if before is None else before.partitions + topic.partitions
        merged[topic.name] = DeletedTopic(topic.name, partitions)
    return tuple(merged.values())
