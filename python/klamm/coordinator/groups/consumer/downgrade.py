"""The online downgrade: a consumer group whose members all use the classic protocol becomes a classic group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klamm.coordinator.groups.classic_group import ClassicGroup, Member
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ConsumerMember
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.records import GroupRecord
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from klamm.coordinator.groups.topics import Topics
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.messages.consumer_protocol import (
    Assignment,
    TopicPartitions,
    encode_assignment,
    subscription_version,
)

POLICIES: Final = ("downgrade", "bidirectional")
"""The values of group.consumer.migration.policy with which consumer groups are downgraded."""


def is_downgrade(context: ShardContext, group: ConsumerGroup, going: Collection[ConsumerMember], left: int) -> bool:
    """Whether `left` members of the classic protocol remain when `going` go, and may form a classic group."""
    ids = {member.member_id for member in going}
    stay = (member for member in group.members.values() if member.member_id not in ids)
    if left <= 0 or any(member.classic is None for member in stay):
        return False
    if context.config.group_consumer_migration_policy not in POLICIES:
        log.info("group %s: the online downgrade is disabled", group.group_id)
        return False
    return left <= context.config.group_max_size


def downgraded(
    context: ShardContext,
    now_ms: int,
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    targets: Mapping[str, str],
) -> tuple[ClassicGroup, list[Written]]:
    """The classic group of `members`, whose assignments are their targets, and the records that replace the group.

    `targets` has the member whose target a member gets, where that is another; its id is that of a replaced member.
    """
    classic = ClassicGroup(
        group.group_id,
        GroupState.STABLE,
        generation_id=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state_timestamp_ms=now_ms,
    )
    for member in members:
        assert member.classic is not None, member.member_id
        classic.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                member.classic.protocols,
            ),
            None,
        )
    classic.protocol_name = classic.select_protocol()
    classic.topics = classic.read_topics()
    for one in classic.members.values():
        target = group.target_of(targets.get(one.member_id, one.member_id))
        one.assignment = encoded(target, one.metadata(classic.protocol_name), context.topics)
    renamed = {old: new for new, old in targets.items()}
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    return classic, [*group.tombstones(renamed), GroupRecord(group.group_id, classic.to_record(assignments))]


def encoded(partitions: Mapping[bytes, Iterable[int]], subscription: bytes, topics: Topics) -> bytes:
    """Partitions as an assignment of the classic protocol, in the version of the member's subscription.

    In version 0, which all versions begin with, if the subscription cannot be read.
    """
    named = [(topics.name_of(topic_id), tuple(sorted(found))) for topic_id, found in partitions.items()]
    listed: Sequence[TopicPartitions] = [TopicPartitions(name, found) for name, found in named if name is not None]
    try:
        version = subscription_version(subscription)
    except MalformedRequest:
        version = 0
    return encode_assignment(Assignment(tuple(listed)), version)
