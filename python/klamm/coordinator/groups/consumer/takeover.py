"""Which group a heartbeat belongs to, and what happens to a group of another kind with the same id."""

from __future__ import annotations

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.timers import ConsumerTimers
from klamm.coordinator.groups.consumer.upgrade import check_upgrade, upgraded
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.rebalance import Rebalances
from klamm.coordinator.groups.records import GroupRecord
from klamm.protocol.errors import ErrorCode, KafkaError


class Takeover:
    """Finds, creates or converts groups."""

    def __init__(self, context: ShardContext, timers: ConsumerTimers, rebalances: Rebalances) -> None:
        self._context, self._timers, self._rebalances = context, timers, rebalances

    def consumer_group(self, group_id: str, records: list[Written], *, creates: bool) -> ConsumerGroup:
        """The consumer group with this id, or a new one if `creates`; it is not among the groups before its records.

        An empty classic group is replaced, and one with members is upgraded. Raises GROUP_ID_NOT_FOUND.
        """
        context = self._context
        group = context.modern.find(group_id, ConsumerGroup)
        if group is not None:
            return group
        classic = context.groups.get(group_id)
        if classic is None or not creates:
            if creates and context.modern.get(group_id) is None:
                return ConsumerGroup(group_id)
            raise group_not_found(context, group_id, "Consumer group")
        if classic.is_empty:
            log.info("group %s: an empty classic group becomes a consumer group", group_id)
            records.append(GroupRecord(group_id, None))
            return ConsumerGroup(group_id)
        check_upgrade(context, classic)
        made, more = upgraded(context, classic)
        records += [GroupRecord(group_id, None), *more]
        return made

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """The live classic group that a heartbeat upgrades, if it does."""
        group = self._context.groups.get(group_id)
        return None if group is None or group.is_empty else group

    def on_upgraded(self, now_ms: int, classic: ClassicGroup) -> None:
        """The records of an upgrade are written: members that wait join again, and all have new sessions."""
        log.info("group %s: the classic group becomes a consumer group", classic.group_id)
        code = ErrorCode.REBALANCE_IN_PROGRESS
        self._rebalances.fail_joins(classic, code)
        self._rebalances.fail_syncs(classic, code)
        group = self._context.modern.find(classic.group_id, ConsumerGroup)
        assert group is not None, classic.group_id
        for member_id in classic.members:
            member = group.members.get(member_id)
            if member is not None:
                self._timers.renew_session(now_ms, group.group_id, member)


def group_not_found(context: ShardContext, group_id: str, kind: str = "Group") -> KafkaError:
    """The error for an id that is not a consumer group's."""
    is_other = group_id in context.groups or context.modern.get(group_id)
    message = f"Group {group_id} is not a consumer group." if is_other else f"{kind} {group_id} not found."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
