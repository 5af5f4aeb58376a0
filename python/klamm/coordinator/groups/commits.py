"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete and markers (Kafka's `OffsetMetadataManager`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.classic_group import ClassicGroup, Member
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ConsumerMember
from klamm.coordinator.groups.consumer.offset_checks import check_commit, check_fetch, check_transactional_commit
from klamm.coordinator.groups.context import SHARE, ShardContext, log
from klamm.coordinator.groups.modern.journal import value_before
from klamm.coordinator.groups.offsets import TopicOffsets
from klamm.coordinator.groups.overwritten import Overwritten
from klamm.coordinator.groups.records import (
    MAKE_OFFSET,
    NO_TIMESTAMP,
    OffsetAndMetadata,
    offset_key,
    offset_value,
)
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.groups.streams import offset_checks as streams_checks
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.verifications import Verification
from klamm.coordinator.runtime.append_errors import FAILED_APPENDS, coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.coordinator.runtime.log import LogRecord, Marker, Producer
from klamm.coordinator.runtime.pipeline import REFUSALS
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import (
    NO_RETENTION_MS,
    UNKNOWN_MEMBER_ID,
    ZERO_ID,
    DeletedPartition,
    DeletedTopic,
    DeleteTopic,
    FetchedGroup,
    FetchedPartition,
    FetchedTopic,
    FetchGroup,
    FetchTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)

GROUP_ID_NOT_FOUND_MIN_VERSION: Final = 9
INT64_MAX: Final = 2**63 - 1

CommitAnswer = int | list[int]
"""An error code for all partitions, or one per partition in order."""
# Looking up an enum member takes 0.1 us, and every commit needs several.
NONE: Final = ErrorCode.NONE
OK: Final = int(ErrorCode.NONE)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
RENEWING_STATES: Final = (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
Change = tuple[str, str, int, OffsetAndMetadata | None]
"""Group, topic, partition, and the offset that is committed there now, or None."""


class Commits:
    """Handles the committed offsets of groups."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def on_commit(self, now_ms: int, ticket: Ticket, request: CommitRequest) -> None:
        """Commit all valid offsets of existing partitions in one batch."""
        code = self._check_commit(now_ms, request)
        answer = int(code) if code is not NONE else self._commit(now_ms, request)
        if answer == UNKNOWN_SERVER_ERROR:
            self._context.reply(ticket, answer)
        else:
            self._context.pipeline.reply_when_committed(now_ms, ticket, answer, request, _failed_commit)

    def on_transactional_commit(
        self, now_ms: int, ticket: Ticket, request: CommitRequest, verification: Verification
    ) -> None:
        """Commit valid offsets in a batch of the transaction, which `verification` has shown to be open."""
        self._context.verifications.end(verification)
        code = verification.error
        if code is NONE:
            code = self._check_transactional_commit(request)
        answer = int(code) if code is not NONE else self._commit(now_ms, request, verification.producer)
        if answer == OK or (isinstance(answer, list) and OK in answer):
            self._context.pipeline.reply_when_committed(now_ms, ticket, answer, request, _failed_transactional_commit)
        else:
            self._context.reply(ticket, answer)

    def on_marker(self, now_ms: int, ticket: Ticket, marker: Marker) -> None:
        """Write the marker and end the transaction. Its offsets are visible when the marker is committed."""
        context = self._context
        overwritten = context.pipeline.write_marker(marker)
        context.verifications.on_marker(marker.producer)
        context.offsets.end_transaction(marker.producer.producer_id, marker.commits, overwritten)
        context.pipeline.reply_when_committed(now_ms, ticket, NONE, marker, _failed_marker)

    def _commit(self, now_ms: int, request: CommitRequest, producer: Producer | None = None) -> CommitAnswer:
        context, retention_ms = self._context, request.retention_time_ms
        expire_ms = NO_TIMESTAMP if retention_ms == NO_RETENTION_MS else min(now_ms + retention_ms, INT64_MAX)
        metadata_max, record_offset = context.config.offset_metadata_max_bytes, context.next_record_offset
        try:
            found = request.changes(now_ms, expire_ms, metadata_max, record_offset, MAKE_OFFSET)
        except OverflowError:
            return UNKNOWN_SERVER_ERROR
        records, size, changes, codes = found
        if changes:
            overwritten = context.pipeline.write(records, size, producer=producer)
            if overwritten is None:
                return UNKNOWN_SERVER_ERROR
            group_id = request.group_id
            if group_id not in context.groups:
                self.make_simple_group(group_id, overwritten)
            if producer is None:
                context.offsets.put_all(group_id, changes, overwritten)
            else:
                for topic, partition, commit in changes:
                    place = (group_id, topic, partition)
                    context.offsets.put_pending(producer.producer_id, place, commit, overwritten)
            context.next_record_offset += len(changes)
            context.counts.offset_commits += len(changes)
        return codes if len(changes) < len(codes) else OK

    def _check_commit(self, now_ms: int, request: CommitRequest) -> ErrorCode:
        group = self._context.groups.get(request.group_id)
        if group is None:
            return self._check_without_group(request)
        generation_id = request.generation_id_or_member_epoch
        if generation_id < 0 and group.is_empty:
            return NONE
        try:
            member = _check_member(group, generation_id, request)
        except KafkaError as error:
            return error.code
        if group.state in RENEWING_STATES:
            self._context.renew_session(now_ms, group, member)
        return NONE

    def _check_without_group(self, request: CommitRequest) -> ErrorCode:
        modern = self._context.modern.get(request.group_id)
        if isinstance(modern, ConsumerGroup):
            return check_commit(modern, request)
        if isinstance(modern, StreamsGroup):
            return streams_checks.check_commit(modern, request)
        if modern is not None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if request.generation_id_or_member_epoch < 0:
            return ErrorCode.NONE  # an admin, or a consumer that assigns its own partitions: a simple group
        if request.version >= GROUP_ID_NOT_FOUND_MIN_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION

    def _check_transactional_commit(self, request: CommitRequest) -> ErrorCode:
        """As in Kafka, a commit without generation, member and instance passes in every state (KIP-447)."""
        modern = self._context.modern.get(request.group_id)
        if isinstance(modern, ConsumerGroup):
            return check_transactional_commit(modern, request, self._context.topics)
        if isinstance(modern, StreamsGroup):
            return streams_checks.check_transactional_commit(modern, request)
        if modern is not None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        generation_id, member_id = request.generation_id_or_member_epoch, request.member_id
        is_anonymous = generation_id < 0 and member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is None
        group = self._context.groups.get(request.group_id)
        if is_anonymous:
            return NONE
        if group is None:
            return NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        if generation_id < 0 and group.is_empty:
            return NONE
        try:
            group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            return error.code
        return NONE if generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION

    def apply(self, records: list[LogRecord], changes: list[Change]) -> bool:
        """Apply the changes and write their records as one operation; False if they do not fit into a batch."""
        overwritten = self._context.pipeline.write(records)
        if overwritten is None:
            return False
        for change in changes:
            self.replay(change, overwritten)
        return True

    def replay(self, change: Change, overwritten: Overwritten | None) -> None:
        """Apply one change to the state. An unknown group is created."""
        group_id, topic, partition, commit = change
        context = self._context
        context.next_record_offset += 1
        if commit is None:
            context.offsets.remove(group_id, topic, partition, overwritten)
            return
        if group_id not in context.groups:
            self.make_simple_group(group_id, overwritten)
        context.offsets.put(group_id, topic, partition, commit, overwritten)

    def make_simple_group(self, group_id: str, overwritten: Overwritten | None) -> None:
        """Create a group without members because it has offsets. It has no record of its own."""
        context = self._context
        if context.modern.get(group_id) or group_id in context.groups:
            return
        log.info("group %s: a simple group, created by an offset commit", group_id)
        context.groups[group_id] = ClassicGroup(group_id)
        if overwritten is not None:
            context.note_group(overwritten, group_id, None)

    def on_fetch(self, now_ms: int, ticket: Ticket, request: FetchGroup, require_stable: bool) -> None:
        """Answer with committed offsets: those below the high watermark, or the newest if `require_stable`."""
        error = self._check_fetch(request, require_stable)
        if error is not ErrorCode.NONE:
            self._context.reply(ticket, fetch_error(request, error))
        elif require_stable:
            answer = self._fetch(request, self._context.offsets.of_group(request.group_id), True)
            self._context.pipeline.reply_when_committed(now_ms, ticket, answer, request, _failed_fetch)
        else:
            snapshots = self._context.pipeline.snapshots()
            offsets = self._context.offsets.committed_of_group(request.group_id, snapshots)
            self._context.reply(ticket, self._fetch(request, offsets, False))

    def _check_fetch(self, request: FetchGroup, require_stable: bool) -> ErrorCode:
        """The error for the member that the request names, as it is committed, or as it is now if `require_stable`."""
        if request.member_id is None and request.member_epoch < 0:
            return ErrorCode.NONE
        snapshots = [] if require_stable else self._context.pipeline.snapshots()
        undo = [one for snapshot in snapshots for one in snapshot.undo]
        group = self._context.modern.get_before(undo, request.group_id)
        if not isinstance(group, ConsumerGroup | StreamsGroup):
            return ErrorCode.NONE
        members: Mapping[str, ConsumerMember | StreamsMember] = group.members
        member = value_before(undo, members, request.member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(member, StreamsMember):
            return streams_checks.check_fetch(member, request.member_epoch)
        return check_fetch(member, request.member_epoch)

    def _fetch(self, request: FetchGroup, offsets: TopicOffsets, require_stable: bool) -> FetchedGroup:
        topics = request.topics
        if topics is None:
            topics = tuple(FetchTopic(topic, ZERO_ID, tuple(offsets[topic])) for topic in offsets)
        fetched = tuple(self._fetch_topic(request.group_id, topic, offsets, require_stable) for topic in topics)
        return FetchedGroup(request.group_id, fetched)

    def _fetch_topic(
        self, group_id: str, topic: FetchTopic, offsets: TopicOffsets, require_stable: bool
    ) -> FetchedTopic:
        committed = offsets.get(topic.name, {})
        partitions = []
        for index in topic.partition_indexes:
            commit = committed.get(index)
            if require_stable and self._context.offsets.is_pending(group_id, topic.name, index):
                partitions.append(FetchedPartition(index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif commit is None or _is_other_topic(commit.topic_id, topic.topic_id):
                partitions.append(FetchedPartition(index))
            else:
                partitions.append(FetchedPartition(index, commit.offset, commit.leader_epoch, commit.metadata))
        return FetchedTopic(topic.name, topic.topic_id, tuple(partitions))

    def on_delete(self, now_ms: int, ticket: Ticket, request: OffsetDeleteRequest) -> None:
        """Delete the offsets of topics to which no member subscribes."""
        error = self._check_delete(request.group_id)
        if error is not ErrorCode.NONE:
            response = OffsetDeleteResponse(error)
        else:
            changes: list[Change] = []
            topics = tuple(self._delete_topic(request.group_id, topic, changes) for topic in request.topics)
            is_done = not changes or self.apply([offset_record(change) for change in changes], changes)
            self._context.counts.offset_deletions += len(changes) if is_done else 0
            response = OffsetDeleteResponse(ErrorCode.NONE if is_done else ErrorCode.UNKNOWN_SERVER_ERROR, topics)
        self._context.pipeline.reply_when_committed(now_ms, ticket, response, request, _failed_delete)

    def _check_delete(self, group_id: str) -> ErrorCode:
        group = self._context.groups.get(group_id)
        modern = self._context.modern.get(group_id)
        if modern is not None:
            return ErrorCode.GROUP_ID_NOT_FOUND if modern.kind == SHARE else ErrorCode.NONE
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_empty or group.uses_consumer_protocol else ErrorCode.NON_EMPTY_GROUP

    def _delete_topic(self, group_id: str, topic: DeleteTopic, changes: list[Change]) -> DeletedTopic:
        is_subscribed = self._context.is_subscribed(group_id, topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        offsets = self._context.offsets
        for partition in topic.partitions:
            place = (group_id, topic.name, partition.partition_index)
            if not is_subscribed and (offsets.get(*place) is not None or offsets.is_pending(*place)):
                changes.append((*place, None))
        deleted = tuple(DeletedPartition(partition.partition_index, error) for partition in topic.partitions)
        return DeletedTopic(topic.name, deleted)


def _check_member(group: ClassicGroup, generation_id: int, request: CommitRequest) -> Member:
    """The member that commits. Raises KafkaError if the commit is refused."""
    member_id, instance_id = request.member_id, request.group_instance_id
    if generation_id < 0 and member_id == UNKNOWN_MEMBER_ID and instance_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(member_id, instance_id)
    if generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def _is_other_topic(stored_id: bytes, asked_id: bytes) -> bool:
    """Whether both ids are known and differ: the topic was created again after the commit."""
    return stored_id != asked_id and ZERO_ID not in (stored_id, asked_id)


def offset_record(change: Change) -> LogRecord:
    """The record of a change."""
    group_id, topic, partition, commit = change
    return offset_key(group_id, topic, partition), None if commit is None else offset_value(commit)


def fetch_error(request: FetchGroup, error: ErrorCode) -> FetchedGroup:
    """The error for the group. Its partitions are listed for version 1, which has errors only per partition."""
    code = int(error)
    topics = tuple(
        FetchedTopic(
            topic.name,
            topic.topic_id,
            tuple(FetchedPartition(index, error_code=code) for index in topic.partition_indexes),
        )
        for topic in request.topics or ()
    )
    return FetchedGroup(request.group_id, topics, code)


def _failed_commit(_: CommitRequest, error: ErrorCode) -> CommitAnswer:
    return int(coordinator_error(error))


def _failed_transactional_commit(_: CommitRequest, error: ErrorCode) -> CommitAnswer:
    return int(error if error in REFUSALS else coordinator_error(error))


def _failed_marker(_: Marker, error: ErrorCode) -> ErrorCode:
    return error


def _failed_fetch(request: FetchGroup, error: ErrorCode) -> FetchedGroup:
    code = FAILED_APPENDS.get(error, error)
    # Consumers before 3.9 do not expect COORDINATOR_NOT_AVAILABLE here; NOT_COORDINATOR makes them find it again.
    is_unavailable = code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return fetch_error(request, ErrorCode.NOT_COORDINATOR if is_unavailable else code)


def _failed_delete(_: OffsetDeleteRequest, error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(coordinator_error(error))
