"""JoinGroup: which members join, with which id, and when a join starts a rebalance (KIP-345, KIP-394)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from klamm.coordinator.groups.classic_group import ClassicGroup, Member
from klamm.coordinator.groups.consumer.classic_members import ClassicMembers
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.context import SHARE, ShardContext, log, session_timer
from klamm.coordinator.groups.rebalance import Rebalances, join_answer
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import (
    UNKNOWN_MEMBER_ID,
    Caller,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupResponse,
)
from klamm.protocol.value import Value

MEMBER_ID_REQUIRED_MIN_VERSION: Final = 4
SKIP_ASSIGNMENT_MIN_VERSION: Final = 9


class Attempt(Value):
    """A JoinGroup request and its group."""

    now_ms: int
    ticket: Ticket
    caller: Caller
    request: JoinGroupRequest
    group: ClassicGroup

    @property
    def reason(self) -> str:
        """The client's reason for the join, for the log."""
        return f"client reason: {self.request.reason or 'not provided'}"


class Joins:
    """Handles JoinGroup."""

    def __init__(self, context: ShardContext, rebalances: Rebalances, classic_members: ClassicMembers) -> None:
        """`classic_members` handles the joins to consumer groups with members."""
        self._context = context
        self._rebalances = rebalances
        self._classic_members = classic_members

    def on_join(self, now_ms: int, ticket: Ticket, caller: Caller, request: JoinGroupRequest) -> None:
        """Respond, or wait for the other members."""
        modern = self._context.modern.get(request.group_id)
        if isinstance(modern, ConsumerGroup) and not modern.is_empty:
            self._classic_members.on_join(now_ms, ticket, caller, request, modern)
            return
        if modern is not None and (not modern.is_empty or modern.kind == SHARE):
            self._refuse(ticket, UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        group = self._context.groups.get(request.group_id)
        if group is not None:
            self._join(Attempt(now_ms, ticket, caller, request, group))
        elif request.member_id != UNKNOWN_MEMBER_ID:
            self._refuse(ticket, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            group = self._context.create_group(now_ms, request.group_id)
            self._join(Attempt(now_ms, ticket, caller, request, group))
            self._write_new_group(now_ms, group)

    def _write_new_group(self, now_ms: int, group: ClassicGroup) -> None:
        def done(done_ms: int, error: ErrorCode) -> None:
            if error is ErrorCode.NONE or group.state is GroupState.DEAD:  # unloaded meanwhile: all was answered
                return
            log.warning("group %s: its creation could not be written: %s", group.group_id, error.name)
            code = coordinator_error(error)
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self._rebalances.fail_joins(group, code)
            else:
                self._rebalances.abandon(done_ms, group, code)

        self._context.write_new_group(now_ms, group, done)

    def _refuse(self, ticket: Ticket, member_id: str, error: ErrorCode) -> None:
        self._context.reply(ticket, JoinGroupResponse(error, member_id))

    def _join(self, attempt: Attempt) -> None:
        request, group = attempt.request, attempt.group
        if not self._has_room(group, request.member_id):
            self._rebalances.remove_member(group, request.member_id)
            self._refuse(attempt.ticket, UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(attempt.ticket, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == UNKNOWN_MEMBER_ID:
            self._join_unknown(attempt)
        elif request.member_id not in group.pending_joins:
            self._rejoin(attempt)
        elif request.group_instance_id is not None:  # only dynamic members are assigned an id before they join
            self._refuse(attempt.ticket, request.member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._add(attempt, request.member_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._context.config.group_max_size
        member = group.members.get(member_id)
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                # Waiting joins count: after the limit was lowered, the members that join last are refused.
                return (member is not None and member.join_ticket is not None) or group.waiting_joins < size_max
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < size_max

    def _join_unknown(self, attempt: Attempt) -> None:
        request, group, caller = attempt.request, attempt.group, attempt.caller
        instance_id = request.group_instance_id
        member_id = f"{caller.client_id if instance_id is None else instance_id}-{self._context.draw_uuid()}"
        if instance_id is not None:
            known = group.static_members.get(instance_id)
            if known is None:
                self._add(attempt, member_id)
            else:
                self._replace(attempt, group.members[known], member_id)
        elif caller.api_version < MEMBER_ID_REQUIRED_MIN_VERSION:
            self._add(attempt, member_id)
        else:
            group.pending_joins.add(member_id)
            timer = session_timer(group.group_id, member_id)
            self._context.timers.schedule(timer, attempt.now_ms + request.session_timeout_ms)
            self._refuse(attempt.ticket, member_id, ErrorCode.MEMBER_ID_REQUIRED)

    def _add(self, attempt: Attempt, member_id: str) -> None:
        request, group = attempt.request, attempt.group
        member = Member(
            member_id,
            request.group_instance_id,
            attempt.caller.client_id,
            attempt.caller.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member, attempt.ticket)
        # The member does not know its id and sends no heartbeats, so a long timeout replaces the session.
        timeout_ms = self._context.config.new_member_join_timeout_ms
        self._context.timers.schedule(session_timer(group.group_id, member_id), attempt.now_ms + timeout_ms)
        self._rebalances.prepare_or_complete(attempt.now_ms, group, f"{member_id} joins; {attempt.reason}")

    def _update(self, attempt: Attempt, member: Member) -> None:
        request, group = attempt.request, attempt.group
        group.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        before = group.await_join(member, attempt.ticket)
        if before is not None:
            # The same member sent JoinGroup again on another connection; the first request is abandoned.
            self._refuse(before, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    def _rejoin(self, attempt: Attempt) -> None:
        request, group = attempt.request, attempt.group
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            self._refuse(attempt.ticket, request.member_id, error.code)
            return
        if _must_rebalance(group, member, request):
            self._update(attempt, member)
            reason = f"{member.member_id} rejoins; {attempt.reason}"
            self._rebalances.prepare_or_complete(attempt.now_ms, group, reason)
        else:
            self._context.reply(attempt.ticket, join_answer(group, member.member_id))

    def _fence(self, group: ClassicGroup, member: Member) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalances.complete_member_join(group, member, JoinGroupResponse(fenced, member.member_id))
        self._rebalances.complete_member_sync(member, SyncGroupResponse(fenced))
        self._context.timers.cancel(session_timer(group.group_id, member.member_id))

    def _replace(self, attempt: Attempt, old: Member, new_member_id: str) -> None:
        """Replace the id of a static member that rejoins (KIP-345)."""
        now_ms, group = attempt.now_ms, attempt.group
        old_leader_id = group.leader_id
        self._fence(group, old)
        new = group.rename(old, new_member_id)
        self._context.renew_session(now_ms, group, new)
        self._update(attempt, new)
        reason = f"static member {new.group_instance_id} returns; {attempt.reason}"
        match group.state:
            case GroupState.STABLE if group.select_protocol() == group.protocol_name:
                self._write_replacement(Replacement(attempt, old, new, old_leader_id))
            case GroupState.STABLE:
                self._rebalances.prepare_or_complete(now_ms, group, reason)
            case GroupState.COMPLETING_REBALANCE:
                # The leader may already be assigning to the old id.
                self._rebalances.prepare(now_ms, group, reason)
            case _:
                self._rebalances.maybe_complete_join(now_ms, group)

    def _write_replacement(self, replacement: Replacement) -> None:
        group = replacement.attempt.group

        def done(now_ms: int, error: ErrorCode) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                # The record may still be committed, so the new id stays.
                self._rebalances.complete_member_join(group, replacement.new, _failed_replacement(replacement, error))
            elif error is not ErrorCode.NONE:
                self._undo_replacement(now_ms, replacement, error)
            elif group.state is GroupState.STABLE:  # otherwise the join phase that started meanwhile answers
                self._rebalances.complete_member_join(group, replacement.new, _replacement_answer(replacement))

        # The generation is unchanged, but the record contains the new subscription, which a restart would read.
        group.topics = group.read_topics()
        assignments = {member.member_id: member.assignment for member in group.members.values()}
        self._context.write_group(replacement.attempt.now_ms, group, assignments, done)

    def _undo_replacement(self, now_ms: int, replacement: Replacement, error: ErrorCode) -> None:
        group, old, new = replacement.attempt.group, replacement.old, replacement.new
        if group.members.get(new.member_id) is not new:
            return
        log.warning("group %s: the new id of %s, %s, was not written", group.group_id, old.member_id, new.member_id)
        self._rebalances.complete_member_join(group, new, _failed_replacement(replacement, error))
        self._context.timers.cancel(session_timer(group.group_id, new.member_id))
        group.set_protocols(new, old.protocols)
        new.rebalance_timeout_ms, new.session_timeout_ms = old.rebalance_timeout_ms, old.session_timeout_ms
        restored = group.rename(new, old.member_id)
        group.topics = group.read_topics()
        self._context.renew_session(now_ms, group, restored)


class Replacement(Value):
    """A static member of a stable group with its old and its new id."""

    attempt: Attempt
    old: Member
    new: Member
    old_leader_id: str | None


def _replacement_answer(replacement: Replacement) -> JoinGroupResponse:
    group, member_id = replacement.attempt.group, replacement.new.member_id
    answer = join_answer(group, member_id, skip_assignment=member_id == group.leader_id)
    if replacement.attempt.caller.api_version >= SKIP_ASSIGNMENT_MIN_VERSION:
        return answer
    # A client before version 9 that reads its own id as the leader's would compute an assignment.
    return replace(answer, leader=replacement.old_leader_id or "", skip_assignment=False, members=())


def _failed_replacement(replacement: Replacement, error: ErrorCode) -> JoinGroupResponse:
    group = replacement.attempt.group
    return JoinGroupResponse(
        coordinator_error(error),
        UNKNOWN_MEMBER_ID,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        replacement.old_leader_id or "",
    )


def _must_rebalance(group: ClassicGroup, member: Member, request: JoinGroupRequest) -> bool:
    """Whether the join of a known member starts or joins a rebalance; otherwise it gets the same generation again."""
    is_same = member.protocols == request.protocols
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            return True
        case GroupState.COMPLETING_REBALANCE:
            return not is_same  # the same protocols: the member missed the response
        case GroupState.STABLE:
            # The leader may know of changes that its subscription does not show, such as new partitions.
            return not is_same or member.member_id == group.leader_id
        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"group {group.group_id} is {group.state.value} and has members")
