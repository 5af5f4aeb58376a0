"""One partition of `__consumer_offsets` as a state machine: the groups whose ids hash to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from klamm._engine.groups import CommitRequest
from klamm._engine.groups import assign as native_assign
from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.commits import Commits
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from klamm.coordinator.groups.consumer.records import ResolvedPattern
from klamm.coordinator.groups.context import EXPIRY_TIMER, ShardContext, TimerKey, log
from klamm.coordinator.groups.counts import GroupCounts
from klamm.coordinator.groups.effects import GroupEffect
from klamm.coordinator.groups.group_admin import GroupAdmin
from klamm.coordinator.groups.joins import Joins
from klamm.coordinator.groups.membership import Membership
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import AnyModernGroup
from klamm.coordinator.groups.modern.target import Assign
from klamm.coordinator.groups.offsets import TopicOffsets
from klamm.coordinator.groups.overwritten import OffsetPlace, Overwritten
from klamm.coordinator.groups.rebalance import Rebalances
from klamm.coordinator.groups.record_parts import SHORT
from klamm.coordinator.groups.records import OffsetCommit, Record, UnknownRecord, decode
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.coordinator.groups.share.share_groups import ShareGroups
from klamm.coordinator.groups.share.state_partitions import Places
from klamm.coordinator.groups.streams.streams_groups import StreamsGroups
from klamm.coordinator.groups.streams.timers import INITIAL_REBALANCE
from klamm.coordinator.groups.topics import GroupConfigs, Topics, no_group_configs
from klamm.coordinator.groups.verifications import Verification
from klamm.coordinator.runtime.effects import Reply, Ticket
from klamm.coordinator.runtime.log import NO_PRODUCER_ID, LoadedRecord, Marker, Producer
from klamm.coordinator.runtime.pipeline import Pipeline
from klamm.coordinator.runtime.timers import Timers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
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
from klamm.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    ShareGroupHeartbeatRequest,
)
from klamm.protocol.messages.streams_messages import StreamsGroupHeartbeatRequest

ABORT_MARKER: Final = SHORT.pack(0)
COMMIT_MARKER: Final = SHORT.pack(1)
_REPLAY: Final = Journal()
Replies = list[Reply | GroupEffect]
"""What an event of the shard returns."""


class GroupShard:
    """The group coordinator of one partition.

    `draw_uuid` returns the random part of a member id. `topics` is the metadata of the cluster, `group_configs` has the
    configs of groups.
    """

    def __init__(
        self,
        config: GroupConfig,
        draw_uuid: Callable[[], str],
        counts: GroupCounts | None = None,
        *,
        topics: Topics | None = None,
        group_configs: GroupConfigs = no_group_configs,
        assign: Assign = native_assign,
    ) -> None:
        self._context = ShardContext(
            config, draw_uuid, counts or GroupCounts(), topics=topics, group_configs=group_configs, assign=assign
        )
        self._rebalances = Rebalances(self._context)
        self._commits = Commits(self._context)
        self._consumers = ConsumerGroups(self._context, self._rebalances)
        classic_members = self._consumers.classic_members
        self._joins = Joins(self._context, self._rebalances, classic_members)
        self._membership = Membership(self._context, self._rebalances, classic_members)
        self._shares = ShareGroups(self._context)
        self._streams = StreamsGroups(self._context)
        self._admin = GroupAdmin(self._context, self._commits)
        self._skipped: dict[int, int] = {}

    # For the runtime (`klamm.coordinator.runtime.shard.Shard`)

    @property
    def pipeline(self) -> Pipeline[Overwritten, GroupEffect]:
        """Collects records and responses."""
        return self._context.pipeline

    @property
    def timers(self) -> Timers[TimerKey]:
        """Sessions, phases of rebalances, and the expiry of offsets."""
        return self._context.timers

    def replay(self, record: LoadedRecord) -> None:
        """Apply a record of the log. Raises RecordError if it cannot be decoded."""
        if not record.is_control:
            self._replay(record.offset, record.producer_id, decode(record.key, record.value, record.offset))
        elif record.key in (ABORT_MARKER, COMMIT_MARKER):
            self._context.offsets.end_transaction(record.producer_id, record.key == COMMIT_MARKER, None)

    def _replay(self, offset: int, producer_id: int, record: Record) -> None:
        context = self._context
        match record:
            case OffsetCommit(group_id, topic, partition, commit):
                if commit is not None and producer_id != NO_PRODUCER_ID:
                    self._commits.make_simple_group(group_id, None)
                    context.offsets.put_pending(producer_id, (group_id, topic, partition), commit, None)
                else:
                    self._commits.replay((group_id, topic, partition, commit), None)
            case UnknownRecord(type_):
                self._skipped[type_] = self._skipped.get(type_, 0) + 1
            case _:
                context.apply(_REPLAY, record)
        context.next_record_offset = offset + 1

    def on_loaded(self, now_ms: int) -> Replies:
        """The load is complete: restart all sessions, and rebalance groups above a lowered `group.max.size`."""
        context = self._context
        for type_, count in sorted(self._skipped.items()):
            log.warning("skipped %d records of the unknown type %d, perhaps left by a newer version", count, type_)
        for group in list(context.groups.values()):
            for member in group.members.values():
                context.renew_session(now_ms, group, member)
            if len(group.members) > context.config.group_max_size:
                self._rebalances.prepare(now_ms, group, f"more than {context.config.group_max_size} members")
        self._consumers.on_loaded(now_ms)
        self._shares.on_loaded(now_ms)
        self._streams.on_loaded(now_ms)
        self._admin.schedule_expiry(now_ms)
        return context.pipeline.take_effects()

    def on_unloaded(self, now_ms: int) -> Replies:
        """The partition is no longer led here: answer waiting joins and syncs with NOT_COORDINATOR."""
        context = self._context
        error = ErrorCode.NOT_COORDINATOR
        for group in context.groups.values():
            self._rebalances.abandon(now_ms, group, error)
        return context.pipeline.take_effects()

    def rollback(self, snapshot: Overwritten) -> None:
        """Restore groups and offsets as they were before a write."""
        self._context.rollback(snapshot)

    def on_timer(self, now_ms: int, key: TimerKey) -> Replies:
        """Handle a timer that is due."""
        match key:
            case ("session", group_id, member_id):
                self._rebalances.on_session_timer(now_ms, group_id, member_id)
            case ("join", group_id):
                self._rebalances.on_join_timer(now_ms, group_id)
            case ("sync", group_id):
                self._rebalances.on_sync_timer(now_ms, group_id)
            case (kind, group_id) if kind == INITIAL_REBALANCE:
                self._streams.on_initial_delay_timer(now_ms, group_id)
            case (kind, group_id, member_id):
                if self.is_share_group(group_id):
                    self._shares.on_session_timer(now_ms, group_id, member_id)
                else:
                    self._consumers.on_timer(now_ms, kind, group_id, member_id)
                    self._streams.on_timer(now_ms, kind, group_id, member_id)
            case _:
                assert key == EXPIRY_TIMER, key
                self._admin.on_expiry_timer(now_ms)
        return self._context.pipeline.take_effects()

    def on_pause(self, now_ms: int, pause_ms: int) -> Replies:
        """The process did not run while members sent requests: restart all sessions, as after a load."""
        context = self._context
        for group in context.groups.values():
            for member in group.members.values():
                context.renew_session(now_ms, group, member)
        self._consumers.on_pause(now_ms)
        self._shares.on_pause(now_ms)
        self._streams.on_pause(now_ms)
        return context.pipeline.take_effects()

    # Requests. Each docstring states the type of the response.

    def on_join(self, now_ms: int, ticket: Ticket, caller: Caller, request: JoinGroupRequest) -> Replies:
        """JoinGroupResponse, perhaps after a rebalance."""
        self._joins.on_join(now_ms, ticket, caller, request)
        return self._context.pipeline.take_effects()

    def on_sync(self, now_ms: int, ticket: Ticket, request: SyncGroupRequest) -> Replies:
        """SyncGroupResponse, perhaps after the leader's SyncGroup."""
        self._membership.on_sync(now_ms, ticket, request)
        return self._context.pipeline.take_effects()

    def on_heartbeat(self, now_ms: int, ticket: Ticket, request: HeartbeatRequest) -> Replies:
        """ErrorCode."""
        self._membership.on_heartbeat(now_ms, ticket, request)
        return self._context.pipeline.take_effects()

    def on_leave(self, now_ms: int, ticket: Ticket, request: LeaveGroupRequest) -> Replies:
        """LeaveGroupResponse."""
        self._membership.on_leave(now_ms, ticket, request)
        return self._context.pipeline.take_effects()

    def on_consumer_heartbeat(
        self, now_ms: int, ticket: Ticket, caller: Caller, request: ConsumerGroupHeartbeatRequest
    ) -> Replies:
        """ConsumerGroupHeartbeatResponse."""
        self._consumers.on_heartbeat(now_ms, ticket, caller, request)
        return self._context.pipeline.take_effects()

    def on_consumer_describe(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> Replies:
        """A tuple of DescribedConsumerGroup."""
        self._consumers.on_describe(now_ms, ticket, group_ids)
        return self._context.pipeline.take_effects()

    def on_share_heartbeat(
        self, now_ms: int, ticket: Ticket, caller: Caller, request: ShareGroupHeartbeatRequest
    ) -> Replies:
        """ShareGroupHeartbeatResponse."""
        self._shares.on_heartbeat(now_ms, ticket, caller, request)
        return self._context.pipeline.take_effects()

    def on_share_describe(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> Replies:
        """A tuple of DescribedShareGroup."""
        self._shares.on_describe(now_ms, ticket, group_ids)
        return self._context.pipeline.take_effects()

    def on_alter_share_offsets(self, now_ms: int, ticket: Ticket, request: AlterShareGroupOffsetsRequest) -> Replies:
        """Alteration, or KafkaError."""
        self._shares.on_offsets(now_ms, ticket, lambda: self._shares.offsets.alter(now_ms, request))
        return self._context.pipeline.take_effects()

    def on_delete_share_offsets(self, now_ms: int, ticket: Ticket, request: DeleteShareGroupOffsetsRequest) -> Replies:
        """Deletion, or KafkaError."""
        self._shares.on_offsets(now_ms, ticket, lambda: self._shares.offsets.delete(now_ms, request))
        return self._context.pipeline.take_effects()

    def on_delete_share_states(self, now_ms: int, ticket: Ticket, group_id: str) -> Replies:
        """Deletion of all states of a share group, or KafkaError."""
        self._shares.on_offsets(now_ms, ticket, lambda: self._shares.offsets.delete_all(now_ms, group_id))
        return self._context.pipeline.take_effects()

    def on_share_states_deleted(
        self, now_ms: int, ticket: Ticket, group_id: str, topic_ids: Collection[bytes]
    ) -> Replies:
        """The states of topics are deleted: None, or KafkaError."""
        self._shares.on_offsets(now_ms, ticket, lambda: self._shares.offsets.on_deleted(now_ms, group_id, topic_ids))
        return self._context.pipeline.take_effects()

    def on_initialized(self, now_ms: int, ticket: Ticket, group_id: str) -> Replies:
        """The partitions of a share group that have a state, by topic id, or KafkaError."""
        self._shares.on_offsets(now_ms, ticket, lambda: self._shares.initialized(group_id))
        return self._context.pipeline.take_effects()

    def on_states_created(self, now_ms: int, group_id: str, places: Places, *, is_done: bool) -> Replies:
        """The end of `CreateStates`: all states were created, or one could not be. No response."""
        self._shares.on_states_created(now_ms, group_id, places, is_done=is_done)
        return self._context.pipeline.take_effects()

    def on_streams_heartbeat(
        self, now_ms: int, ticket: Ticket, caller: Caller, request: StreamsGroupHeartbeatRequest
    ) -> Replies:
        """HeartbeatResult."""
        self._streams.on_heartbeat(now_ms, ticket, caller, request)
        return self._context.pipeline.take_effects()

    def on_streams_describe(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> Replies:
        """A tuple of DescribedStreamsGroup."""
        self._streams.on_describe(now_ms, ticket, group_ids)
        return self._context.pipeline.take_effects()

    def on_offset_commit(self, now_ms: int, ticket: Ticket, request: CommitRequest) -> Replies:
        """An error code for all offsets of the request, or one for each."""
        self._commits.on_commit(now_ms, ticket, request)
        return self._context.pipeline.take_effects()

    def begin_verification(self, producer: Producer, *, is_adding: bool) -> Verification:
        """Note that a transactional commit is about to be verified, before the transaction coordinator is asked."""
        return self._context.verifications.begin(producer, is_adding=is_adding)

    def end_verification(self, verification: Verification) -> None:
        """The commit does not follow, or has followed."""
        self._context.verifications.end(verification)

    def on_transactional_commit(
        self, now_ms: int, ticket: Ticket, request: CommitRequest, verification: Verification
    ) -> Replies:
        """An error code for all offsets of the request, or one for each."""
        self._commits.on_transactional_commit(now_ms, ticket, request, verification)
        return self._context.pipeline.take_effects()

    def on_marker(self, now_ms: int, ticket: Ticket, marker: Marker) -> Replies:
        """ErrorCode of the append, NONE when the marker is committed."""
        self._commits.on_marker(now_ms, ticket, marker)
        return self._context.pipeline.take_effects()

    def on_offset_fetch(self, now_ms: int, ticket: Ticket, request: FetchGroup, *, require_stable: bool) -> Replies:
        """FetchedGroup."""
        self._commits.on_fetch(now_ms, ticket, request, require_stable)
        return self._context.pipeline.take_effects()

    def on_offset_delete(self, now_ms: int, ticket: Ticket, request: OffsetDeleteRequest) -> Replies:
        """OffsetDeleteResponse."""
        self._commits.on_delete(now_ms, ticket, request)
        return self._context.pipeline.take_effects()

    def on_delete_groups(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> Replies:
        """A tuple of DeletedGroup."""
        self._admin.on_delete_groups(now_ms, ticket, group_ids)
        return self._context.pipeline.take_effects()

    def on_topics_deleted(self, now_ms: int, topics: Iterable[tuple[str, bytes]]) -> Replies:
        """Remove the offsets of deleted topics (name and id); no response."""
        topics = list(topics)
        self._shares.on_topics_deleted(now_ms, {topic_id for _, topic_id in topics})
        removed = self._admin.on_topics_deleted(topics)
        if removed:
            log.info("removed %d offsets of deleted topics", removed)
        return self._context.pipeline.take_effects()

    def on_metadata(self, now_ms: int, changed: frozenset[str], *, created: bool) -> Replies:
        """Newer metadata: the names of topics that were created, changed or deleted, and whether any was created.

        Groups that need one of these look at their metadata hash at the next heartbeat. No response.
        """
        for group in self._context.modern:
            if group.is_affected_by(changed):
                group.hash_checked_epoch = None
        if created:
            self._consumers.on_topics_created()
        return self._context.pipeline.take_effects()

    def on_patterns_resolved(self, now_ms: int, group_id: str, found: Mapping[str, ResolvedPattern] | None) -> Replies:
        """The end of `ResolvePatterns`; None if it failed. No response."""
        self._consumers.on_patterns_resolved(now_ms, group_id, found)
        return self._context.pipeline.take_effects()

    # Reads, answered at once from the committed state.

    def describe(self, api_version: int, group_id: str) -> DescribedGroup:
        """A group, or that it does not exist."""
        return self._admin.describe(api_version, group_id)

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups that pass the request's filters."""
        return self._admin.list_groups(request)

    def is_share_group(self, group_id: str) -> bool:
        """Whether the id is a share group's, in the newest state."""
        return self._context.modern.find(group_id, ShareGroup) is not None

    # For tests and the node.

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The classic groups by id in the current state; do not modify."""
        return self._context.groups

    @property
    def modern_groups(self) -> dict[str, AnyModernGroup]:
        """The groups of the new protocols by id in the current state; do not modify."""
        return {group.group_id: group for group in self._context.modern}

    def offsets_of(self, group_id: str) -> TopicOffsets:
        """A group's offsets by topic and partition in the current state; do not modify."""
        return self._context.offsets.of_group(group_id)

    @property
    def offset_count(self) -> int:
        """The number of committed offsets. It visits every topic of every group."""
        return self._context.offsets.count

    def pending_offsets(self, group_id: str) -> dict[tuple[OffsetPlace, int], int]:
        """A group's pending offsets by topic and partition and by producer id."""
        return {
            ((topic, partition), producer_id): commit.offset
            for producer_id, pending in self._context.offsets.pending().items()
            for (group, topic, partition), commit in pending.items()
            if group == group_id
        }

    @property
    def verification_count(self) -> int:
        """How many transactional commits wait for the transaction coordinator."""
        return len(self._context.verifications)
