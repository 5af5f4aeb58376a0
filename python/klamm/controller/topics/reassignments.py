"""Reassigning partitions to other replicas (KIP-455; `ReplicationControlManager.alterPartitionReassignments`).

A reassignment adds the new replicas to a partition. Any later change of the partition that finds it complete removes
the old ones: when all added replicas are in sync and, if the partition shrinks, all that remain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from klamm._engine.controller import Elections
from klamm._engine.metadata import PartitionInfo
from klamm.controller.result import Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.controller.topics.placement import check_replicas
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

log = logging.getLogger(__name__)


def alter_reassignments(
    elections: Elections,
    state: Speculation,
    request: AlterPartitionReassignmentsRequest,
    is_unclean_allowed: Callable[[str], bool],
) -> Result[AlterPartitionReassignmentsResponse]:
    """Begin and cancel all reassignments of the request that are valid, in one batch. Raises POLICY_VIOLATION.

    `is_unclean_allowed` says whether a topic allows unclean elections.
    """
    if not request.topics:
        return Result(AlterPartitionReassignmentsResponse(error_message=""))  # the text as Kafka leaves it
    is_factor_free = request.allow_replication_factor_change
    reassignments = _Reassignments(elections, state, is_unclean_allowed, is_factor_free=is_factor_free)
    responses = tuple(
        ReassignableTopicResponse(topic.name, tuple(reassignments.alter(topic.name, each) for each in topic.partitions))
        for topic in request.topics
    )
    check_record_count(reassignments.records)
    answer = AlterPartitionReassignmentsResponse(responses, allow_replication_factor_change=is_factor_free)
    return Result(answer, reassignments.records)


def list_reassignments(
    state: Speculation, request: ListPartitionReassignmentsRequest
) -> Result[ListPartitionReassignmentsResponse]:
    """The partitions that are being reassigned, of all topics or of some."""
    topics: Iterable[OngoingTopicReassignment]
    if request.topics is None:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in state.image.reassigning_partitions():
            by_topic.setdefault(topic_id, []).append(index)
        topics = (_ongoing(state, topic_id, indexes) for topic_id, indexes in by_topic.items())
    else:
        ids = ((state.image.topic_id(topic.name), topic.partition_indexes) for topic in request.topics)
        topics = (_ongoing(state, topic_id, indexes) for topic_id, indexes in ids if topic_id is not None)
    return Result(ListPartitionReassignmentsResponse(tuple(topic for topic in topics if topic.partitions)))


def _ongoing(state: Speculation, topic_id: bytes, indexes: Iterable[int]) -> OngoingTopicReassignment:
    name = state.image.topic_name(topic_id)
    assert name is not None, "the image has just named the topic"
    found = (state.image.partition(topic_id, index) for index in indexes)
    return OngoingTopicReassignment(
        name,
        tuple(
            OngoingPartitionReassignment(
                each.index, tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for each in found
            if each is not None and _is_reassigned(each)
        ),
    )


class _Reassignments:
    """The reassignments of a request, each of another partition."""

    def __init__(
        self,
        elections: Elections,
        state: Speculation,
        is_unclean_allowed: Callable[[str], bool],
        *,
        is_factor_free: bool,
    ) -> None:
        self._elections, self._state = elections, state
        self._is_unclean_allowed, self._is_factor_free = is_unclean_allowed, is_factor_free
        self._changed: set[tuple[bytes, int]] = set()
        self.records: list[bytes] = []

    def alter(self, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
        """The answer for a partition; its record, if it needs one, is in `records`."""
        index = wanted.partition_index
        try:
            self._alter(topic, wanted)
        except KafkaError as error:
            log.info("Partition %s-%d is not reassigned: %s", topic, index, error)
            return ReassignablePartitionResponse(index, error.code, error.message)
        return ReassignablePartitionResponse(index)

    def _alter(self, topic: str, wanted: ReassignablePartition) -> None:
        topic_id, index = self._state.image.topic_id(topic), wanted.partition_index
        if topic_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'.")
        partition = self._state.image.partition(topic_id, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}.")
        if (topic_id, index) in self._changed:
            # Unlike Kafka, where both changes start from the same state, and replicas can be lost.
            text = f"The request has reassigned {topic}-{index} already."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if wanted.replicas is None:
            record = self._cancelled(topic_id, topic, partition)
        else:
            record = self._begun(topic_id, partition, wanted.replicas)
        if record is not None:
            self._changed.add((topic_id, index))
            self.records.append(record)

    def _begun(self, topic_id: bytes, partition: PartitionInfo, replicas: tuple[int, ...]) -> bytes | None:
        check_replicas(self._state, partition.index, replicas)
        if not self._is_factor_free:
            _check_factor(partition, len(replicas))
        removing = sorted(set(partition.replicas) - set(replicas))
        adding = sorted(set(replicas) - set(partition.replicas))
        # As in Kafka, replicas that an earlier reassignment adds are waited for if this one adds none. Unlike in Kafka,
        # where such a reassignment never ends or removes a wanted replica, not if they are to be removed now; and what
        # the earlier one removes does not count.
        waited_for = [each for each in partition.adding_replicas if each not in removing]
        return self._elections.change(
            topic_id,
            partition.index,
            replicas=[*replicas, *removing],
            removing_replicas=removing,
            adding_replicas=adding or waited_for,
            election="online",
        )

    def _cancelled(self, topic_id: bytes, topic: str, partition: PartitionInfo) -> bytes | None:
        if not _is_reassigned(partition):
            text = f"No reassignment of {topic}-{partition.index} is in progress."
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text)
        adding = partition.adding_replicas
        replicas = [each for each in partition.replicas if each not in adding]
        isr = [each for each in partition.isr if each not in adding]
        if not replicas:
            text = f"All replicas of {topic}-{partition.index} were added by the reassignment."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if not isr:
            if not self._is_unclean_allowed(topic):
                text = f"Without its reassignment {topic}-{partition.index} would need an unclean election."
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
            isr = replicas[:1]
        return self._elections.change(
            topic_id, partition.index, isr=isr, replicas=replicas, removing_replicas=[], adding_replicas=[]
        )


def _check_factor(partition: PartitionInfo, count: int) -> None:
    removing = set(partition.removing_replicas)
    factor = len({*partition.replicas, *partition.adding_replicas} - removing)
    if factor != count:
        text = f"The replication factor would change from {factor} to {count}."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _is_reassigned(partition: PartitionInfo) -> bool:
    return bool(partition.removing_replicas or partition.adding_replicas)
