"""The requests and timers of share groups."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from klamm.coordinator.groups.context import ShardContext, log
from klamm.coordinator.groups.modern.sessions import RETRY_MS, member_session_timer
from klamm.coordinator.groups.modern.settings import MemberSettings
from klamm.coordinator.groups.modern.wire import Target
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.coordinator.groups.share.heartbeats import (
    ShareHeartbeats,
    metadata_hash,
    names_after,
    unknown_member,
)
from klamm.coordinator.groups.share.member import LEAVE_EPOCH, ShareMember
from klamm.coordinator.groups.share.offsets import ShareOffsets
from klamm.coordinator.groups.share.records import (
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareMemberRecord,
    ShareTargetRecord,
)
from klamm.coordinator.groups.share.state_partitions import Places
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.share_groups import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareMember,
    DescribedSharePartitions,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

T = TypeVar("T")


class ShareGroups:
    """Handles the share groups of a shard."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._settings = MemberSettings("share", context.config, context.group_configs)
        self._heartbeats = ShareHeartbeats(context, self._settings)
        self.offsets = ShareOffsets(context, self._heartbeats)
        """The states of groups without members."""

    # Requests

    def on_heartbeat(self, now_ms: int, ticket: Ticket, caller: Caller, request: ShareGroupHeartbeatRequest) -> None:
        """Answer when the records of the heartbeat are committed; a refusal at once."""
        try:
            is_leave = request.member_epoch == LEAVE_EPOCH
            response = self._leave(now_ms, request) if is_leave else self._stay(now_ms, caller, request)
        except KafkaError as error:
            self._context.reply(ticket, ShareGroupHeartbeatResponse(error.code, error.message))
            return
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, request, _failed_heartbeat)

    def _stay(self, now_ms: int, caller: Caller, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        decided = self._heartbeats.decide(now_ms, caller, request)
        self._context.write_records(decided.records)
        # What follows is soft state: a rollback leaves it.
        self._renew_session(now_ms, request.group_id, request.member_id)
        creation = decided.creation
        if creation is not None:
            self.offsets.note_written(now_ms, request.group_id)

            def done(_: int, error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    self._context.pipeline.add(creation)

            self._context.pipeline.call_when_committed(now_ms, done)
        return decided.response

    def _leave(self, now_ms: int, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        group = self._heartbeats.group(request.group_id, creates=False, wanted="Group")
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member(group, request.member_id)
        log.info("group %s: %s leaves", group.group_id, member.member_id)
        self._remove(group, member)
        return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _remove(self, group: ShareGroup, member: ShareMember) -> None:
        group_id, member_id = group.group_id, member.member_id
        found = metadata_hash(names_after(group, member, None), self._context.topics)
        journal = self._context.write_records(
            [
                ShareCurrentRecord(group_id, member_id, None),
                ShareTargetRecord(group_id, member_id, None),
                ShareMemberRecord(group_id, member_id, None),
                ShareGroupEpochRecord(group_id, (group.group_epoch + 1, found)),
            ]
        )
        self._context.cancel_timer(member_session_timer(group_id, member_id), journal)

    def on_describe(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> None:
        """Answer with the newest state when it is committed."""
        groups = tuple(map(self._described, group_ids))
        self._context.pipeline.reply_when_committed(now_ms, ticket, groups, group_ids, _failed_describe)

    def _described(self, group_id: str) -> DescribedShareGroup:
        context, group = self._context, self._context.modern.find(group_id, ShareGroup)
        if group is None:
            is_other = group_id in context.groups or context.modern.get(group_id)
            message = f"Group {group_id} {'is not a share group' if is_other else 'not found'}."
            return DescribedShareGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        members = tuple(map(self._described_member, group.members.values()))
        return DescribedShareGroup(
            group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=context.config.group_share_assignors[0],
            members=members,
        )

    def _described_member(self, member: ShareMember) -> DescribedShareMember:
        return DescribedShareMember(
            member.member_id,
            member.rack_id,
            member.member_epoch,
            member.client_id,
            member.client_host,
            tuple(sorted(member.subscribed_topic_names)),
            self._assignment(member.assigned),
        )

    def _assignment(self, assigned: Target) -> DescribedShareAssignment:
        named = ((topic_id, self._context.topics.name_of(topic_id), parts) for topic_id, parts in assigned.items())
        return DescribedShareAssignment(
            tuple(
                DescribedSharePartitions(topic_id, name, parts) for topic_id, name, parts in named if name is not None
            )
        )

    def on_offsets(self, now_ms: int, ticket: Ticket, decide: Callable[[], T]) -> None:
        """Answer with what `decide` returns or raises, when everything written before is committed."""
        try:
            response: T | KafkaError = decide()
        except KafkaError as error:
            response = error
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, None, _failed_offsets)

    def initialized(self, group_id: str) -> dict[bytes, tuple[int, ...]]:
        """The partitions that have a state, by topic id; none if there is no such group."""
        group = self._context.modern.find(group_id, ShareGroup)
        states = None if group is None else group.states
        if states is None:
            return {}
        return {topic_id: tuple(sorted(one.partitions)) for topic_id, one in states.initialized.items()}

    # Time

    def _renew_session(self, now_ms: int, group_id: str, member_id: str) -> None:
        timeout_ms = self._settings.session_timeout_ms(group_id)
        self._context.timers.schedule(member_session_timer(group_id, member_id), now_ms + timeout_ms)

    def on_session_timer(self, now_ms: int, group_id: str, member_id: str) -> None:
        """The session of a member ended, if there is such a member of a share group."""
        group = self._context.modern.find(group_id, ShareGroup)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        log.info("group %s: %s is removed: its session timed out", group_id, member_id)
        # The removal cancels it.
        self._context.timers.schedule(member_session_timer(group_id, member_id), now_ms + RETRY_MS)
        try:
            self._remove(group, member)
        except KafkaError as error:
            log.warning("group %s: %s could not be removed: %s", group_id, member_id, error)

    # Events

    def on_loaded(self, now_ms: int) -> None:
        """The load is complete: every member has a new session, and records 15 are as if written now."""
        for group in self._groups():
            group.states_written_ms = now_ms
        self.on_pause(now_ms)

    def on_pause(self, now_ms: int) -> None:
        """The process did not run while members sent heartbeats: restart all sessions."""
        for group in self._groups():
            for member_id in group.members:
                self._renew_session(now_ms, group.group_id, member_id)

    def _groups(self) -> list[ShareGroup]:
        return [group for group in self._context.modern if isinstance(group, ShareGroup)]

    def on_states_created(self, now_ms: int, group_id: str, places: Places, *, is_done: bool) -> None:
        """States were created, or could not be; if that cannot be written, they are created again later."""
        try:
            self.offsets.on_created(now_ms, group_id, places, is_done=is_done)
        except KafkaError as error:
            log.warning("group %s: its states could not be noted: %s", group_id, error)

    def on_topics_deleted(self, now_ms: int, topic_ids: Collection[bytes]) -> None:
        """Topics are deleted."""
        try:
            self.offsets.on_topics_deleted(now_ms, topic_ids)
        except KafkaError as error:
            log.warning("deleted topics could not be removed from share groups: %s", error)


def _failed_heartbeat(_: ShareGroupHeartbeatRequest, error: ErrorCode) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(coordinator_error(error))


def _failed_describe(group_ids: tuple[str, ...], error: ErrorCode) -> tuple[DescribedShareGroup, ...]:
    return tuple(DescribedShareGroup(group_id, coordinator_error(error)) for group_id in group_ids)


def _failed_offsets(_: Any, error: ErrorCode) -> KafkaError:
    return KafkaError(coordinator_error(error))
