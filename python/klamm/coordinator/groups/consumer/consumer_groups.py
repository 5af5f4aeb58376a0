"""The requests and timers of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.coordinator.groups.consumer.classic_members import ClassicMembers
from klamm.coordinator.groups.consumer.departures import Departures, static_leave
from klamm.coordinator.groups.consumer.describe import described
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.heartbeats import Heartbeats, check_holder, unknown_member
from klamm.coordinator.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from klamm.coordinator.groups.consumer.patterns import Patterns
from klamm.coordinator.groups.consumer.records import ResolvedPattern
from klamm.coordinator.groups.consumer.takeover import Takeover, group_not_found
from klamm.coordinator.groups.consumer.timers import ConsumerTimers
from klamm.coordinator.groups.context import ShardContext, log
from klamm.coordinator.groups.modern.sessions import CLASSIC_JOIN, CLASSIC_SYNC, MEMBER_SESSION, REBALANCE, RETRY_MS
from klamm.coordinator.groups.modern.settings import MemberSettings
from klamm.coordinator.groups.rebalance import Rebalances
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from klamm.protocol.messages.group_messages import Caller

EXPIRED: Final = {
    MEMBER_SESSION: "its session timed out",
    REBALANCE: "it did not give up its partitions in time",
    CLASSIC_JOIN: "it did not join again in time",
    CLASSIC_SYNC: "it did not send SyncGroup in time",
}
"""Why a member is removed, by the kind of the timer."""


class ConsumerGroups:
    """Handles the consumer groups of a shard."""

    def __init__(self, context: ShardContext, rebalances: Rebalances) -> None:
        self._context = context
        settings = MemberSettings("consumer", context.config, context.group_configs)
        self._timers = ConsumerTimers(context, settings)
        self._patterns = Patterns(context)
        self._takeover = Takeover(context, self._timers, rebalances)
        self._departures = Departures(context, self._timers, rebalances)
        self._heartbeats = Heartbeats(context, settings, self._takeover, self._patterns)
        self.classic_members = ClassicMembers(context, settings, self._patterns, self._timers, self._departures)
        """Their requests, which the handlers of the classic protocol pass on."""

    # Requests

    def on_heartbeat(self, now_ms: int, ticket: Ticket, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> None:
        """Answer when the records of the heartbeat are committed; a refusal at once."""
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                response = self._leave(now_ms, request)
            else:
                response = self._stay(now_ms, caller, request)
        except KafkaError as error:
            self._context.reply(ticket, ConsumerGroupHeartbeatResponse(error.code, error.message))
            return
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, request, _failed_heartbeat)

    def _stay(
        self, now_ms: int, caller: Caller, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        upgraded = self._takeover.classic_group(request.group_id)
        decided = self._heartbeats.decide(now_ms, caller, request)
        self._context.write_records(decided.records)
        # What follows is soft state: a rollback leaves it.
        if upgraded is not None:
            self._takeover.on_upgraded(now_ms, upgraded)
        if decided.resolution is not None:
            self._patterns.start(decided.resolution)
        renew = self._timers.on_joined if request.member_epoch == JOIN_EPOCH else self._timers.renew_session
        renew(now_ms, request.group_id, decided.member)
        if decided.has_moved:
            self._timers.arm_rebalance(now_ms, request.group_id, decided.member)
        return decided.response

    def _leave(self, now_ms: int, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group, member = self._leaving(request)
        log.info("group %s: %s leaves (%d)", group.group_id, member.member_id, request.member_epoch)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            self._context.write_records(static_leave(group, member))  # its session continues
        else:
            self._departures.remove(now_ms, group, [member])
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _leaving(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, ConsumerMember]:
        group = self._context.modern.find(request.group_id, ConsumerGroup)
        if group is None:
            raise group_not_found(self._context, request.group_id)
        if request.instance_id is not None:
            holder = group.static_member(request.instance_id)
            return group, check_holder(holder, request.member_id, request.instance_id)
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member(group, request.member_id)
        return group, member

    def on_describe(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> None:
        """Answer with the newest state when it is committed."""
        groups = tuple(map(self._described, group_ids))
        self._context.pipeline.reply_when_committed(now_ms, ticket, groups, group_ids, _failed_describe)

    def _described(self, group_id: str) -> DescribedConsumerGroup:
        group = self._context.modern.find(group_id, ConsumerGroup)
        if group is not None:
            return described(self._context, group)
        error = group_not_found(self._context, group_id)
        return DescribedConsumerGroup(group_id, error.code, error.message)

    # Time

    def on_timer(self, now_ms: int, kind: str, group_id: str, member_id: str) -> None:
        """A timer of a member fired (`modern.sessions`). A timer of a removed member has no effect."""
        group = self._context.modern.find(group_id, ConsumerGroup)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        if kind == REBALANCE and not self._timers.is_too_slow(group_id, member):
            return
        log.info("group %s: %s is removed: %s", group_id, member_id, EXPIRED[kind])
        self._context.timers.schedule((kind, group_id, member_id), now_ms + RETRY_MS)  # the removal cancels it
        try:
            self._departures.remove(now_ms, group, [member])
        except KafkaError as error:
            log.warning("group %s: %s could not be removed: %s", group_id, member_id, error)

    # Events

    def on_loaded(self, now_ms: int) -> None:
        """The load is complete: every member has a new session, and the whole time to give up partitions."""
        self._patterns.on_loaded()
        for group, member in self._members():
            self._timers.renew_session(now_ms, group.group_id, member)
            self._timers.arm_rebalance(now_ms, group.group_id, member)

    def on_pause(self, now_ms: int) -> None:
        """The process did not run while members sent heartbeats: restart all sessions."""
        for group, member in self._members():
            self._timers.renew_session(now_ms, group.group_id, member)

    def _members(self) -> list[tuple[ConsumerGroup, ConsumerMember]]:
        groups = [group for group in self._context.modern if isinstance(group, ConsumerGroup)]
        return [(group, member) for group in groups for member in group.members.values()]

    def on_topics_created(self) -> None:
        """Topics were created, which regular expressions may match."""
        self._patterns.on_topics_created()

    def on_patterns_resolved(self, now_ms: int, group_id: str, found: Mapping[str, ResolvedPattern] | None) -> None:
        """The topics of a group's regular expressions; None if they could not be found."""
        try:
            self._context.write_records(self._patterns.on_resolved(group_id, found))
        except KafkaError as error:
            self._patterns.on_not_written(now_ms, group_id)
            log.warning("group %s: the topics of its regular expressions could not be written: %s", group_id, error)


def _failed_heartbeat(_: ConsumerGroupHeartbeatRequest, error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(coordinator_error(error))


def _failed_describe(group_ids: tuple[str, ...], error: ErrorCode) -> tuple[DescribedConsumerGroup, ...]:
    return tuple(DescribedConsumerGroup(group_id, coordinator_error(error)) for group_id in group_ids)
