"""A group of a cluster in this process, with its members and its lag."""

from __future__ import annotations

from typing import NamedTuple

from klamm.node.node import Node
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.membership import DEAD, Membership, of_classic_group, of_consumer_group, of_share_group
from klamm.protocol.topic_partition import TopicPartition

DESCRIBE_GROUPS_VERSION = 5
"""The next version answers with an error, not with a state, for groups that do not exist."""


_NOT_THIS_KIND = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupMember(NamedTuple):
    """A member of a group.

    `assigned`: the partitions that it may read now; `target`: those that it will read eventually. In the classic
    protocol they are the same, and `epoch` is None.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    protocol: str
    epoch: int | None
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]


class GroupState(NamedTuple):
    """A group.

    `kind` is classic, consumer or share; `state` is named as in Kafka's answers, such as Stable. `epoch` and
    `assignment_epoch` are those of the group and its target, None for a classic group. `committed`: offsets. `lag`:
    records after the committed offset, of each partition that is assigned or has one; None if nothing was committed. A
    share group commits nothing.
    """

    name: str
    kind: str
    state: str
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    members: tuple[GroupMember, ...]
    committed: dict[TopicPartition, int]
    lag: dict[TopicPartition, int | None]


async def membership(coordinator: Node, name: str) -> Membership:
    """The members of a group. Raises KafkaError, also if there is no such group."""
    (consumer,) = await coordinator.groups.consumer_group_describe([name])
    if consumer.error_code is ErrorCode.NONE:
        return of_consumer_group(consumer)
    if consumer.error_code not in _NOT_THIS_KIND:
        raise KafkaError(consumer.error_code, f"group '{name}' cannot be read")
    (share,) = await coordinator.groups.share_group_describe([name])
    if share.error_code is ErrorCode.NONE:
        return of_share_group(share)
    if share.error_code not in _NOT_THIS_KIND:
        raise KafkaError(share.error_code, f"group '{name}' cannot be read")
    (classic,) = coordinator.groups.describe_groups(DESCRIBE_GROUPS_VERSION, [name])
    if classic.error_code is not ErrorCode.NONE:
        raise KafkaError(classic.error_code, f"group '{name}' cannot be read")
    found = of_classic_group(classic)
    if found.state == DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{name}'")
    return found


def state_of(group: Membership, committed: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> GroupState:
    """The group with its lag; `ends`: high watermarks."""
    members = tuple(
        GroupMember(one.member_id, one.instance_id, one.client_id, one.protocol, one.epoch, one.assigned, one.target)
        for one in group.members
    )
    lag = {one: max(end - committed[one], 0) if one in committed else None for one, end in ends.items()}
    kept = group.name, group.kind, group.state, group.assignor, group.epoch, group.assignment_epoch
    return GroupState(*kept, members, committed, lag)
