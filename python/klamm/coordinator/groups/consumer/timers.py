"""The timers of members of consumer groups: sessions, rebalances, phases of the classic protocol. Soft state."""

from __future__ import annotations

from klamm.coordinator.groups.consumer.member import ConsumerMember, MemberState
from klamm.coordinator.groups.context import ShardContext
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.sessions import (
    classic_join_timer,
    classic_sync_timer,
    member_session_timer,
    rebalance_timer,
)
from klamm.coordinator.groups.modern.settings import MemberSettings


class ConsumerTimers:
    """Arms and cancels timers. A rollback leaves those that were armed: one that fires for nothing has no effect."""

    def __init__(self, context: ShardContext, settings: MemberSettings) -> None:
        self._context, self._timers, self._settings = context, context.timers, settings
        self._armed: dict[tuple[str, str], int] = {}
        """By group and member: the epoch for which the rebalance timer was armed last."""

    def renew_session(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """Restart the member's session."""
        classic = member.classic
        timeout_ms = self._settings.session_timeout_ms(group_id) if classic is None else classic.session_timeout_ms
        self._timers.schedule(member_session_timer(group_id, member.member_id), now_ms + timeout_ms)

    def arm_rebalance(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """A member that has to give up partitions must do so within its rebalance timeout."""
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._armed[group_id, member.member_id] = member.member_epoch
            self._timers.schedule(rebalance_timer(group_id, member.member_id), now_ms + member.rebalance_timeout_ms)

    def is_too_slow(self, group_id: str, member: ConsumerMember) -> bool:
        """The rebalance timer fired: whether the member is still where it was when the timer was armed."""
        armed_epoch = self._armed.get((group_id, member.member_id))
        if member.member_epoch == armed_epoch and member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        self._armed.pop((group_id, member.member_id), None)
        return False

    def await_join(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """A member of the classic protocol was asked to join again: its rebalance timeout begins the first time."""
        key = classic_join_timer(group_id, member.member_id)
        if self._timers.deadline_of(key) is None:
            self._timers.schedule(key, now_ms + member.rebalance_timeout_ms)

    def await_sync(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """A member of the classic protocol has joined, and must send SyncGroup within its rebalance timeout."""
        self._timers.cancel(classic_join_timer(group_id, member.member_id))
        self.renew_session(now_ms, group_id, member)
        self._timers.schedule(classic_sync_timer(group_id, member.member_id), now_ms + member.rebalance_timeout_ms)

    def on_synced(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """A member of the classic protocol has its assignment."""
        self._timers.cancel(classic_sync_timer(group_id, member.member_id))
        self.renew_session(now_ms, group_id, member)

    def on_joined(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """A member joined with the consumer protocol, perhaps after it used the classic one."""
        self._timers.cancel(classic_join_timer(group_id, member.member_id))
        self.on_synced(now_ms, group_id, member)

    def cancel(self, group_id: str, member_id: str, journal: Journal) -> None:
        """Cancel all timers of a member. A rollback that brings the member back arms them again."""
        for timer in (member_session_timer, rebalance_timer, classic_join_timer, classic_sync_timer):
            self._context.cancel_timer(timer(group_id, member_id), journal)
        journal.remove(self._armed, (group_id, member_id))
