"""Operations on topics and their partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm.controller.mutation_quotas import Charge
from klamm.controller.operations.operation import Operation, PendingRequest
from klamm.controller.result import Result
from klamm.controller.topics.topics import RANDOM_BYTES_PER_TOPIC
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import topics

if TYPE_CHECKING:
    from klamm.controller.decisions import Decisions

A = TypeVar("A", topics.CreateTopicsResponse, topics.DeleteTopicsResponse, topics.CreatePartitionsResponse)


def _refuse_create_topics(
    request: topics.CreateTopicsRequest, code: ErrorCode, message: str | None
) -> topics.CreateTopicsResponse:
    results = {
        topic.name: topics.CreatableTopicResult(topic.name, error_code=code, error_message=message)
        for topic in request.topics
    }
    return topics.CreateTopicsResponse(tuple(results.values()))


def _refuse_delete_topics(
    request: topics.DeleteTopicsRequest, code: ErrorCode, message: str | None
) -> topics.DeleteTopicsResponse:
    by_state = [topics.DeletableTopicResult(each.name, each.topic_id, code, message) for each in request.topics]
    by_name = [topics.DeletableTopicResult(name, topics.ZERO_ID, code, message) for name in request.topic_names]
    return topics.DeleteTopicsResponse((*by_state, *by_name))


def _refuse_create_partitions(
    request: topics.CreatePartitionsRequest, code: ErrorCode, message: str | None
) -> topics.CreatePartitionsResponse:
    results = {each.name: topics.CreatePartitionsTopicResult(each.name, code, message) for each in request.topics}
    return topics.CreatePartitionsResponse(tuple(results.values()))


def _refuse_elect_leaders(
    request: topics.ElectLeadersRequest, code: ErrorCode, message: str | None
) -> topics.ElectLeadersResponse:
    # v0 has no code for the whole, so each partition carries it.
    results = tuple(
        topics.ReplicaElectionResult(
            each.topic, tuple(topics.PartitionResult(partition, code, message) for partition in each.partitions)
        )
        for each in request.topic_partitions or ()
    )
    return topics.ElectLeadersResponse(results, code)


def _charged(
    decisions: Decisions, asked: PendingRequest[Any], decide: Callable[[Charge], Result[A]], *, strict_since: int
) -> Result[A]:
    """The result of `decide`, charged to the client's quota.

    The quota is strict from the request version on whose clients know THROTTLING_QUOTA_EXCEEDED.
    """
    is_strict = asked.api_version >= strict_since
    quota = decisions.mutation_quota(asked.requester, asked.now_ms, is_strict=is_strict)
    if quota is None:
        return decide(lambda partition_count: None)
    result = decide(quota.charge)
    return result._replace(answer=replace(result.answer, throttle_time_ms=quota.throttle_time_ms))


CREATE_TOPICS: Final = Operation(
    ApiKey.CREATE_TOPICS,
    topics.CreateTopicsRequest,
    topics.CreateTopicsResponse,
    lambda decisions, asked: _charged(
        decisions,
        asked,
        partial(
            decisions.create_topics,
            asked.request,
            asked.random_bytes(RANDOM_BYTES_PER_TOPIC * len(asked.request.topics)),
        ),
        strict_since=6,
    ),
    _refuse_create_topics,
    timeout_ms=lambda request: request.timeout_ms,
)
DELETE_TOPICS: Final = Operation(
    ApiKey.DELETE_TOPICS,
    topics.DeleteTopicsRequest,
    topics.DeleteTopicsResponse,
    lambda decisions, asked: _charged(
        decisions, asked, partial(decisions.delete_topics, asked.request, asked.api_version), strict_since=5
    ),
    _refuse_delete_topics,
    timeout_ms=lambda request: request.timeout_ms,
)
CREATE_PARTITIONS: Final = Operation(
    ApiKey.CREATE_PARTITIONS,
    topics.CreatePartitionsRequest,
    topics.CreatePartitionsResponse,
    lambda decisions, asked: _charged(
        decisions,
        asked,
        partial(decisions.create_partitions, asked.request, int.from_bytes(asked.random_bytes(8), "big")),
        strict_since=3,
    ),
    _refuse_create_partitions,
    timeout_ms=lambda request: request.timeout_ms,
)
ELECT_LEADERS: Final = Operation(
    ApiKey.ELECT_LEADERS,
    topics.ElectLeadersRequest,
    topics.ElectLeadersResponse,
    lambda decisions, asked: decisions.elect_leaders(asked.request),
    _refuse_elect_leaders,
    timeout_ms=lambda request: request.timeout_ms,
)
