"""The members of a group as its descriptions show them, whichever protocol they use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.protocol.errors import MalformedRequest
from klamm.protocol.messages.consumer_groups import DescribedAssignment, DescribedConsumer, DescribedConsumerGroup
from klamm.protocol.messages.consumer_protocol import decode_assignment
from klamm.protocol.messages.group_messages import DescribedGroup, DescribedMember
from klamm.protocol.messages.share_groups import DescribedShareGroup, DescribedShareMember
from klamm.protocol.messages.streams_messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedTasks,
    TaskIds,
)
from klamm.protocol.topic_partition import TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
"""Kinds of groups, and of the protocols of their members."""
DEAD: Final = "Dead"
"""The state of a group that does not exist."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of a streams group's member. The topic of each is its subtopology."""

    active: tuple[TopicPartition, ...] = ()
    standby: tuple[TopicPartition, ...] = ()
    warmup: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group.

    `assigned`: the partitions that it may read. In the consumer protocol `target` has those that it will read
    eventually, and `epoch` is the member epoch; in the classic protocol they are the same partitions and None. In a
    streams group both are the input partitions of the active tasks, and `tasks` and `target_tasks` are all tasks.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    protocol: str = CLASSIC
    epoch: int | None = None
    subscribed: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] = ()
    process_id: str = ""
    tasks: Tasks = Tasks()
    target_tasks: Tasks = Tasks()


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of a group. `epoch` and `assignment_epoch`: those of the group and its target; None if classic."""

    name: str
    kind: str
    state: str
    assignor: str
    members: tuple[Member, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


def of_consumer_group(group: DescribedConsumerGroup) -> Membership:
    """A group as ConsumerGroupDescribe shows it."""
    return Membership(
        group.group_id,
        CONSUMER,
        group.group_state,
        group.assignor_name,
        tuple(_consumer(one) for one in sorted(group.members, key=lambda member: member.member_id)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _consumer(member: DescribedConsumer) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.lstrip("/"),
        CLASSIC if member.member_type == 0 else CONSUMER,
        member.member_epoch,
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
    )


def _partitions(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted(TopicPartition(one.topic_name, index) for one in topics for index in one.partitions))


def of_share_group(group: DescribedShareGroup) -> Membership:
    """A group as ShareGroupDescribe shows it. Members take their target at once, so it is what they have."""
    members = sorted(group.members, key=lambda member: member.member_id)
    return Membership(
        group.group_id,
        SHARE,
        group.group_state,
        group.assignor_name,
        tuple(map(_share_member, members)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _share_member(member: DescribedShareMember) -> Member:
    topics = member.assignment.topic_partitions
    partitions = tuple(sorted(TopicPartition(one.topic_name, index) for one in topics for index in one.partitions))
    return Member(
        member.member_id,
        None,
        member.client_id,
        member.client_host.lstrip("/"),
        SHARE,
        member.member_epoch,
        tuple(sorted(member.subscribed_topic_names)),
        None,
        partitions,
        partitions,
    )


def of_streams_group(group: DescribedStreamsGroup) -> Membership:
    """A group as StreamsGroupDescribe shows it."""
    subtopologies = (group.topology and group.topology.subtopologies) or ()
    inputs = {
        one.subtopology_id: (*one.source_topics, *(topic.name for topic in one.repartition_source_topics))
        for one in subtopologies
    }
    members = sorted(group.members, key=lambda member: member.member_id)
    return Membership(
        group.group_id,
        STREAMS,
        group.group_state,
        "",
        tuple(_streams_member(one, inputs) for one in members),
        group.group_epoch,
        group.assignment_epoch,
    )


def _streams_member(member: DescribedStreamsMember, inputs: Mapping[str, Iterable[str]]) -> Member:
    tasks, target = _tasks(member.assignment), _tasks(member.target_assignment)
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.lstrip("/"),
        CLASSIC if member.is_classic else STREAMS,
        member.member_epoch,
        tuple(sorted({topic for topics in inputs.values() for topic in topics})),
        None,
        _inputs(tasks, inputs),
        _inputs(target, inputs),
        member.process_id,
        tasks,
        target,
    )


def _tasks(described: DescribedTasks) -> Tasks:
    return Tasks(*map(_task_ids, (described.active_tasks, described.standby_tasks, described.warmup_tasks)))


def _task_ids(tasks: Iterable[TaskIds]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(one.subtopology_id, index) for one in tasks for index in one.partitions))


def _inputs(tasks: Tasks, inputs: Mapping[str, Iterable[str]]) -> tuple[TopicPartition, ...]:
    """The partitions that active tasks read; a topic need not have one for each task of its subtopology."""
    return tuple(sorted({TopicPartition(topic, at) for name, at in tasks.active for topic in inputs.get(name, ())}))


def of_classic_group(group: DescribedGroup) -> Membership:
    """A group as DescribeGroups shows it. Assignments are read if its protocol is the consumer's."""
    members = sorted(group.members, key=lambda member: member.member_id)
    is_consumer = group.protocol_type == "consumer"
    read = tuple(_classic_member(one, _assigned(one.member_assignment) if is_consumer else ()) for one in members)
    return Membership(group.group_id, CLASSIC, group.group_state, group.protocol_data, read)


def _classic_member(member: DescribedMember, assigned: Iterable[TopicPartition]) -> Member:
    partitions = tuple(assigned)
    host = member.client_host.lstrip("/")
    return Member(
        member.member_id, member.group_instance_id, member.client_id, host, assigned=partitions, target=partitions
    )


def _assigned(assignment: bytes) -> list[TopicPartition]:
    """Nothing while the group rebalances, or if another client's bytes cannot be read."""
    try:
        topics = decode_assignment(assignment).assigned_partitions if assignment else ()
    except MalformedRequest:
        return []
    return sorted(TopicPartition(one.topic, index) for one in topics for index in one.partitions)
