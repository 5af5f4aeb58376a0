"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

To such a member, reaching a new epoch is a rebalance: Heartbeat asks it to join again, JoinGroup moves it towards its
target, and SyncGroup gives it what it owns. It never computes an assignment.
"""

from __future__ import annotations

from dataclasses import replace

from klamm.coordinator.groups.consumer.departures import Departures
from klamm.coordinator.groups.consumer.downgrade import encoded, is_downgrade
from klamm.coordinator.groups.consumer.group import NOT_OWNED, ConsumerGroup
from klamm.coordinator.groups.consumer.heartbeats import check_holder, check_size, unknown_member
from klamm.coordinator.groups.consumer.member import ClassicMember, ConsumerMember, MemberState
from klamm.coordinator.groups.consumer.patterns import Patterns
from klamm.coordinator.groups.consumer.reconciliation import Reported, reported_of
from klamm.coordinator.groups.consumer.timers import ConsumerTimers
from klamm.coordinator.groups.consumer.transition import PatternChange, Transition, replacement
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.modern.settings import MemberSettings
from klamm.coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError, MalformedRequest
from klamm.protocol.messages.consumer_protocol import Subscription, decode_subscription
from klamm.protocol.messages.group_messages import (
    UNKNOWN_MEMBER_ID,
    Caller,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveMemberResponse,
    LeavingMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_ID_REQUIRED_MIN_VERSION = 4


class ClassicMembers:
    """Handles the requests of the classic protocol to consumer groups with members."""

    def __init__(
        self,
        context: ShardContext,
        settings: MemberSettings,
        patterns: Patterns,
        timers: ConsumerTimers,
        departures: Departures,
    ) -> None:
        self._context, self._settings, self._patterns = context, settings, patterns
        self._timers, self._departures = timers, departures

    # JoinGroup

    def on_join(
        self, now_ms: int, ticket: Ticket, caller: Caller, request: JoinGroupRequest, group: ConsumerGroup
    ) -> None:
        """Answer when the records are committed; the generation is the epoch of the member."""
        try:
            response = self._join(now_ms, caller, request, group)
        except KafkaError as error:
            self._context.reply(ticket, JoinGroupResponse(error.code))
            return
        if response.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self._context.reply(ticket, response)
            return
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, request, _failed_join)

    def _join(self, now_ms: int, caller: Caller, request: JoinGroupRequest, group: ConsumerGroup) -> JoinGroupResponse:
        is_new_id = request.member_id == UNKNOWN_MEMBER_ID
        member_id = self._context.draw_uuid() if is_new_id else request.member_id
        check_size(self._context, group, member_id)
        if not _supports(group, request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        needs_id = is_new_id and request.group_instance_id is None
        if needs_id and caller.api_version >= MEMBER_ID_REQUIRED_MIN_VERSION:
            return JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        subscription = _subscription(request)
        records: list[Written] = []
        holder = group.static_member(request.group_instance_id)
        member = self._joining_member(group, member_id, request, records)
        step = Transition(self._context, self._settings, now_ms, group, member=member, records=records)
        names_changed = step.update_member(_updated(member, caller, request, subscription))
        bump = step.update_pattern() is not PatternChange.NONE or names_changed
        resolution = self._patterns.due(now_ms, group, member, step.member)
        step.update_epoch(bump=bump)
        reported = self._reported(subscription)
        if (
            holder is not None
            and holder.classic is None
            and is_downgrade(self._context, group, [holder], len(group.members))
        ):
            self._downgrade(now_ms, step, holder, reported, bump=bump)
        else:
            step.update_target()
            step.reconcile(reported, has_subscription_changed=bump)
            self._context.write_records(records)
            self._timers.await_sync(now_ms, group.group_id, step.member)
        if resolution is not None:
            self._patterns.start(resolution)
        log.info("group %s: %s joins with the classic protocol", group.group_id, member_id)
        return JoinGroupResponse(
            ErrorCode.NONE,
            member_id,
            step.member.member_epoch,
            CONSUMER_PROTOCOL_TYPE,
            request.protocols[0].name,
        )

    def _downgrade(
        self, now_ms: int, step: Transition, holder: ConsumerMember, reported: Reported, *, bump: bool
    ) -> None:
        """The last member of the consumer protocol is replaced, by one of the classic protocol."""
        rebalances = step.group.assignment_epoch < step.group_epoch
        if not rebalances:
            step.update_target()
            step.reconcile(reported, has_subscription_changed=bump)
        self._departures.replace_by_classic(now_ms, step, holder, rebalances=rebalances)

    def _joining_member(
        self, group: ConsumerGroup, member_id: str, request: JoinGroupRequest, records: list[Written]
    ) -> ConsumerMember:
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        holder = group.static_member(instance_id)
        if request.member_id != UNKNOWN_MEMBER_ID:
            return check_holder(holder, member_id, instance_id)
        if holder is None:
            return ConsumerMember(member_id)
        member, replacing = replacement(group, holder, member_id)
        records += replacing
        return member

    def _reported(self, subscription: Subscription) -> Reported:
        """The partitions that the member reports to own. With the eager protocol it has revoked everything."""
        found = ((self._context.topics.find(one.topic), one.partitions) for one in subscription.owned_partitions)
        return reported_of((info.topic_id, partitions) for info, partitions in found if info is not None)

    # SyncGroup, Heartbeat, LeaveGroup

    def on_sync(self, now_ms: int, ticket: Ticket, request: SyncGroupRequest, group: ConsumerGroup) -> None:
        """Respond with the member's partitions, once they are committed."""
        try:
            member, classic = _classic_member(group, request.member_id, request.group_instance_id)
            self._check_sync(now_ms, request, group, member, classic)
        except KafkaError as error:
            self._context.reply(ticket, SyncGroupResponse(error.code))
            return
        self._timers.on_synced(now_ms, group.group_id, member)
        assignment = encoded(member.assigned, classic.protocols[0].metadata, self._context.topics)
        response = SyncGroupResponse(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, request, _failed_sync)

    def _check_sync(
        self,
        now_ms: int,
        request: SyncGroupRequest,
        group: ConsumerGroup,
        member: ConsumerMember,
        classic: ClassicMember,
    ) -> None:
        if request.generation_id != member.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, classic.protocols[0].name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_behind = group.assignment_epoch > member.member_epoch
        if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.await_join(now_ms, group.group_id, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def on_heartbeat(self, now_ms: int, request: HeartbeatRequest, group: ConsumerGroup) -> ErrorCode:
        """Renew the member's session. REBALANCE_IN_PROGRESS asks the member to join again."""
        try:
            member, _ = _classic_member(group, request.member_id, request.group_instance_id)
        except KafkaError as error:
            return error.code
        if request.generation_id != member.member_epoch:
            return ErrorCode.ILLEGAL_GENERATION
        self._timers.renew_session(now_ms, group.group_id, member)
        if not _must_rejoin(group, member):
            return ErrorCode.NONE
        self._timers.await_join(now_ms, group.group_id, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def on_leave(self, now_ms: int, ticket: Ticket, request: LeaveGroupRequest, group: ConsumerGroup) -> None:
        """Remove members, of both protocols, each with its own result."""
        answers, going = [], dict[str, ConsumerMember]()
        for leaving in request.members:
            code = ErrorCode.NONE
            try:
                member = _leaving_member(group, leaving)
                going[member.member_id] = member
            except KafkaError as error:
                code = error.code
            answers.append(LeaveMemberResponse(leaving.member_id, leaving.group_instance_id, code))
        response = LeaveGroupResponse(ErrorCode.NONE, tuple(answers))
        try:
            if going:
                self._departures.remove(now_ms, group, list(going.values()))
        except KafkaError as error:
            response = LeaveGroupResponse(error.code)
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, request, _failed_leave)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMember]:
    """The member of the classic protocol. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if instance_id is not None:
        member: ConsumerMember | None = check_holder(group.static_member(instance_id), member_id, instance_id)
    else:
        member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise unknown_member(group, member_id)
    return member, member.classic


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    """An admin removes a static member by its instance id alone."""
    instance_id = leaving.group_instance_id
    if instance_id is None:
        member = group.members.get(leaving.member_id)
        if member is None:
            raise unknown_member(group, leaving.member_id)
        return member
    holder = group.static_member(instance_id)
    if leaving.member_id != UNKNOWN_MEMBER_ID or holder is None:
        return check_holder(holder, leaving.member_id, instance_id)
    return holder


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.member_epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a partition of the member's target still belongs to another member."""
    return any(
        partition not in member.assigned.get(topic_id, {}) and group.owner_epoch(topic_id, partition) != NOT_OWNED
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def _supports(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Whether all members of the classic protocol have one of the joining member's protocols."""
    counts = group.classic_protocols
    is_common = any(counts.get(one.name, 0) == group.classic_members for one in request.protocols)
    return request.protocol_type == CONSUMER_PROTOCOL_TYPE and is_common


def _subscription(request: JoinGroupRequest) -> Subscription:
    try:
        return decode_subscription(request.protocols[0].metadata)
    except MalformedRequest as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _updated(
    member: ConsumerMember, caller: Caller, request: JoinGroupRequest, subscription: Subscription
) -> ConsumerMember:
    has_timeout = request.rebalance_timeout_ms != -1
    instance_id = request.group_instance_id
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",  # the classic protocol has none
        classic=ClassicMember(request.session_timeout_ms, request.protocols),
    )


def _failed_join(request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(coordinator_error(error))


def _failed_sync(_: SyncGroupRequest, error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(coordinator_error(error))


def _failed_leave(_: LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(coordinator_error(error))
