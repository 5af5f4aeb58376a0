"""A group of a cluster in this process, with its members and its lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klamm.node.node import Node
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.membership import (
    DEAD,
    Membership,
    of_classic_group,
    of_consumer_group,
    of_share_group,
    of_streams_group,
)
from klamm.protocol.messages.share_groups import DescribedOffsetsGroup
from klamm.protocol.topic_partition import TopicPartition

DESCRIBE_GROUPS_VERSION = 5
"""The next version answers with an error, not with a state, for groups that do not exist."""


_NOT_THIS_KIND = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupMember(NamedTuple):
    """A member of a group.

    `assigned`: the partitions that it may read now; `target`: those that it will read eventually. In the classic
    protocol they are the same, and `epoch` is None. In a streams group both are what the active tasks read.
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

    `kind` is classic, consumer, share or streams; `state` is named as in Kafka's answers, such as Stable. `epoch` and
    `assignment_epoch` are those of the group and its target, None for a classic group. `committed`: offsets; in a share
    group those before which every record was processed. `lag`: the records that are left, of each partition that is
    assigned or has such an offset; None if it has none.
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
    groups = coordinator.groups
    kinds: tuple[tuple[Any, Any], ...] = (
        (groups.consumer_group_describe, of_consumer_group),
        (groups.share_group_describe, of_share_group),
        (groups.streams.describe, of_streams_group),
    )
    for describe, read in kinds:
        (described,) = await describe([name])
        if described.error_code is ErrorCode.NONE:
            found: Membership = read(described)
            return found
        if described.error_code not in _NOT_THIS_KIND:
            raise KafkaError(described.error_code, f"group '{name}' cannot be read")
    (classic,) = groups.describe_groups(DESCRIBE_GROUPS_VERSION, [name])
    if classic.error_code is not ErrorCode.NONE:
        raise KafkaError(classic.error_code, f"group '{name}' cannot be read")
    found = of_classic_group(classic)
    if found.state == DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{name}'")
    return found


def partitions_of(group: Membership, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions that are assigned or have an offset."""
    return sorted({*committed, *(partition for member in group.members for partition in member.assigned)})


def lag_of(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The records between committed offsets and `ends`, the high watermarks."""
    return {one: max(ends[one] - offset, 0) for one, offset in committed.items() if one in ends}


def share_progress(group: DescribedOffsetsGroup) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The start offsets and the lag of a share group. Raises KafkaError."""
    if group.error_code is not ErrorCode.NONE:
        raise KafkaError(group.error_code, f"the offsets of group '{group.group_id}' cannot be read")
    offsets = {
        TopicPartition(topic.topic_name, one.partition_index): one for topic in group.topics for one in topic.partitions
    }
    starts = {place: one.start_offset for place, one in offsets.items() if one.start_offset >= 0}
    return starts, {place: one.lag for place, one in offsets.items() if one.lag >= 0}


def state_of(
    group: Membership,
    partitions: Iterable[TopicPartition],
    committed: dict[TopicPartition, int],
    lag: Mapping[TopicPartition, int],
) -> GroupState:
    """The group with the lag of each of its partitions."""
    members = tuple(
        GroupMember(one.member_id, one.instance_id, one.client_id, one.protocol, one.epoch, one.assigned, one.target)
        for one in group.members
    )
    kept = group.name, group.kind, group.state, group.assignor, group.epoch, group.assignment_epoch
    return GroupState(*kept, members, committed, {one: lag.get(one) for one in partitions})
