"""Adding partitions to topics (`ReplicationControlManager.createPartitions`)."""

from __future__ import annotations

from collections import Counter

from klamm._engine.controller import partition_records
from klamm.controller.mutation_quotas import Charge
from klamm.controller.result import MAX_RECORDS_PER_BATCH, Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.controller.topics.placement import Assignments, check_assignment, place
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(
    state: Speculation, request: CreatePartitionsRequest, seed: int, charge: Charge
) -> Result[CreatePartitionsResponse]:
    """Add partitions to all topics of the request for which that is valid, in one batch."""
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    records: list[bytes] = []
    for at, topic in enumerate(request.topics):
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += _records(state, topic, seed + at, charge)
            results[topic.name] = CreatePartitionsTopicResult(topic.name)
        except KafkaError as error:
            results[topic.name] = CreatePartitionsTopicResult(topic.name, error.code, error.message)
    check_record_count(records)
    answer = CreatePartitionsResponse(tuple(results.values()))
    return Result(answer, () if request.validate_only else records)


def _records(state: Speculation, topic: CreatePartitionsTopic, seed: int, charge: Charge) -> list[bytes]:
    topic_id = state.image.topic_id(topic.name)
    first = None if topic_id is None else state.image.partition(topic_id, 0)
    if topic_id is None or first is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    start = state.image.topic_partition_count(topic_id)
    additional = topic.count - start
    _check_count(topic, start, additional)
    charge(additional)
    factor = len(first.replicas)
    if topic.assignments is None:
        assignments = place(state, additional, factor, seed)
    else:
        assignments = _checked(state, topic, start, additional, factor)
    return partition_records(state.image, topic_id, start, assignments)


def _check_count(topic: CreatePartitionsTopic, start: int, additional: int) -> None:
    if additional == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {start} partition(s).")
    if additional < 0:
        text = f"Topic '{topic.name}' has {start} partition(s): {topic.count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    if additional > MAX_RECORDS_PER_BATCH:
        text = f"{additional} partitions are too many: at most {MAX_RECORDS_PER_BATCH} can be added at once."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)


def _checked(state: Speculation, topic: CreatePartitionsTopic, start: int, additional: int, factor: int) -> Assignments:
    given = topic.assignments or ()
    if len(given) != additional:
        text = f"{additional} partition(s) are to be added, but {len(given)} are assigned."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    for index, assignment in enumerate(given, start):
        check_assignment(state, index, assignment.broker_ids, factor)
    return [assignment.broker_ids for assignment in given]
