"""Which group a request belongs to, and what happens to a group of another kind with the same id."""

from __future__ import annotations

from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.records import GroupRecord
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.protocol.errors import ErrorCode, KafkaError


def find_group(context: ShardContext, group_id: str) -> StreamsGroup:
    """The streams group with this id. Raises GROUP_ID_NOT_FOUND."""
    group = context.modern.find(group_id, StreamsGroup)
    if group is None:
        raise group_not_found(context, group_id)
    return group


def group_not_found(context: ShardContext, group_id: str) -> KafkaError:
    """The error for an id that is not a streams group's."""
    is_other = group_id in context.groups or context.modern.get(group_id)
    detail = "is not a streams group" if is_other else "not found"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {detail}.")


def find_or_make_group(context: ShardContext, group_id: str, records: list[Written]) -> StreamsGroup:
    """The streams group with this id, or a new one, which is not among the groups before its records are applied.

    An empty classic group is replaced. Raises GROUP_ID_NOT_FOUND for any other group.
    """
    classic = context.groups.get(group_id)
    if classic is not None and classic.is_empty:
        log.info("group %s: an empty classic group becomes a streams group", group_id)
        records.append(GroupRecord(group_id, None))
        return StreamsGroup(group_id)
    if classic is None and context.modern.get(group_id) is None:
        return StreamsGroup(group_id)
    return find_group(context, group_id)


def member_of(group: StreamsGroup, member_id: str) -> StreamsMember:
    """The member with this id. Raises UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        detail = f"Member {member_id} is not a member of group {group.group_id}."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, detail)
    return member
