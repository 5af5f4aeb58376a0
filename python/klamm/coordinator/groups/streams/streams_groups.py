"""The requests and timers of streams groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.modern.sessions import (
    MEMBER_SESSION,
    REBALANCE,
    RETRY_MS,
    member_session_timer,
    rebalance_timer,
)
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.streams.describe import described
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.heartbeats import Heartbeats
from klamm.coordinator.groups.streams.member import MemberState, StreamsMember
from klamm.coordinator.groups.streams.records import StreamsMetadata, StreamsRecord
from klamm.coordinator.groups.streams.request_checks import LEAVE_EPOCH
from klamm.coordinator.groups.streams.settings import StreamsSettings
from klamm.coordinator.groups.streams.takeover import find_group, group_not_found, member_of
from klamm.coordinator.groups.streams.transition import Transition
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.streams_messages import (
    DescribedStreamsGroup,
    HeartbeatResult,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

EXPIRED: Final = {MEMBER_SESSION: "its session timed out", REBALANCE: "it did not give up its tasks in time"}
"""Why a member is removed when a timer fires."""


class StreamsGroups:
    """Handles the streams groups of a shard."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._settings = StreamsSettings(context.config, context.group_configs)
        self._heartbeats = Heartbeats(context, self._settings)
        self._armed: dict[tuple[str, str], int] = {}
        """By group and member: the epoch for which the rebalance timer was armed last."""

    # Requests

    def on_heartbeat(self, now_ms: int, ticket: Ticket, caller: Caller, request: StreamsGroupHeartbeatRequest) -> None:
        """Answer with a HeartbeatResult when the records of the heartbeat are committed; a refusal at once."""
        try:
            if request.member_epoch == LEAVE_EPOCH:
                result = HeartbeatResult(self._leave(request))
            else:
                result = self._stay(now_ms, caller, request)
        except KafkaError as error:
            self._context.reply(ticket, HeartbeatResult(StreamsGroupHeartbeatResponse(error.code, error.message)))
            return
        self._context.pipeline.reply_when_committed(now_ms, ticket, result, request, _failed_heartbeat)

    def _stay(self, now_ms: int, caller: Caller, request: StreamsGroupHeartbeatRequest) -> HeartbeatResult:
        decided = self._heartbeats.decide(now_ms, caller, request)
        journal = self._context.write_records(decided.records)
        group = self._context.modern.find(request.group_id, StreamsGroup)
        if group is not None:
            # A rollback restores it with the metadata hash that it belongs to; what follows is soft state.
            journal.assign(group, "configured", decided.configured)
            group.hash_checked_epoch = decided.hash_checked_epoch
        self._renew_session(now_ms, request.group_id, decided.member.member_id)
        if decided.has_moved:
            self._arm_rebalance(now_ms, request.group_id, decided.member)
        missing = decided.configured.missing_topics
        interval_ms = self._settings.heartbeat_interval_ms(request.group_id)
        return HeartbeatResult(decided.response, missing, interval_ms)

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        group = find_group(self._context, request.group_id)
        if request.shutdown_application:
            group.request_shutdown(request.member_id)
        member = member_of(group, request.member_id)
        log.info("group %s: %s leaves", group.group_id, member.member_id)
        self._remove(group, member)
        return StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _remove(self, group: StreamsGroup, member: StreamsMember) -> None:
        group_id, member_id = group.group_id, member.member_id
        configs = tuple(sorted(group.assignment_configs.items()))
        metadata = StreamsMetadata(group.group_epoch + 1, group.metadata_hash, group.validated_topology_epoch, configs)
        records: list[Written] = [
            StreamsRecord(RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, group_id, None, member_id),
            StreamsRecord(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, group_id, None, member_id),
            StreamsRecord(RecordType.STREAMS_GROUP_MEMBER_METADATA, group_id, None, member_id),
            StreamsRecord(RecordType.STREAMS_GROUP_METADATA, group_id, metadata),
        ]
        journal = self._context.write_records(records)
        for timer in (member_session_timer, rebalance_timer):
            self._context.cancel_timer(timer(group_id, member_id), journal)
        journal.remove(self._armed, (group_id, member_id))

    def on_describe(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> None:
        """Answer with the newest state when it is committed."""
        groups = tuple(map(self._described, group_ids))
        self._context.pipeline.reply_when_committed(now_ms, ticket, groups, group_ids, _failed_describe)

    def _described(self, group_id: str) -> DescribedStreamsGroup:
        group = self._context.modern.find(group_id, StreamsGroup)
        if group is not None:
            return described(group)
        error = group_not_found(self._context, group_id)
        return DescribedStreamsGroup(group_id, error.code, error.message)

    # Time

    def _renew_session(self, now_ms: int, group_id: str, member_id: str) -> None:
        timeout_ms = self._settings.session_timeout_ms(group_id)
        self._context.timers.schedule(member_session_timer(group_id, member_id), now_ms + timeout_ms)

    def _arm_rebalance(self, now_ms: int, group_id: str, member: StreamsMember) -> None:
        """A member that has to give up tasks must do so within its rebalance timeout."""
        timer = rebalance_timer(group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            self._armed[group_id, member.member_id] = member.member_epoch
            self._context.timers.schedule(timer, now_ms + member.metadata.rebalance_timeout_ms)
        # Otherwise an older timer stays, should a rollback bring back the state in which it was armed.

    def _is_too_slow(self, group_id: str, member: StreamsMember) -> bool:
        """The rebalance timer fired: whether the member is still where it was when the timer was armed."""
        armed_epoch = self._armed.get((group_id, member.member_id))
        return member.member_epoch == armed_epoch and member.state is MemberState.UNREVOKED_TASKS

    def on_timer(self, now_ms: int, kind: str, group_id: str, member_id: str) -> None:
        """A timer of a member fired (`modern.sessions`). A timer of a removed member has no effect."""
        group = self._context.modern.find(group_id, StreamsGroup)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        if kind == REBALANCE and not self._is_too_slow(group_id, member):
            self._armed.pop((group_id, member_id), None)
            return
        log.info("group %s: %s is removed: %s", group_id, member_id, EXPIRED[kind])
        self._context.timers.schedule((kind, group_id, member_id), now_ms + RETRY_MS)  # the removal cancels it
        self._try_write(group_id, lambda: self._remove(group, member))

    def _try_write(self, group_id: str, write: Callable[[], None]) -> None:
        try:
            write()
        except KafkaError as error:
            log.warning("group %s: %s", group_id, error)

    def on_initial_delay_timer(self, now_ms: int, group_id: str) -> None:
        """The first target of a group that was empty waited long enough for members."""
        group = self._context.modern.find(group_id, StreamsGroup)
        if group is None or group.is_empty or group.configured is None:
            return
        step, configured = Transition(self._context, self._settings, now_ms, group, []), group.configured

        def write_target() -> None:
            step.update_target(configured)
            self._context.write_records(step.records)

        self._try_write(group_id, write_target)

    # Events

    def on_loaded(self, now_ms: int) -> None:
        """The load is complete: every member has a new session, and the whole time to give up tasks."""
        for group, member in self._members():
            self._renew_session(now_ms, group.group_id, member.member_id)
            if member.state is MemberState.UNREVOKED_TASKS:
                self._arm_rebalance(now_ms, group.group_id, member)

    def on_pause(self, now_ms: int) -> None:
        """The process did not run while members sent heartbeats: restart all sessions."""
        for group, member in self._members():
            self._renew_session(now_ms, group.group_id, member.member_id)

    def _members(self) -> list[tuple[StreamsGroup, StreamsMember]]:
        groups = [group for group in self._context.modern if isinstance(group, StreamsGroup)]
        return [(group, member) for group in groups for member in group.members.values()]


def _failed_heartbeat(_: StreamsGroupHeartbeatRequest, error: ErrorCode) -> HeartbeatResult:
    return HeartbeatResult(StreamsGroupHeartbeatResponse(coordinator_error(error)))


def _failed_describe(group_ids: tuple[str, ...], error: ErrorCode) -> tuple[DescribedStreamsGroup, ...]:
    return tuple(DescribedStreamsGroup(group_id, coordinator_error(error)) for group_id in group_ids)
