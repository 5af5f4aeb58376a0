"""The phases of a rebalance: members join, the leader assigns, all members sync; and the timeouts of each phase."""

from __future__ import annotations

from typing import Final

from klamm.coordinator.groups.classic_group import ClassicGroup, Member
from klamm.coordinator.groups.context import ShardContext, join_timer, log, session_timer, sync_timer
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import UNKNOWN_MEMBER_ID, JoinGroupResponse, SyncGroupResponse

IN_GENERATION = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)

REPEAT_MS_MIN: Final = 1_000
"""The shortest repetition of a join phase in which no member has joined: a client may send a rebalance timeout of 0."""


class Rebalances:
    """Moves groups from phase to phase."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def prepare_or_complete(self, now_ms: int, group: ClassicGroup, reason: str) -> None:
        """Start a join phase, or check whether the current one is complete."""
        if group.can_rebalance:
            self.prepare(now_ms, group, reason)
        else:
            self.maybe_complete_join(now_ms, group)

    def prepare(self, now_ms: int, group: ClassicGroup, reason: str) -> None:
        """Start a join phase."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_sync_phase(now_ms, group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._context.timers.cancel(sync_timer(group.group_id))
        was_empty = group.state is GroupState.EMPTY
        group.become(GroupState.PREPARING_REBALANCE, now_ms)
        log.info("group %s: rebalance after generation %d (%s)", group.group_id, group.generation_id, reason)
        if was_empty:
            self._await_first_members(now_ms, group)
        elif group.has_all_joined:
            self.complete_join(now_ms, group)
        else:
            self._schedule_join_end(now_ms, group)

    def _await_first_members(self, now_ms: int, group: ClassicGroup) -> None:
        delay_ms = self._context.config.group_initial_rebalance_delay_ms
        group.new_member_added = False
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._context.timers.schedule(join_timer(group.group_id), now_ms + delay_ms)

    def _schedule_join_end(self, now_ms: int, group: ClassicGroup, delay_ms_min: int = 0) -> None:
        group.initial_delay_ms = None
        delay_ms = max(group.rebalance_timeout_ms, delay_ms_min)
        self._context.timers.schedule(join_timer(group.group_id), now_ms + delay_ms)

    def maybe_complete_join(self, now_ms: int, group: ClassicGroup) -> None:
        """End the join phase if all members have joined, but not during the initial delay of an empty group."""
        if group.state is not GroupState.PREPARING_REBALANCE or group.previous_state is GroupState.EMPTY:
            return
        if group.has_all_joined:
            self.complete_join(now_ms, group)

    def on_join_timer(self, now_ms: int, group_id: str) -> None:
        """The join phase or the initial delay has timed out."""
        group = self._context.groups.get(group_id)
        if group is None or group.state is not GroupState.PREPARING_REBALANCE:
            return
        delay_ms = group.initial_delay_ms
        if delay_ms is not None and group.new_member_added and group.initial_remaining_ms != 0:
            group.new_member_added = False
            group.initial_delay_ms = min(
                self._context.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms
            )
            group.initial_remaining_ms = max(group.initial_remaining_ms - delay_ms, 0)
            self._context.timers.schedule(join_timer(group_id), now_ms + group.initial_delay_ms)
        else:
            self.complete_join(now_ms, group)

    def complete_join(self, now_ms: int, group: ClassicGroup) -> None:
        """End the join phase: remove dynamic members that did not rejoin, and start a generation with the others."""
        self._context.timers.cancel(join_timer(group.group_id))
        self._remove_absent(group)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none has rejoined: wait until sessions expire or a member joins.
            log.info("group %s: no member rejoined in time", group.group_id)
            self._schedule_join_end(now_ms, group, REPEAT_MS_MIN)
            return
        group.initial_delay_ms = None
        group.begin_generation(now_ms)
        if group.state is GroupState.EMPTY:
            log.info("group %s: empty after generation %d", group.group_id, group.generation_id)
            self._context.write_group(now_ms, group, {}, lambda _, error: _warn_not_written(group, error))
        else:
            self._answer_joins(now_ms, group)

    def _remove_absent(self, group: ClassicGroup) -> None:
        absent = [m for m in group.members.values() if m.join_ticket is None and m.group_instance_id is None]
        for member in absent:
            self.remove_member(group, member.member_id)
        if absent:
            log.info("group %s: removed %d members that did not rejoin", group.group_id, len(absent))

    def _answer_joins(self, now_ms: int, group: ClassicGroup) -> None:
        log.info("group %s: generation %d with %d members", group.group_id, group.generation_id, len(group.members))
        for member in group.members.values():
            self.complete_member_join(group, member, join_answer(group, member.member_id))
            self._context.renew_session(now_ms, group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        self._context.timers.schedule(sync_timer(group.group_id), now_ms + group.rebalance_timeout_ms)

    def complete_member_join(self, group: ClassicGroup, member: Member, response: JoinGroupResponse) -> None:
        """Answer the member's waiting join, if there is one."""
        ticket = group.await_join(member, None)
        if ticket is not None:
            self._context.reply(ticket, response)

    def complete_member_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        """Answer the member's waiting sync; returns whether there was one."""
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            self._context.reply(ticket, response)
        return ticket is not None

    def fail_joins(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answer every waiting join with the error; the members stay."""
        for member in group.members.values():
            self.complete_member_join(group, member, JoinGroupResponse(error, member.member_id))

    def fail_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answer every waiting sync with the error; the members and their assignments stay."""
        for member in group.members.values():
            self.complete_member_sync(member, SyncGroupResponse(error))

    def abandon(self, now_ms: int, group: ClassicGroup, error: ErrorCode) -> None:
        """The group is removed or unloaded: answer all waiting requests with the error."""
        self.fail_joins(group, error)
        self.fail_syncs(group, error)
        group.become(GroupState.DEAD, now_ms)

    def remove_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member or a pending id. Its waiting requests are answered, so that the member starts again."""
        member = group.members.get(member_id)
        if member is not None:
            unknown_member = JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID)
            self.complete_member_join(group, member, unknown_member)
            self.complete_member_sync(member, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        self._context.timers.cancel(session_timer(group.group_id, member_id))

    def on_session_timer(self, now_ms: int, group_id: str, member_id: str) -> None:
        """The session of a member or of a pending id has expired."""
        group = self._context.groups.get(group_id)
        if group is None:
            return
        if member_id in group.pending_joins:
            self.remove_member(group, member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
                self.complete_join(now_ms, group)
            return
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return
        log.info("group %s: the session of member %s expired", group_id, member_id)
        self.remove_member(group, member_id)
        if group.state in IN_GENERATION:
            self.prepare(now_ms, group, f"the session of {member_id} expired")
        elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
            self.complete_join(now_ms, group)

    def on_sync_timer(self, now_ms: int, group_id: str) -> None:
        """Remove the members that have not synced in time, static ones too."""
        group = self._context.groups.get(group_id)
        if group is None or group.state not in IN_GENERATION or not group.pending_syncs:
            return
        late = list(group.pending_syncs)
        for member_id in late:
            self.remove_member(group, member_id)
        self.prepare(now_ms, group, f"{len(late)} members did not sync in time")

    def note_sync(self, group: ClassicGroup, member_id: str) -> None:
        """The member has sent its SyncGroup of this generation."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._context.timers.cancel(sync_timer(group.group_id))

    def assign(self, now_ms: int, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """Write the leader's assignment. After it is committed, members receive it and the group becomes Stable."""
        generation_id = group.generation_id

        def done(done_ms: int, error: ErrorCode) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return  # a new rebalance has started meanwhile
            if error is ErrorCode.NONE:
                self._become_stable(done_ms, group, assignments)
            else:
                log.warning("group %s: the assignment could not be written: %s", group.group_id, error.name)
                self.fail_sync_phase(done_ms, group, coordinator_error(error))
                self.prepare(done_ms, group, f"the assignment could not be written: {error.name}")

        self._context.write_group(now_ms, group, assignments, done)

    def _become_stable(self, now_ms: int, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if self.complete_member_sync(member, sync_answer(group, member)):
                self._context.renew_session(now_ms, group, member)
        group.become(GroupState.STABLE, now_ms)
        self._context.counts.completed_rebalances += 1

    def fail_sync_phase(self, now_ms: int, group: ClassicGroup, error: ErrorCode) -> None:
        """Discard all assignments and answer every waiting sync with the error."""
        for member in group.members.values():
            member.assignment = b""
            if self.complete_member_sync(member, SyncGroupResponse(error)):
                self._context.renew_session(now_ms, group, member)


def join_answer(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The response to a member's join. Only the leader's lists the members."""
    return JoinGroupResponse(
        ErrorCode.NONE,
        member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        skip_assignment,
        group.leader_view() if member_id == group.leader_id else (),
    )


def sync_answer(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The member's assignment."""
    return SyncGroupResponse(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _warn_not_written(group: ClassicGroup, error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        # A restart would load the previous generation; its members do not exist, so their sessions expire there too.
        log.warning("group %s: the empty state could not be written: %s", group.group_id, error.name)
