"""AssignReplicasToDirs (73) on the wire, where assignments are grouped by directory and topic (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.registration import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from klamm.protocol.value import Value


class AssignedPartition(Value):
    """A partition in the directory."""

    partition_index: int


class AssignedTopic(Value):
    """Partitions of one topic."""

    topic_id: bytes
    partitions: tuple[AssignedPartition, ...]


class AssignedDirectory(Value):
    """The topics and partitions in one directory."""

    id_: bytes
    topics: tuple[AssignedTopic, ...]


class DirectoriesRequest(Value):
    """AssignReplicasToDirs (73)."""

    API_KEY: ClassVar[int] = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    broker_id: int
    broker_epoch: int
    directories: tuple[AssignedDirectory, ...]


class AnsweredPartition(Value):
    """The result of one assignment."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE


class AnsweredTopic(Value):
    """Partitions of one topic."""

    topic_id: bytes
    partitions: tuple[AnsweredPartition, ...]


class AnsweredDirectory(Value):
    """The results of the assignments to one directory."""

    id_: bytes
    topics: tuple[AnsweredTopic, ...]


class DirectoriesResponse(Value):
    """AssignReplicasToDirs (73)."""

    API_KEY: ClassVar[int] = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    error_code: ErrorCode = ErrorCode.NONE
    directories: tuple[AnsweredDirectory, ...] = ()
    throttle_time_ms: int = 0


Grouped = dict[bytes, dict[bytes, dict[int, ErrorCode]]]


def to_wire(request: AssignReplicasToDirsRequest) -> DirectoriesRequest:
    """The same, grouped."""
    grouped = _grouped(request, (ErrorCode.NONE for _ in request.assignments))
    directories = tuple(
        AssignedDirectory(
            directory_id,
            tuple(AssignedTopic(topic_id, tuple(map(AssignedPartition, codes))) for topic_id, codes in topics.items()),
        )
        for directory_id, topics in grouped.items()
    )
    return DirectoriesRequest(request.broker_id, request.broker_epoch, directories)


def from_wire(request: DirectoriesRequest) -> AssignReplicasToDirsRequest:
    """The same, an assignment a partition."""
    assignments = tuple(
        (directory.id_, topic.topic_id, partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    )
    return AssignReplicasToDirsRequest(request.broker_id, request.broker_epoch, assignments)


def answer_to_wire(request: AssignReplicasToDirsRequest, answer: AssignReplicasToDirsResponse) -> DirectoriesResponse:
    """The answer to `request`, grouped."""
    if answer.error_code is not ErrorCode.NONE:
        return DirectoriesResponse(answer.error_code)
    grouped = _grouped(request, iter(answer.partition_errors))
    directories = tuple(
        AnsweredDirectory(
            directory_id,
            tuple(
                AnsweredTopic(topic_id, tuple(AnsweredPartition(*found) for found in codes.items()))
                for topic_id, codes in topics.items()
            ),
        )
        for directory_id, topics in grouped.items()
    )
    return DirectoriesResponse(directories=directories)


def answer_from_wire(request: AssignReplicasToDirsRequest, answer: DirectoriesResponse) -> AssignReplicasToDirsResponse:
    """An error for each assignment of `request`, in its order; one that was not answered counts as unknown."""
    if answer.error_code is not ErrorCode.NONE:
        return AssignReplicasToDirsResponse(answer.error_code)
    found = {
        (directory.id_, topic.topic_id, partition.partition_index): partition.error_code
        for directory in answer.directories
        for topic in directory.topics
        for partition in topic.partitions
    }
    codes = (found.get(assignment, ErrorCode.UNKNOWN_SERVER_ERROR) for assignment in request.assignments)
    return AssignReplicasToDirsResponse(partition_errors=tuple(codes))


def _grouped(request: AssignReplicasToDirsRequest, codes: Iterator[ErrorCode]) -> Grouped:
    grouped: Grouped = {}
    for (directory_id, topic_id, partition), code in zip(request.assignments, codes, strict=True):
        grouped.setdefault(directory_id, {}).setdefault(topic_id, {})[partition] = code
    return grouped
