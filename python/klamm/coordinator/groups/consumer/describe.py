"""ConsumerGroupDescribe of one group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ConsumerMember
from klamm.coordinator.groups.context import ShardContext
from klamm.coordinator.groups.topics import Topics
from klamm.protocol.messages.consumer_groups import (
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedPartitions,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def described(context: ShardContext, group: ConsumerGroup) -> DescribedConsumerGroup:
    """The group with its members. Topics that do not exist any more are left out."""
    members = (_member(group, member, context.topics) for member in group.members.values())
    return DescribedConsumerGroup(
        group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor or context.config.group_consumer_assignors[0],
        members=tuple(members),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> DescribedConsumer:
    # A member still reads what it has yet to revoke (KAFKA-20431).
    held: dict[bytes, set[int]] = {}
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, set()).update(partitions)
    return DescribedConsumer(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex,
        _assignment(held, topics),
        _assignment(group.target_of(member.member_id), topics),
        CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> DescribedAssignment:
    named = ((topic_id, topics.name_of(topic_id), found) for topic_id, found in partitions.items())
    described = (
        DescribedPartitions(topic_id, name, tuple(sorted(found))) for topic_id, name, found in named if name is not None
    )
    return DescribedAssignment(tuple(described))
