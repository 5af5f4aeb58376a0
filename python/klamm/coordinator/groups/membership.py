"""SyncGroup, Heartbeat and LeaveGroup of classic groups."""

from __future__ import annotations

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.consumer.classic_members import ClassicMembers
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.context import ShardContext, log
from klamm.coordinator.groups.rebalance import IN_GENERATION, Rebalances, sync_answer
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import (
    UNKNOWN_MEMBER_ID,
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveMemberResponse,
    LeavingMember,
    SyncGroupRequest,
    SyncGroupResponse,
)


class Membership:
    """Handles the requests of members other than JoinGroup."""

    def __init__(self, context: ShardContext, rebalances: Rebalances, classic_members: ClassicMembers) -> None:
        """`classic_members` handles the requests to consumer groups."""
        self._context = context
        self._rebalances = rebalances
        self._classic_members = classic_members

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self._context.modern.find(group_id, ConsumerGroup)
        return None if group is None or group.is_empty else group

    def on_sync(self, now_ms: int, ticket: Ticket, request: SyncGroupRequest) -> None:
        """Respond with the assignment, or wait for the leader's SyncGroup."""
        consumers = self._consumer_group(request.group_id)
        if consumers is not None:
            self._classic_members.on_sync(now_ms, ticket, request, consumers)
            return
        group = self._context.groups.get(request.group_id)
        if group is None or group.is_empty:
            self._context.reply(ticket, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
            _check_sync(group, request)
        except KafkaError as error:
            self._context.reply(ticket, SyncGroupResponse(error.code))
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            self._context.reply(ticket, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        self._rebalances.note_sync(group, member.member_id)
        if group.state is GroupState.STABLE:
            self._context.reply(ticket, sync_answer(group, member))
            return
        # A waiting SyncGroup of the same member came on a connection that is closed.
        self._rebalances.complete_member_sync(member, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        if member.member_id == group.leader_id:
            self._assign(now_ms, group, request)

    def _assign(self, now_ms: int, group: ClassicGroup, request: SyncGroupRequest) -> None:
        given = {item.member_id: item.assignment for item in request.assignments}
        missing = [member_id for member_id in group.members if member_id not in given]
        if missing:
            log.warning("group %s: the leader assigned nothing to %d members", group.group_id, len(missing))
        self._rebalances.assign(now_ms, group, given)

    def on_heartbeat(self, now_ms: int, ticket: Ticket, request: HeartbeatRequest) -> None:
        """Renew the member's session. The response says whether the member must rejoin."""
        error = self._heartbeat(now_ms, request)
        self._context.pipeline.reply_when_committed(now_ms, ticket, error, request, _heartbeat_error)

    def _heartbeat(self, now_ms: int, request: HeartbeatRequest) -> ErrorCode:
        consumers = self._consumer_group(request.group_id)
        if consumers is not None:
            return self._classic_members.on_heartbeat(now_ms, request, consumers)
        group = self._context.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return error.code
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._context.renew_session(now_ms, group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def on_leave(self, now_ms: int, ticket: Ticket, request: LeaveGroupRequest) -> None:
        """Remove members, each with its own result."""
        consumers = self._consumer_group(request.group_id)
        if consumers is not None:
            self._classic_members.on_leave(now_ms, ticket, request, consumers)
            return
        group = self._context.groups.get(request.group_id)
        answers = tuple(
            LeaveMemberResponse(leaving.member_id, leaving.group_instance_id, self._leave(group, leaving))
            for leaving in request.members
        )
        if group is not None and any(answer.error_code is ErrorCode.NONE for answer in answers):
            if group.state in IN_GENERATION:
                self._rebalances.prepare(now_ms, group, _reason(request))
            else:
                self._rebalances.maybe_complete_join(now_ms, group)
        response = LeaveGroupResponse(ErrorCode.NONE, answers)
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, request, _leave_error)

    def _leave(self, group: ClassicGroup | None, leaving: LeavingMember) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            member_id = _leaving_id(group, leaving)
        except KafkaError as error:
            return error.code
        log.info("group %s: %s leaves (%s)", group.group_id, member_id, leaving.reason or "no reason given")
        self._rebalances.remove_member(group, member_id)
        return ErrorCode.NONE


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> None:
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    for requested, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if requested is not None and actual is not None and requested != actual:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _leaving_id(group: ClassicGroup, leaving: LeavingMember) -> str:
    """The id of the leaving member. An admin removes a static member by its instance id alone."""
    if leaving.member_id == UNKNOWN_MEMBER_ID:
        owner = None if leaving.group_instance_id is None else group.static_members.get(leaving.group_instance_id)
        if owner is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return owner
    if leaving.member_id in group.pending_joins:
        return leaving.member_id
    return group.check_member(leaving.member_id, leaving.group_instance_id).member_id


def _heartbeat_error(_: HeartbeatRequest, error: ErrorCode) -> ErrorCode:
    return coordinator_error(error)


def _leave_error(_: LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(coordinator_error(error))


def _reason(request: LeaveGroupRequest) -> str:
    return f"{len(request.members)} members leave"
