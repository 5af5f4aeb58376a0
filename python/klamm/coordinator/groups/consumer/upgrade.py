"""The online upgrade: a live classic group of consumers becomes a consumer group when a member of that joins."""

from __future__ import annotations

from typing import Final

from klamm.coordinator.groups.classic_group import ClassicGroup, Member
from klamm.coordinator.groups.consumer import replay
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ClassicMember, ConsumerMember
from klamm.coordinator.groups.consumer.records import (
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
)
from klamm.coordinator.groups.consumer.subscriptions import Subscriptions
from klamm.coordinator.groups.context import ShardContext
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import ModernGroups
from klamm.coordinator.groups.modern.wire import Target
from klamm.coordinator.groups.topics import Topics
from klamm.coordinator.runtime.log import RecordError
from klamm.protocol.errors import ErrorCode, KafkaError, MalformedRequest
from klamm.protocol.messages.consumer_protocol import Assignment, decode_assignment, decode_subscription

POLICIES: Final = ("upgrade", "bidirectional")
"""The values of group.consumer.migration.policy with which classic groups are upgraded."""


def check_upgrade(context: ShardContext, classic: ClassicGroup) -> None:
    """Raise GROUP_ID_NOT_FOUND if a live classic group must not be upgraded."""
    reason = None
    if context.config.group_consumer_migration_policy not in POLICIES:
        reason = "online upgrade is disabled"
    elif not classic.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > context.config.group_consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _refused(classic, reason)


def _refused(classic: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def upgraded(context: ShardContext, classic: ClassicGroup) -> tuple[ConsumerGroup, list[ConsumerRecord]]:
    """The consumer group that the members of a classic group form, and its records.

    All epochs are the generation. What a member was assigned last is what it owns, and its target. Raises
    GROUP_ID_NOT_FOUND if that cannot be read, and UNKNOWN_SERVER_ERROR if two members have the same partition.
    """
    epoch, group_id = classic.generation_id, classic.group_id
    protocol = _protocol(classic)
    members = [_member(classic, member, protocol, context.topics) for member in classic.members.values()]
    records: list[ConsumerRecord] = [MemberRecord(group_id, one.member_id, one) for one in members]
    records.append(GroupEpochRecord(group_id, (epoch, 0)))
    records += [TargetRecord(group_id, one.member_id, _target(one)) for one in members]
    records.append(TargetEpochRecord(group_id, (epoch, 0)))
    records += [CurrentAssignmentRecord(group_id, one.member_id, CurrentAssignment.of(one)) for one in members]
    try:
        folded = _folded(records, group_id)
    except RecordError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    metadata_hash = Subscriptions(folded).metadata_hash(context.topics)
    records[len(members)] = GroupEpochRecord(group_id, (epoch, metadata_hash))
    return _folded(records, group_id), records


def _folded(records: list[ConsumerRecord], group_id: str) -> ConsumerGroup:
    groups, journal = ModernGroups(lambda *_: None), Journal()
    for record in records:
        replay.apply(groups, journal, record)
    found = groups.find(group_id, ConsumerGroup)
    assert found is not None, group_id
    return found


def _protocol(classic: ClassicGroup) -> str:
    """The protocol of the generation; members that joined during a rebalance may not support it any more."""
    name = classic.protocol_name or ""
    return classic.select_protocol() if classic.members and name not in classic.candidates() else name


def _member(classic: ClassicGroup, member: Member, protocol: str, topics: Topics) -> ConsumerMember:
    try:
        subscription = decode_subscription(member.metadata(protocol))
        assignment = decode_assignment(member.assignment)
    except MalformedRequest as error:
        raise _refused(classic, "the embedded consumer protocol is malformed") from error
    if assignment.user_data:
        reason = (
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade"
        )
        raise _refused(classic, reason)
    return ConsumerMember(
        member.member_id,
        classic.generation_id,
        classic.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
        assigned=_owned(assignment, topics, classic.generation_id),
    )


def _owned(assignment: Assignment, topics: Topics, epoch: int) -> dict[bytes, dict[int, int]]:
    """The partitions of topics that exist, all since an epoch."""
    owned: dict[bytes, dict[int, int]] = {}
    for one in assignment.assigned_partitions:
        found = topics.find(one.topic)
        if found is not None and one.partitions:
            owned.setdefault(found.topic_id, {}).update(dict.fromkeys(one.partitions, epoch))
    return owned


def _target(member: ConsumerMember) -> Target:
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in member.assigned.items()}
