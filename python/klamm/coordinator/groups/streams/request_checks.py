"""Checks of a StreamsGroupHeartbeat that need no group (Kafka's `GroupCoordinatorService`)."""

from __future__ import annotations

from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.streams_messages import StreamsGroupHeartbeatRequest, Topology

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY for a changelog with a partition count, UNKNOWN_SERVER_ERROR."""
    _refuse(request.instance_id is not None, "Static membership is not yet supported.")
    _refuse(request.task_offsets is not None, "TaskOffsets are not supported yet.")
    _refuse(request.task_end_offsets is not None, "TaskEndOffsets are not supported yet.")
    _refuse(bool(request.warmup_tasks), "WarmupTasks are not supported yet.")
    subtopologies = () if request.topology is None else request.topology.subtopologies
    has_regex = any(one.source_topic_regex for one in subtopologies)
    _refuse(has_regex, "Regular expressions for source topics are not supported yet.")

    _refuse(not request.member_id.strip(), "MemberId can't be empty.")
    _refuse(not request.group_id.strip(), "GroupId can't be empty.")
    _refuse(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        _refuse(True, "InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        _refuse(True, f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    given = [tasks is not None for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)]
    _refuse(any(given) and not all(given), "If one task-type is non-null, all must be non-null.")
    is_late = request.member_epoch != JOIN_EPOCH and request.topology is not None
    _refuse(is_late, "Topology can only be provided when (re-)joining.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    _refuse(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
    _refuse(request.active_tasks != (), "ActiveTasks must be empty when (re-)joining.")
    _refuse(request.standby_tasks != (), "StandbyTasks must be empty when (re-)joining.")
    _refuse(request.warmup_tasks != (), "WarmupTasks must be empty when (re-)joining.")
    if request.topology is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology must be non-null when (re-)joining.")
    _check_topology(request.topology)


def _check_topology(topology: Topology) -> None:
    for one in topology.subtopologies:
        for topic in one.state_changelog_topics:
            if topic.partitions:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )
    # As in Kafka, whose topology class accepts neither of these.
    if topology.epoch < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Topology epoch must be non-negative.")
    ids = [one.subtopology_id for one in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a subtopology id is repeated")


def _refuse(is_wrong: bool, detail: str) -> None:
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
