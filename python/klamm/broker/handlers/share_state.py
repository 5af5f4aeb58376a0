"""InitializeShareGroupState (83), ReadShareGroupState (84), WriteShareGroupState (85), DeleteShareGroupState (86) and
ReadShareGroupStateSummary (87), which brokers and coordinators send to the share coordinator (KIP-932).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from klamm.broker.request import RequestContext
from klamm.protocol.messages.share_state import (
    DeleteStateRequest,
    DeleteStateResponse,
    InitializedPartition,
    InitializeStateRequest,
    InitializeStateResponse,
    PartitionError,
    PartitionState,
    PartitionSummary,
    ReadPartition,
    ReadStateRequest,
    ReadStateResponse,
    ReadSummaryRequest,
    ReadSummaryResponse,
    SharePartitionKey,
    TopicErrors,
    TopicStates,
    TopicSummaries,
    WriteStateRequest,
    WriteStateResponse,
    WrittenPartition,
)
from klamm.protocol.wire.codec import read, write

T = TypeVar("T")


class ShareStates(Protocol):
    """The share coordinator as these handlers use it. Errors are part of the results."""

    async def initialize(self, key: SharePartitionKey, asked: InitializedPartition) -> PartitionError:
        """Begin the state of a share partition."""
        ...

    async def read(self, key: SharePartitionKey, asked: ReadPartition) -> PartitionState:
        """Read the state for the leader of a partition."""
        ...

    async def write(self, key: SharePartitionKey, asked: WrittenPartition) -> PartitionError:
        """Change the state."""
        ...

    async def delete(self, key: SharePartitionKey) -> PartitionError:
        """Delete the state."""
        ...

    async def read_summary(self, key: SharePartitionKey) -> PartitionSummary:
        """Read the state without its batches."""
        ...


class ShareStateHandlers:
    """Serves the APIs of this file.

    As in Kafka a request without a group id, without topics, or with a topic without partitions has an empty answer;
    an Initialize may have a topic without partitions.
    """

    def __init__(self, states: ShareStates) -> None:
        self._states = states

    async def initialize(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The states of share partitions begin, or begin again at an offset."""
        request = read(InitializeStateRequest, version, body)
        results = await _each(request, self._states.initialize, TopicErrors, allows_no_partition=True)
        return write(InitializeStateResponse(results), version)

    async def read(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The leaders of partitions read states, and fence the leaders before them."""
        request = read(ReadStateRequest, version, body)
        return write(ReadStateResponse(await _each(request, self._states.read, TopicStates)), version)

    async def write(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The leaders of partitions write changes."""
        request = read(WriteStateRequest, version, body)
        return write(WriteStateResponse(await _each(request, self._states.write, TopicErrors)), version)

    async def delete(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """States are deleted."""
        request = read(DeleteStateRequest, version, body)
        results = await _each(request, lambda key, _: self._states.delete(key), TopicErrors)
        return write(DeleteStateResponse(results), version)

    async def read_summary(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The start offsets of states, which DescribeShareGroupOffsets shows."""
        request = read(ReadSummaryRequest, version, body)
        results = await _each(request, lambda key, _: self._states.read_summary(key), TopicSummaries)
        return write(ReadSummaryResponse(results), version)


async def _each(
    request: Any,
    ask: Callable[[SharePartitionKey, Any], Awaitable[Any]],
    results_of: Callable[[bytes, tuple[Any, ...]], T],
    *,
    allows_no_partition: bool = False,
) -> tuple[T, ...]:
    """The results by topic, in the order of the request. A partition that is named twice has the last result."""
    topics = request.topics
    if not request.group_id or not (allows_no_partition or all(topic.partitions for topic in topics)):
        return ()
    asked = {(topic.topic_id, one.partition): one for topic in topics for one in topic.partitions}
    keys = [SharePartitionKey(request.group_id, *place) for place in asked]
    answers = await asyncio.gather(*map(ask, keys, asked.values()))
    by_topic: dict[bytes, list[Any]] = {}
    for key, answer in zip(keys, answers, strict=True):
        by_topic.setdefault(key.topic_id, []).append(answer)
    return tuple(results_of(topic_id, tuple(found)) for topic_id, found in by_topic.items())
