"""StreamsGroupDescribe of one group."""

from __future__ import annotations

from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.streams.tasks import AssignedTasks, TaskSets, task_ids
from klamm.coordinator.groups.streams.topology import described as described_topology
from klamm.protocol.messages.streams_messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedTasks,
    KeyValue,
)


def described(group: StreamsGroup) -> DescribedStreamsGroup:
    """The group with its members."""
    topology = group.topology
    return DescribedStreamsGroup(
        group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if topology is None else described_topology(group.configured, topology),
        members=tuple(_member(member, group.tasks_of(member.member_id)) for member in group.members.values()),
    )


def _member(member: StreamsMember, target: TaskSets) -> DescribedStreamsMember:
    metadata = member.metadata
    return DescribedStreamsMember(
        member.member_id,
        member.member_epoch,
        metadata.instance_id,
        metadata.rack_id,
        metadata.client_id,
        metadata.client_host,
        metadata.topology_epoch,
        metadata.process_id,
        metadata.user_endpoint,
        tuple(KeyValue(*tag) for tag in metadata.client_tags),
        assignment=_tasks(member.assigned),
        target_assignment=_tasks(target),
    )


def _tasks(tasks: AssignedTasks | TaskSets) -> DescribedTasks:
    return DescribedTasks(task_ids(tasks.active), task_ids(tasks.standby), task_ids(tasks.warmup))
