"""One partition of `__consumer_offsets` as a state machine: the groups whose ids hash to it (facts 11.1, 11.2).

The driver replays the partition's log (`replay`), reports its end (`on_loaded`), and then passes one event after the
other, each with the time; the answers come back as results. Records to append are in `take_append`, one batch at a
time: the driver asks for it after the events of one turn, so that they share a batch. It reports the end of each append
with `on_append_done`, and calls `on_timer` at `deadline_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from klamm._engine import CommitRequest
from klamm.coordinator.classic_group import ClassicGroup
from klamm.coordinator.commits import Commits
from klamm.coordinator.config import GroupConfig
from klamm.coordinator.context import EXPIRY_TIMER, UNREAD_MS, ShardContext, TimerKey, log
from klamm.coordinator.counts import Counts
from klamm.coordinator.effects import Reply, Ticket
from klamm.coordinator.foreign_groups import ForeignGroup
from klamm.coordinator.group_admin import GroupAdmin
from klamm.coordinator.joins import Joins
from klamm.coordinator.membership import Membership
from klamm.coordinator.offsets import TopicOffsets
from klamm.coordinator.rebalance import Rebalances
from klamm.coordinator.records import (
    ForeignRecord,
    GroupRecord,
    LogRecord,
    OffsetCommit,
    Record,
    UnknownRecord,
)
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    Caller,
    DescribedGroup,
    FetchGroup,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListedGroup,
    ListGroupsRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)

NO_PRODUCER_ID: Final = -1


class Shard:
    """The group coordinator of one partition.

    `draw_uuid` gives the random part of a member id.
    """

    def __init__(self, config: GroupConfig, draw_uuid: Callable[[], str], counts: Counts | None = None) -> None:
        self._context = ShardContext(config, draw_uuid, counts or Counts())
        self._rebalances = Rebalances(self._context)
        self._joins = Joins(self._context, self._rebalances)
        self._membership = Membership(self._context, self._rebalances)
        self._commits = Commits(self._context)
        self._admin = GroupAdmin(self._context, self._commits)
        self._skipped: dict[int, int] = {}

    # Loading.

    def replay(self, offset: int, producer_id: int, record: Record) -> None:
        """Take in a record of the log; `producer_id` is -1 unless it belongs to a transaction."""
        context = self._context
        match record:
            case OffsetCommit(group_id, topic, partition, value):
                commit = None if value is None else value._replace(record_offset=offset)
                if commit is not None and producer_id != NO_PRODUCER_ID:
                    self._commits.make_simple_group(group_id, None)
                    context.offsets.put_pending(producer_id, group_id, topic, partition, commit)
                else:
                    self._commits.replay((group_id, topic, partition, commit), None)
            case GroupRecord(group_id, kept):
                context.remove_group(group_id, None)
                if kept is not None:
                    context.groups[group_id] = ClassicGroup.from_record(group_id, kept)
            case ForeignRecord():
                self._replay_foreign(record)
            case UnknownRecord(type_):
                self._skipped[type_] = self._skipped.get(type_, 0) + 1
        context.next_record_offset = offset + 1

    def _replay_foreign(self, record: ForeignRecord) -> None:
        simple = self._context.groups.get(record.group_id)
        if simple is not None and simple.protocol_type is None and not record.is_tombstone:
            # Compaction has left an offset before the record of its group.
            del self._context.groups[record.group_id]
        self._context.foreign.replay(record)

    def replay_transaction_end(self, producer_id: int, is_commit: bool) -> None:
        """Take in a COMMIT or ABORT marker of the log."""
        self._context.offsets.end_transaction(producer_id, is_commit)

    def on_loaded(self, now_ms: int) -> list[Reply]:
        """That was all: sessions start afresh, and groups above a lowered `group.max.size` rebalance."""
        context = self._context
        for type_, count in sorted(self._skipped.items()):
            log.warning("skipped %d records of the unknown type %d, perhaps left by a newer version", count, type_)
        if len(context.foreign):
            names = ", ".join(f"{group.group_id} ({group.kind})" for group in context.foreign)
            log.warning("groups that are not classic are kept, but their members cannot be served: %s", names)
        for group in list(context.groups.values()):
            for member in group.members.values():
                context.renew_session(now_ms, group, member)
            if len(group.members) > context.config.group_max_size:
                self._rebalances.prepare(now_ms, group, f"more than {context.config.group_max_size} members")
        self._admin.schedule_expiry(now_ms)
        return context.pipeline.take_replies()

    def on_unloaded(self, now_ms: int) -> list[Reply]:
        """The partition is no longer led here: waiting requests are answered NOT_COORDINATOR."""
        context = self._context
        gone = ErrorCode.NOT_COORDINATOR
        for group in context.groups.values():
            self._rebalances.abandon(now_ms, group, gone)
        context.pipeline.fail(now_ms, context.pipeline.take_failed(), gone)
        return context.pipeline.take_replies()

    # Appends and time.

    def take_append(self) -> list[LogRecord] | None:
        """Records to append as one batch, to be reported with `on_append_done`; None while one is under way."""
        return self._context.pipeline.take_append()

    def on_append_done(self, now_ms: int, error: ErrorCode = ErrorCode.NONE) -> list[Reply]:
        """The append under way is committed, or has failed; then memory goes back to what is committed."""
        context = self._context
        if error is ErrorCode.NONE:
            context.pipeline.on_committed(now_ms)
        else:
            writes = context.pipeline.take_failed()
            log.warning("an append failed: %s; %d writes are taken back", error.name, len(writes))
            for write in writes:
                context.revert(write)
            context.pipeline.fail(now_ms, writes, error)
        return context.pipeline.take_replies()

    @property
    def deadline_ms(self) -> int | None:
        """When to call `on_timer`, if nothing else happens."""
        timer, waiting = self._context.timers.deadline_ms, self._context.pipeline.deadline_ms
        if timer is None or waiting is None:
            return waiting if timer is None else timer
        return min(timer, waiting)

    def on_timer(self, now_ms: int) -> list[Reply]:
        """Let happen what is due."""
        self._context.pipeline.on_timer(now_ms)
        for key in self._context.timers.pop_due(now_ms):
            self._fire(now_ms, key)
        return self._context.pipeline.take_replies()

    def on_pause(self, now_ms: int, pause_ms: int) -> list[Reply]:
        """The process did not run for so long before `now_ms`, while members' requests came and were not read.

        As after a load, sessions start afresh; whatever else is waited for gets the time back, and time to be read.
        """
        context = self._context
        context.timers.put_off(pause_ms + UNREAD_MS)
        for group in context.groups.values():
            for member in group.members.values():
                context.renew_session(now_ms, group, member)
        return []

    def _fire(self, now_ms: int, key: TimerKey) -> None:
        match key:
            case ("session", group_id, member_id):
                self._rebalances.on_session_timer(now_ms, group_id, member_id)
            case ("join", group_id):
                self._rebalances.on_join_timer(now_ms, group_id)
            case ("sync", group_id):
                self._rebalances.on_sync_timer(now_ms, group_id)
            case _:
                assert key == EXPIRY_TIMER, key
                self._admin.on_expiry_timer(now_ms)

    # Requests. The type of the answer is noted at each.

    def on_join(self, now_ms: int, ticket: Ticket, caller: Caller, request: JoinGroupRequest) -> list[Reply]:
        """JoinGroupResponse, perhaps after a rebalance."""
        self._joins.on_join(now_ms, ticket, caller, request)
        return self._context.pipeline.take_replies()

    def on_sync(self, now_ms: int, ticket: Ticket, request: SyncGroupRequest) -> list[Reply]:
        """SyncGroupResponse, perhaps after the leader's."""
        self._membership.on_sync(now_ms, ticket, request)
        return self._context.pipeline.take_replies()

    def on_heartbeat(self, now_ms: int, ticket: Ticket, request: HeartbeatRequest) -> list[Reply]:
        """ErrorCode."""
        self._membership.on_heartbeat(now_ms, ticket, request)
        return self._context.pipeline.take_replies()

    def on_leave(self, now_ms: int, ticket: Ticket, request: LeaveGroupRequest) -> list[Reply]:
        """LeaveGroupResponse."""
        self._membership.on_leave(now_ms, ticket, request)
        return self._context.pipeline.take_replies()

    def on_offset_commit(self, now_ms: int, ticket: Ticket, request: CommitRequest) -> list[Reply]:
        """An error code for all offsets of the request, or one for each."""
        self._commits.on_commit(now_ms, ticket, request)
        return self._context.pipeline.take_replies()

    def on_offset_fetch(self, now_ms: int, ticket: Ticket, request: FetchGroup, *, require_stable: bool) -> list[Reply]:
        """FetchedGroup."""
        self._commits.on_fetch(now_ms, ticket, request, require_stable)
        return self._context.pipeline.take_replies()

    def on_offset_delete(self, now_ms: int, ticket: Ticket, request: OffsetDeleteRequest) -> list[Reply]:
        """OffsetDeleteResponse."""
        self._commits.on_delete(now_ms, ticket, request)
        return self._context.pipeline.take_replies()

    def on_delete_groups(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> list[Reply]:
        """A tuple of DeletedGroup."""
        self._admin.on_delete_groups(now_ms, ticket, group_ids)
        return self._context.pipeline.take_replies()

    def on_topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> list[Reply]:
        """Deleted topics, name and id; there is no answer."""
        removed = self._admin.on_topics_deleted(topics)
        if removed:
            log.info("removed %d offsets of deleted topics", removed)
        return self._context.pipeline.take_replies()

    # Reads, answered at once from what is committed.

    def describe(self, api_version: int, group_id: str) -> DescribedGroup:
        """A group, or that there is none."""
        return self._admin.describe(api_version, group_id)

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups that pass the request's filters."""
        return self._admin.list_groups(request)

    # What tests and the node look at.

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The classic groups by id, as they are now; not to be changed."""
        return self._context.groups

    def offsets_of(self, group_id: str) -> TopicOffsets:
        """A group's offsets by topic and partition, as they are now; not to be changed."""
        return self._context.offsets.of_group(group_id)

    @property
    def foreign_groups(self) -> list[ForeignGroup]:
        """The groups of other kinds that the log holds."""
        return list(self._context.foreign)
