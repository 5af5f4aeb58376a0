"""DescribeGroups, ListGroups, DeleteGroups, and the expiry of offsets and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.commits import Change, Commits, offset_record
from klamm.coordinator.groups.context import EXPIRY_TIMER, SHARE, ShardContext, Written, log
from klamm.coordinator.groups.overwritten import OffsetPlace
from klamm.coordinator.groups.records import NO_TIMESTAMP, GroupRecord, OffsetAndMetadata
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
    DeletedGroup,
    DescribedGroup,
    DescribedMember,
    ListedGroup,
    ListGroupsRequest,
)

DESCRIBE_NOT_FOUND_MIN_VERSION: Final = 6
CLEAN_UP_RECORDS: Final = 500
"""A clean-up is split into operations of at most this many records; it need not be atomic."""
EXPIRY_PLACES: Final = 2_000
"""How many offsets one step of the expiry examines, so that other requests are not delayed."""

CLASSIC: Final = "classic"


class GroupAdmin:
    """Describes, lists and deletes groups."""

    def __init__(self, context: ShardContext, commits: Commits) -> None:
        self._context = context
        self._commits = commits
        self._to_expire: list[str] = []

    def describe(self, api_version: int, group_id: str) -> DescribedGroup:
        """The group; one whose deletion is not committed is still visible."""
        group = self._context.visible_group(group_id)
        if group is not None:
            return _describe(group)
        if api_version < DESCRIBE_NOT_FOUND_MIN_VERSION:
            return DescribedGroup(group_id, group_state=GroupState.DEAD.value)
        kind = "is not a classic group" if self._context.modern.get(group_id) else "not found"
        message = f"Group {group_id} {kind}."
        return DescribedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message, GroupState.DEAD.value)

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups that pass both filters, ignoring case."""
        states = {state.lower().strip() for state in request.states_filter}
        types = {type_.lower() for type_ in request.types_filter}
        return [
            group
            for group in self._listed()
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ]

    def _listed(self) -> Iterator[ListedGroup]:
        yield from map(_listed, self._context.visible_groups().values())
        yield from self._context.listed_modern()

    def on_delete_groups(self, now_ms: int, ticket: Ticket, group_ids: tuple[str, ...]) -> None:
        """Delete empty groups with their offsets."""
        results = tuple(DeletedGroup(group_id, self._delete(group_id)) for group_id in group_ids)
        self._context.pipeline.reply_when_committed(now_ms, ticket, results, group_ids, _failed_delete)

    def _delete(self, group_id: str) -> ErrorCode:
        is_empty = self._is_empty(group_id)
        if is_empty is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        places = self._context.offsets.places(group_id)
        # Offsets first, in parts: after a crash a smaller group is left, which can be deleted again.
        self._remove_offsets((group_id, *place) for place in places)
        if not self._write_tombstones(group_id):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        log.info("group %s: deleted, with %d offsets", group_id, len(places))
        return ErrorCode.NONE

    def _is_empty(self, group_id: str) -> bool | None:
        """Whether the group has no members; None if there is no such group."""
        group = self._context.groups.get(group_id) or self._context.modern.get(group_id)
        return None if group is None else group.is_empty

    def _remove_offsets(self, places: Iterable[tuple[str, str, int]]) -> int:
        """Write tombstones in as many operations as necessary; returns their number."""
        changes: list[Change] = [(*place, None) for place in places]
        for start in range(0, len(changes), CLEAN_UP_RECORDS):
            part = changes[start : start + CLEAN_UP_RECORDS]
            self._commits.apply([offset_record(change) for change in part], part)
        return len(changes)

    def _write_tombstones(self, group_id: str) -> bool:
        """Delete an empty group with its tombstones; False if they do not fit into a batch."""
        modern = self._context.modern.get(group_id)
        records: Sequence[Written] = (GroupRecord(group_id, None),) if modern is None else modern.tombstones()
        try:
            self._context.write_records(records)
        except KafkaError:
            return False
        return True

    def on_topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> int:
        """Remove the offsets of deleted topics (name and id); returns their number."""
        offsets = self._context.offsets
        places = {
            (group_id, name, partition): None
            for name, topic_id in topics
            for group_id, partition in offsets.places_of_topic(name, topic_id, ZERO_ID)
        }
        return self._remove_offsets(places)

    def schedule_expiry(self, now_ms: int) -> None:
        """Schedule the next expiry after the check interval."""
        interval_ms = self._context.config.offsets_retention_check_interval_ms
        self._context.timers.schedule(EXPIRY_TIMER, now_ms + interval_ms)

    def on_expiry_timer(self, now_ms: int) -> None:
        """Expire the offsets of some groups; continue with the others at once."""
        if not self._to_expire:
            modern = (group.group_id for group in self._context.modern if group.kind != SHARE)
            self._to_expire = [*self._context.groups, *modern]
        looked_at = 0
        while self._to_expire and looked_at < EXPIRY_PLACES:
            looked_at += self._expire_group(now_ms, self._to_expire.pop())
        if self._to_expire:
            self._context.timers.schedule(EXPIRY_TIMER, now_ms)
        else:
            self.schedule_expiry(now_ms)

    def _expire_group(self, now_ms: int, group_id: str) -> int:
        """Expire a group's offsets, and the group if it is empty and has none left; returns the number of steps."""
        offsets = self._context.offsets.of_group(group_id)
        base = self._expiry_base(group_id)
        places = [(topic, partition) for topic, partitions in offsets.items() for partition in partitions]
        expired = [] if base is None else [place for place in places if self._is_expired(now_ms, group_id, place, base)]
        self._context.counts.offset_expirations += self._remove_offsets((group_id, *place) for place in expired)
        is_bare = len(expired) == len(places) and not self._context.offsets.has_open_transactions(group_id)
        if is_bare and self._is_empty(group_id):
            log.info("group %s: removed; it is empty and %d offsets expired", group_id, len(expired))
            self._write_tombstones(group_id)
        return len(places) + 1

    def _expiry_base(self, group_id: str) -> int | None:
        """The time from which retention counts; NO_TIMESTAMP: each commit's own; None: nothing expires."""
        group = self._context.groups.get(group_id)
        if group is None:
            return None if self._context.modern.get(group_id) is None else NO_TIMESTAMP
        if group.protocol_type is None:
            return NO_TIMESTAMP
        if group.is_empty:
            return group.state_timestamp_ms
        is_readable = group.topics is not None and group.uses_consumer_protocol
        return NO_TIMESTAMP if is_readable and group.state is GroupState.STABLE else None

    def _is_expired(self, now_ms: int, group_id: str, place: OffsetPlace, base_ms: int) -> bool:
        topic, partition = place
        if self._context.is_subscribed(group_id, topic):
            return False
        if self._context.offsets.is_pending(group_id, topic, partition):
            return False
        commit = self._context.offsets.of_group(group_id)[topic][partition]
        return _has_expired(now_ms, commit, base_ms, self._context.config.offsets_retention_ms)


def _has_expired(now_ms: int, commit: OffsetAndMetadata, base_ms: int, retention_ms: int) -> bool:
    if commit.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= commit.expire_timestamp_ms
    since_ms = commit.commit_timestamp_ms if base_ms == NO_TIMESTAMP else base_ms
    return now_ms - since_ms >= retention_ms


def _describe(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    name = (group.protocol_name or "") if is_stable else ""
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(name) if is_stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    return DescribedGroup(
        group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=name,
        members=members,
    )


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)


def _failed_delete(group_ids: tuple[str, ...], error: ErrorCode) -> tuple[DeletedGroup, ...]:
    return tuple(DeletedGroup(group_id, coordinator_error(error)) for group_id in group_ids)
