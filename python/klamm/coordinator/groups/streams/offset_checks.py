"""Whether a member of a streams group may commit or fetch offsets (Kafka's `StreamsGroup.validateOffsetCommit`)."""

from __future__ import annotations

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.modern.offset_checks import MEMBER_EPOCH_MIN_VERSION, check_transactional
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.protocol.errors import ErrorCode


def check_commit(group: StreamsGroup, request: CommitRequest) -> ErrorCode:
    """The error for an OffsetCommit.

    A member may be behind the epoch it has reached, as long as it had the tasks in the epoch that it names.
    """
    if request.generation_id_or_member_epoch < 0 and group.is_empty:
        return ErrorCode.NONE  # an admin, or a consumer that assigns its own partitions
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.version < MEMBER_EPOCH_MIN_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return _check_epoch(group, member, request)


def check_transactional_commit(group: StreamsGroup, request: CommitRequest) -> ErrorCode:
    """The error for a TxnOffsetCommit."""
    return check_transactional(group, request, lambda member: _check_epoch(group, member, request))


def _check_epoch(group: StreamsGroup, member: StreamsMember, request: CommitRequest) -> ErrorCode:
    epoch = request.generation_id_or_member_epoch
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    if epoch > member.member_epoch:
        return ErrorCode.STALE_MEMBER_EPOCH
    for name, _, partition, *_ in request.offsets():
        assigned_at = _assignment_epoch(group, member, name, partition)
        if assigned_at is None or epoch < assigned_at:
            return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE


def _assignment_epoch(group: StreamsGroup, member: StreamsMember, topic: str, partition: int) -> int | None:
    """The epoch in which the member got the task that reads a partition."""
    subtopology_id = group.subtopology_of.get(topic, "")
    for tasks in (member.assigned, member.pending_revocation):
        found = tasks.active.get(subtopology_id, {}).get(partition)
        if found is not None:
            return found
    return None


def check_fetch(member: StreamsMember, epoch: int) -> ErrorCode:
    """The error for an OffsetFetch of a member that names this epoch."""
    return ErrorCode.NONE if epoch == member.member_epoch else ErrorCode.STALE_MEMBER_EPOCH
