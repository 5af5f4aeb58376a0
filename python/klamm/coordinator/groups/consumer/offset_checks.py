"""Whether a member of a consumer group may commit or fetch offsets (Kafka's `ConsumerGroup.validateOffsetCommit`)."""

from __future__ import annotations

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ConsumerMember
from klamm.coordinator.groups.modern.offset_checks import MEMBER_EPOCH_MIN_VERSION, check_transactional
from klamm.coordinator.groups.topics import Topics
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import ZERO_ID


def check_commit(group: ConsumerGroup, request: CommitRequest) -> ErrorCode:
    """The error for an OffsetCommit.

    A member may be behind the epoch it has reached, as long as it had the partitions in the epoch that it names.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE  # an admin, or a consumer that assigns its own partitions
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and request.version < MEMBER_EPOCH_MIN_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return _check_epoch(member, epoch, request, None)


def check_transactional_commit(group: ConsumerGroup, request: CommitRequest, topics: Topics) -> ErrorCode:
    """The error for a TxnOffsetCommit."""
    epoch = request.generation_id_or_member_epoch
    return check_transactional(group, request, lambda member: _check_epoch(member, epoch, request, topics))


def _check_epoch(member: ConsumerMember, epoch: int, request: CommitRequest, topics: Topics | None) -> ErrorCode:
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    if epoch > member.member_epoch:
        return stale
    for name, topic_id, partition, *_ in request.offsets():
        found = topics.find(name) if topics is not None and topic_id == ZERO_ID else None
        assigned_at = _assignment_epoch(member, topic_id if found is None else found.topic_id, partition)
        if assigned_at is None or epoch < assigned_at:
            return stale
    return ErrorCode.NONE


def _assignment_epoch(member: ConsumerMember, topic_id: bytes, partition: int) -> int | None:
    for owned in (member.assigned, member.pending_revocation):
        found = owned.get(topic_id, {}).get(partition)
        if found is not None:
            return found
    return None


def check_fetch(member: ConsumerMember, epoch: int) -> ErrorCode:
    """The error for an OffsetFetch of a member that names this epoch."""
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
