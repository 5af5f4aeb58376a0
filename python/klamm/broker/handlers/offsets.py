"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28) and OffsetDelete (47)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Final, Protocol

from klamm._engine.groups import CommitRequest
from klamm._engine.metadata import Image
from klamm.broker.request import Answer, RequestContext
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.group_messages import (
    CommitPartition,
    CommittedPartition,
    DeletedPartition,
    DeletedTopic,
    DeletePartition,
    DeleteTopic,
    FetchedGroup,
    FetchedPartition,
    FetchedTopic,
    FetchGroup,
    FetchTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    TxnCommittedTopic,
    TxnCommitTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from klamm.protocol.messages.groups import write_offset_fetch
from klamm.protocol.topic_info import TopicInfo
from klamm.protocol.wire.codec import read, write

TOPIC_ID_VERSION: Final = 10
LOADING_MIN_VERSION: Final = 2
"""Clients of earlier versions of TxnOffsetCommit do not repeat COORDINATOR_LOAD_IN_PROGRESS."""


class Offsets(Protocol):
    """The group coordinator as these handlers use it. Errors are part of the responses."""

    def offset_commit(self, request: CommitRequest, answer: Callable[[int | list[int]], None]) -> None:
        """OffsetCommit; the answer is an error code for all partitions that exist, or one for each."""
        ...

    def offset_fetch(
        self, request: FetchGroup, answer: Callable[[FetchedGroup], None], *, require_stable: bool
    ) -> None:
        """OffsetFetch of one group."""
        ...

    async def txn_offset_commit(self, version: int, request: TxnOffsetCommitRequest) -> int | list[int]:
        """TxnOffsetCommit of partitions that exist; the answer is as that of `offset_commit`."""
        ...

    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete."""
        ...


class TopicDirectory(Protocol):
    """Topics of the newest metadata that the broker has."""

    @property
    def image(self) -> Image:
        """The newest metadata."""
        ...

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

    def offset_commit(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """Commits for partitions that exist; the others get their own errors."""
        try:
            request = CommitRequest.read(version, body, self._topics.image)
        except ValueError as error:
            raise MalformedRequest(f"OffsetCommit v{version} of {len(body)} bytes: {error}") from error
        self.commit(request, answer.written(request.answer))

    def commit(self, request: CommitRequest, answer: Callable[[int | list[int]], None]) -> None:
        """The same for a request that is read: answers a code for all partitions that exist, or one for each."""
        if request.offset_count:
            self._offsets.offset_commit(request, answer)
        else:
            answer(0)

    async def txn_offset_commit(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Offsets of a transaction, for partitions that exist; the others get their own error."""
        request = read(TxnOffsetCommitRequest, version, body)
        known = tuple(
            TxnCommitTopic(topic.name, tuple(one for one in topic.partitions if self._exists(topic.name, one)))
            for topic in request.topics
        )
        codes: int | list[int] = 0
        if any(topic.partitions for topic in known):
            named = replace(request, topics=tuple(topic for topic in known if topic.partitions))
            codes = await self._offsets.txn_offset_commit(version, named)
        if codes == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_MIN_VERSION:
            codes = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        of_each = iter(codes) if isinstance(codes, list) else repeat(codes)

        def committed(topic: str, one: CommitPartition) -> CommittedPartition:
            code = next(of_each) if self._exists(topic, one) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return CommittedPartition(one.partition_index, code)

        topics = (
            TxnCommittedTopic(topic.name, tuple(committed(topic.name, one) for one in topic.partitions))
            for topic in request.topics
        )
        return write(TxnOffsetCommitResponse(tuple(topics)), version)

    def _exists(self, topic: str, partition: CommitPartition) -> bool:
        info = self._topics.by_name(topic)
        return info is not None and 0 <= partition.partition_index < info.partition_count

    def offset_fetch(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """Committed offsets of one or, from version 8, many groups."""
        request = read(OffsetFetchRequest, version, body)
        asked = request.all_groups(version)
        fetched: dict[int, FetchedGroup] = {}
        finish: dict[int, Callable[[FetchedGroup], FetchedGroup]] = {}

        def written(_: None) -> bytes:
            groups = (finish[at](fetched[at]) if finish else fetched[at] for at in range(len(asked)))
            return write_offset_fetch(version, list(groups))

        # Only `written` can fail, and then it ends this request alone.
        write_answer: Callable[[None], None] = answer.written(written)

        def gather(at: int, group: FetchedGroup) -> None:
            fetched[at] = group
            if len(fetched) == len(asked):
                write_answer(None)

        for at, group in enumerate(asked):
            named = group
            if version >= TOPIC_ID_VERSION:
                named, finish[at] = self._by_id(group)
            self._offsets.offset_fetch(named, partial(gather, at), require_stable=request.require_stable)
        if not asked:
            write_answer(None)

    def _by_id(self, group: FetchGroup) -> tuple[FetchGroup, Callable[[FetchedGroup], FetchedGroup]]:
        """The group with its topics' names, and what gives the answer its topics' ids."""
        unknown: list[FetchedTopic] = []
        named = group if group.topics is None else replace(group, topics=self._named(group.topics, unknown))

        def with_ids(fetched: FetchedGroup) -> FetchedGroup:
            topics = self._with_ids(fetched.topics) if group.topics is None else fetched.topics
            return replace(fetched, topics=(*topics, *unknown))

        return named, with_ids

    def _named(self, topics: tuple[FetchTopic, ...], unknown: list[FetchedTopic]) -> tuple[FetchTopic, ...]:
        """The topics with their names; those with an unknown id are answered at once."""
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
        """OffsetDelete: delete offsets of existing partitions, unless the group needs them."""
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
        if missing or info is None:
            refused.append(DeletedTopic(topic.name, tuple(missing)))
        if existing:
            known.append(DeleteTopic(topic.name, tuple(existing)))


def _merged_deletions(refused: list[DeletedTopic], topics: tuple[DeletedTopic, ...]) -> tuple[DeletedTopic, ...]:
    merged: dict[str, DeletedTopic] = {}
    for topic in (*refused, *topics):
        before = merged.get(topic.name)
        partitions = topic.partitions if before is None else before.partitions + topic.partitions
        merged[topic.name] = DeletedTopic(topic.name, partitions)
    return tuple(merged.values())
