"""StreamsGroupHeartbeat (88) and StreamsGroupDescribe (89)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from klamm.broker.handlers.groups import ALL_GROUP_OPERATIONS
from klamm.broker.request import Answer, RequestContext
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.streams_messages import (
    MISSING_INTERNAL_TOPICS,
    DescribedStreamsGroup,
    HeartbeatResult,
    InternalTopic,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
    mentioned_topics,
)
from klamm.protocol.topic_names import INTERNAL_TOPICS, check_topic_name
from klamm.protocol.wire.codec import read, write

SHOWN_FAILURES = 3


class StreamsGroups(Protocol):
    """The group coordinator as these handlers use it. Errors are part of the responses."""

    def heartbeat(
        self, caller: Caller, request: StreamsGroupHeartbeatRequest, answer: Callable[[HeartbeatResult], None]
    ) -> None:
        """StreamsGroupHeartbeat."""
        ...

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedStreamsGroup]:
        """StreamsGroupDescribe."""
        ...


class TopicCreation(Protocol):
    """Creates the internal topics of streams groups in the name of their clients."""

    def create(self, context: RequestContext, topics: Sequence[InternalTopic], retry_ms: int) -> None:
        """Ask the controller for topics, unless that is under way or failed less than `retry_ms` ago."""
        ...

    def failures(self, topics: Iterable[InternalTopic]) -> Mapping[str, str]:
        """Why topics could not be created lately, by name."""
        ...


class StreamsGroupHandlers:
    """Serves the APIs of this file while `is_enabled` says that the cluster has streams groups."""

    def __init__(self, groups: StreamsGroups, topics: TopicCreation, is_enabled: Callable[[], bool]) -> None:
        self._groups, self._topics, self._is_enabled = groups, topics, is_enabled

    def heartbeat(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """A member joins, stays or leaves; internal topics that its topology lacks are created."""
        write_answer: Callable[[HeartbeatResult], None] = answer.written(partial(self._write, context, version))
        request = read(StreamsGroupHeartbeatRequest, version, body)
        code, detail = ErrorCode.NONE, None
        if not self._is_enabled():
            code = ErrorCode.UNSUPPORTED_VERSION
        elif request.topology is not None and (detail := _what_is_wrong(request.topology)) is not None:
            code = ErrorCode.STREAMS_INVALID_TOPOLOGY
        if code is not ErrorCode.NONE:
            write_answer(HeartbeatResult(StreamsGroupHeartbeatResponse(code, detail)))
            return
        # Kafka stores addresses as Java prints them, with a slash where the host name would be.
        caller = Caller(version, context.client_id or "", f"/{context.address}")
        self._groups.heartbeat(caller, request, write_answer)

    def _write(self, context: RequestContext, version: int, result: HeartbeatResult) -> bytes:
        response = result.response
        if result.topics:
            self._topics.create(context, result.topics, 2 * result.heartbeat_interval_ms)
            response = _with_failures(response, self._topics.failures(result.topics))
        return write(response, version)

    async def describe(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Streams groups with their members and topologies."""
        request = read(StreamsGroupDescribeRequest, version, body)
        if not self._is_enabled():
            code = ErrorCode.UNSUPPORTED_VERSION
            refused = tuple(DescribedStreamsGroup(group_id, code) for group_id in request.group_ids)
            return write(StreamsGroupDescribeResponse(refused), version)
        groups = await self._groups.describe(request.group_ids)
        if request.include_authorized_operations:
            groups = [
                group if group.error_code else replace(group, authorized_operations=ALL_GROUP_OPERATIONS)
                for group in groups
            ]
        return write(StreamsGroupDescribeResponse(tuple(groups)), version)


def _what_is_wrong(topology: Topology) -> str | None:
    """Why the names of a topology's topics are refused."""
    names = mentioned_topics(topology)
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        return f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
    invalid = [name for name in names if not _is_valid(name)]
    return f"Topic names {','.join(invalid)} are not valid topic names." if invalid else None


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _with_failures(
    response: StreamsGroupHeartbeatResponse, failures: Mapping[str, str]
) -> StreamsGroupHeartbeatResponse:
    """The response with the reasons why internal topics are still missing."""
    if not failures:
        return response
    shown = ", ".join(f"{name} ({error})" for name, error in list(failures.items())[:SHOWN_FAILURES])
    more = len(failures) - SHOWN_FAILURES
    detail = f"; Creation failed: {shown}{f' and {more} more' if more > 0 else ''}."
    status = tuple(
        replace(one, status_detail=one.status_detail + detail) if one.status_code == MISSING_INTERNAL_TOPICS else one
        for one in response.status or ()
    )
    return replace(response, status=status)
