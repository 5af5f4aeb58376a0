"""Members that leave, or are removed because they were silent or too slow (Kafka's `consumerGroupFenceMembers`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.consumer.downgrade import downgraded, is_downgrade
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import NO_OWNED, STATIC_LEAVE_EPOCH, ConsumerMember
from klamm.coordinator.groups.consumer.records import (
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    PatternRecord,
)
from klamm.coordinator.groups.consumer.subscriptions import Subscriptions
from klamm.coordinator.groups.consumer.timers import ConsumerTimers
from klamm.coordinator.groups.consumer.transition import Transition, removal
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.modern.wire import Owned
from klamm.coordinator.groups.rebalance import Rebalances
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.protocol.errors import ErrorCode


class Departures:
    """Removes members. When only members of the classic protocol are left, the group becomes a classic one."""

    def __init__(self, context: ShardContext, timers: ConsumerTimers, rebalances: Rebalances) -> None:
        self._context, self._timers, self._rebalances = context, timers, rebalances

    def remove(self, now_ms: int, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members. Raises UNKNOWN_SERVER_ERROR if the records are too large."""
        ids = {member.member_id for member in members}
        if is_downgrade(self._context, group, members, len(group.members) - len(ids)):
            stay = [member for member in group.members.values() if member.member_id not in ids]
            classic, records = downgraded(self._context, now_ms, group, stay, {})
            self._become_classic(now_ms, group, classic, records, "the last member of the consumer protocol leaves")
            return
        journal = self._context.write_records(removals(self._context, group, members))
        for member_id in ids:
            self._timers.cancel(group.group_id, member_id, journal)

    def replace_by_classic(self, now_ms: int, step: Transition, holder: ConsumerMember, *, rebalances: bool) -> None:
        """The last member of the consumer protocol is replaced by the member of `step`: the group becomes classic."""
        group = step.group
        stay = [member for member in group.members.values() if member.member_id != holder.member_id]
        names = {step.member.member_id: holder.member_id}
        classic, records = downgraded(self._context, now_ms, group, [*stay, step.member], names)
        reason = "the group was downgraded with an old assignment" if rebalances else None
        self._become_classic(now_ms, group, classic, [*step.records, *records], reason)

    def _become_classic(
        self, now_ms: int, group: ConsumerGroup, classic: ClassicGroup, records: list[Written], reason: str | None
    ) -> None:
        context, members = self._context, list(group.members)
        journal = context.write_records(records)
        log.info("group %s: the consumer group becomes a classic one", group.group_id)
        # The record has only the selected protocol of each member; the members may support more.
        context.groups[group.group_id] = classic
        for member_id in members:
            self._timers.cancel(group.group_id, member_id, journal)
        for one in classic.members.values():
            context.renew_session(now_ms, classic, one)

        def done(done_ms: int, error: ErrorCode) -> None:
            if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT) or context.groups.get(group.group_id) is classic:
                return
            # The consumer group is back. The members ask again.
            self._rebalances.abandon(done_ms, classic, coordinator_error(error))

        context.pipeline.call_when_committed(now_ms, done)
        if reason is not None:
            self._rebalances.prepare(now_ms, classic, reason)


def static_leave(group: ConsumerGroup, member: ConsumerMember) -> list[Written]:
    """A static member leaves temporarily: its partitions are kept, at epoch 0, for the member that rejoins."""
    away = replace(
        member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_OWNED, assigned=_at_epoch_0(member.assigned)
    )
    return [CurrentAssignmentRecord(group.group_id, member.member_id, CurrentAssignment.of(away))]


def _at_epoch_0(owned: Owned) -> Owned:
    return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in owned.items()}


def removals(context: ShardContext, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[Written]:
    """The records that remove members: their tombstones, those of patterns without subscriber, and the group epoch."""
    records: list[Written] = [one for member in members for one in removal(group.group_id, member.member_id)]
    subscriptions = Subscriptions(group)
    records += [PatternRecord(group.group_id, pattern, None) for pattern in subscriptions.remove(members)]
    epoch, metadata_hash = group.group_epoch + 1, subscriptions.metadata_hash(context.topics)
    log.info("group %s: epoch %d, %d members less", group.group_id, epoch, len(members))
    return [*records, GroupEpochRecord(group.group_id, (epoch, metadata_hash))]
