"""Operations on the replicas of partitions: ISR changes of leaders, and reassignments."""

from __future__ import annotations

from typing import Final

from klamm.controller.operations.operation import Operation
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import partition_changes, reassignments


def _refuse_reassignments(
    request: reassignments.AlterPartitionReassignmentsRequest, code: ErrorCode, message: str | None
) -> reassignments.AlterPartitionReassignmentsResponse:
    responses = tuple(
        reassignments.ReassignableTopicResponse(
            topic.name,
            tuple(
                reassignments.ReassignablePartitionResponse(each.partition_index, code, message)
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return reassignments.AlterPartitionReassignmentsResponse(responses, code, message)


def _refuse_list(
    request: reassignments.ListPartitionReassignmentsRequest, code: ErrorCode, message: str | None
) -> reassignments.ListPartitionReassignmentsResponse:
    topics = tuple(
        reassignments.OngoingTopicReassignment(
            topic.name, tuple(map(reassignments.OngoingPartitionReassignment, topic.partition_indexes))
        )
        for topic in request.topics or ()
    )
    return reassignments.ListPartitionReassignmentsResponse(topics, code, message)


ALTER_PARTITION: Final = Operation(
    ApiKey.ALTER_PARTITION,
    partition_changes.AlterPartitionRequest,
    partition_changes.AlterPartitionResponse,
    lambda decisions, asked: decisions.alter_partition(asked.request),
    lambda request, code, message: partition_changes.AlterPartitionResponse(code),
)
ALTER_PARTITION_REASSIGNMENTS: Final = Operation(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    reassignments.AlterPartitionReassignmentsRequest,
    reassignments.AlterPartitionReassignmentsResponse,
    lambda decisions, asked: decisions.alter_partition_reassignments(asked.request),
    _refuse_reassignments,
    timeout_ms=lambda request: request.timeout_ms if request.topics else 1,
)
LIST_PARTITION_REASSIGNMENTS: Final = Operation(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    reassignments.ListPartitionReassignmentsRequest,
    reassignments.ListPartitionReassignmentsResponse,
    lambda decisions, asked: decisions.list_partition_reassignments(asked.request),
    _refuse_list,
)
