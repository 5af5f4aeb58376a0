"""Shared state of the parts of a group shard: groups, offsets, timers, configuration and the pipeline to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from klamm._engine.groups import TopicPattern
from klamm._engine.groups import assign as native_assign
from klamm._engine.groups import assign_tasks as native_assign_tasks
from klamm.coordinator.groups import kinds
from klamm.coordinator.groups.classic_group import ClassicGroup, Member, empty_group_record
from klamm.coordinator.groups.compiled_patterns import compiled
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.counts import GroupCounts
from klamm.coordinator.groups.effects import GroupEffect
from klamm.coordinator.groups.kinds import ModernRecord
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import AnyModernGroup, ModernGroups
from klamm.coordinator.groups.modern.target import Assign, NewTargets
from klamm.coordinator.groups.offsets import OffsetStore
from klamm.coordinator.groups.overwritten import Overwritten
from klamm.coordinator.groups.record_parts import RecordTooLarge
from klamm.coordinator.groups.records import GroupMetadata, GroupRecord
from klamm.coordinator.groups.streams.assignment import AssignTasks
from klamm.coordinator.groups.topics import GroupConfigs, NoTopics, Topics, no_group_configs
from klamm.coordinator.groups.verifications import Verifications
from klamm.coordinator.runtime.effects import Ticket
from klamm.coordinator.runtime.log import LogRecord, RecordError
from klamm.coordinator.runtime.pipeline import Done, Pipeline
from klamm.coordinator.runtime.timers import LATE_MS, UNREAD_MS, Timers
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import ListedGroup

log: Final = logging.getLogger("klamm.coordinator")

TimerKey = tuple[str, ...]
"""("session", group id, member id), ("join", group id), ("sync", group id), ("expiry",), or a key of
`modern.sessions`.
"""
EXPIRY_TIMER: Final[TimerKey] = ("expiry",)
SHARE: Final = "share"

Written = GroupRecord | ModernRecord | NewTargets
"""What `ShardContext.write_records` writes and applies."""


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """The session of a member or of a pending id."""
    return ("session", group_id, member_id)


def join_timer(group_id: str) -> TimerKey:
    """The end of the join phase."""
    return ("join", group_id)


def sync_timer(group_id: str) -> TimerKey:
    """The end of the wait for the SyncGroup of every member."""
    return ("sync", group_id)


class ShardContext:
    """The state of one partition of `__consumer_offsets`, and the methods that write its records."""

    def __init__(
        self,
        config: GroupConfig,
        draw_uuid: Callable[[], str],
        counts: GroupCounts,
        *,
        topics: Topics | None = None,
        group_configs: GroupConfigs = no_group_configs,
        assign: Assign = native_assign,
        assign_tasks: AssignTasks = native_assign_tasks,
    ) -> None:
        self.config: Final = config
        self.topics: Final[Topics] = NoTopics() if topics is None else topics
        self.group_configs: Final = group_configs
        self.assign: Final = assign
        self.assign_tasks: Final = assign_tasks
        self.counts: Final = counts
        self.draw_uuid: Final = draw_uuid
        self.pipeline: Final[Pipeline[Overwritten, GroupEffect]] = Pipeline(
            config.offsets_commit_timeout_ms, config.batch_bytes_max, Overwritten
        )
        self.timers: Final[Timers[TimerKey]] = Timers(LATE_MS, UNREAD_MS)
        self.groups: Final[dict[str, ClassicGroup]] = {}
        self.offsets: Final = OffsetStore()
        self.modern: Final = ModernGroups(self._take_id)
        self.verifications: Final = Verifications()
        self.next_record_offset = 0
        """Grows with every offset record, as log offsets do; after loading it may be lower than the log end offset."""

    def reply(self, ticket: Ticket, response: object) -> None:
        """Respond now."""
        self.pipeline.reply(ticket, response)

    def renew_session(self, now_ms: int, group: ClassicGroup, member: Member) -> None:
        """Restart the member's session."""
        self.timers.schedule(session_timer(group.group_id, member.member_id), now_ms + member.session_timeout_ms)

    def create_group(self, now_ms: int, group_id: str) -> ClassicGroup:
        """Create an empty group in memory; the caller writes its record."""
        group = ClassicGroup(group_id, state_timestamp_ms=now_ms)
        self.groups[group_id] = group
        return group

    def note_group(self, overwritten: Overwritten, group_id: str, before: ClassicGroup | None) -> None:
        """Add the group's previous state to the snapshot for a rollback."""
        overwritten.groups.setdefault(group_id, before)

    def write_group(self, now_ms: int, group: ClassicGroup, assignments: dict[str, bytes], done: Done) -> None:
        """Write the record of a group whose changes are already in memory."""
        self._append_group(now_ms, group, group.to_record(assignments), done)

    def write_new_group(self, now_ms: int, group: ClassicGroup, done: Done) -> None:
        """Write the record of a new group.

        It replaces an empty group of another kind with its id. A failure removes it again.
        """
        modern = self.modern.get(group.group_id)
        tombstones = [] if modern is None else [record.encoded() for record in modern.tombstones()]
        overwritten = self._append_group(now_ms, group, empty_group_record(group), done, tombstones)
        if overwritten is None:
            self.groups.pop(group.group_id)
            self.cancel_timers(group)
        else:
            self.note_group(overwritten, group.group_id, None)
            self._note_listed(overwritten, group.group_id)
            self.modern.drop(Journal(overwritten.undo), group.group_id)
        if modern is not None:
            log.info("group %s: an empty %s group becomes a classic one", group.group_id, modern.kind)

    def cancel_timer(self, key: TimerKey, journal: Journal) -> None:
        """Cancel a timer. A rollback arms it again."""
        deadline_ms = self.timers.deadline_of(key)
        if deadline_ms is not None:
            self.timers.cancel(key)
            journal.on_rollback(partial(self.timers.schedule, key, deadline_ms))

    def _append_group(
        self, now_ms: int, group: ClassicGroup, metadata: GroupMetadata, done: Done, before: Sequence[LogRecord] = ()
    ) -> Overwritten | None:
        records = [*before, GroupRecord(group.group_id, metadata).encoded()]
        overwritten = self.pipeline.write(records)
        if overwritten is None:
            done(now_ms, ErrorCode.MESSAGE_TOO_LARGE)
        else:
            self.pipeline.call_when_committed(now_ms, done)
        return overwritten

    # Groups of the new protocols

    def write_records(self, records: Sequence[Written]) -> Journal:
        """Write records as one operation and apply them; returns the journal for what a rollback has to undo besides.

        Raises UNKNOWN_SERVER_ERROR if they are too large.
        """
        if not records:
            return Journal()
        encoded: list[LogRecord] = []
        try:
            for record in records:
                if isinstance(record, NewTargets):
                    encoded += record.encoded()
                else:
                    encoded.append(record.encoded())
        except RecordTooLarge as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        overwritten = self.pipeline.write(encoded)
        if overwritten is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{len(encoded)} records do not fit into a batch")
        self.next_record_offset += len(encoded)
        journal = Journal(overwritten.undo)
        for group_id in dict.fromkeys(record.group_id for record in records):
            self._note_listed(overwritten, group_id)
        for record in records:
            self.apply(journal, record)
        return journal

    def check_names(self, names: Iterable[str]) -> None:
        """Raise UNKNOWN_SERVER_ERROR for names that `write_records` would refuse, before work is done for each."""
        size = sum(map(len, names))
        if size > self.config.batch_bytes_max:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"names of {size} bytes do not fit into a batch")

    def apply(self, journal: Journal, record: Written) -> None:
        """Apply a record, from the log or newly written. Raises RecordError if it does not fit the state."""
        if not isinstance(record, GroupRecord):
            kinds.apply(self.modern, journal, record)
            return
        # A record of a classic group replaces whatever group has the id.
        self.remove_group(record.group_id, None)
        self.modern.drop(journal, record.group_id)
        if record.value is not None:
            self.groups[record.group_id] = ClassicGroup.from_record(record.group_id, record.value)

    def _note_listed(self, overwritten: Overwritten, group_id: str) -> None:
        """Add the group, of whatever kind, to the snapshot."""
        self.note_group(overwritten, group_id, self.groups.get(group_id))
        if group_id not in overwritten.modern:
            group = self.modern.get(group_id)
            overwritten.modern[group_id] = None if group is None else listed(group)

    def _take_id(self, group_id: str, kind: str) -> None:
        classic = self.groups.get(group_id)
        if classic is None:
            return
        # A simple group has no record; compaction may place an offset before the records of its group.
        if not classic.is_simple or kind == SHARE:
            raise RecordError(f"a record of a {kind} group for {group_id}, a classic group")
        self.remove_group(group_id, None)

    def listed_modern(self) -> list[ListedGroup]:
        """The groups of the new protocols as ListGroups shows them: as they are committed."""
        found: dict[str, ListedGroup | None] = {group.group_id: listed(group) for group in self.modern}
        for overwritten in reversed(self.pipeline.snapshots()):
            found |= overwritten.modern
        return [group for group in found.values() if group is not None]

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether members of the group may need the topic's offsets."""
        modern, classic = self.modern.get(group_id), self.groups.get(group_id)
        if modern is not None:
            return modern.is_subscribed_to(topic)
        return classic is not None and classic.is_subscribed_to(topic)

    def compile(self, pattern: str) -> TopicPattern:
        """The regular expression of a subscription. Raises INVALID_REGULAR_EXPRESSION."""
        found = compiled(pattern)
        if isinstance(found, str):
            message = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {found}."
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
        return found

    # Classic groups

    def remove_group(self, group_id: str, overwritten: Overwritten | None) -> None:
        """Remove a classic group from memory; its tombstone was written or replayed."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return
        if group.is_empty:  # timers of a group with members are kept, because a rollback may restore the group
            self.cancel_timers(group)
        if overwritten is not None:
            self.note_group(overwritten, group_id, group)

    def cancel_timers(self, group: ClassicGroup) -> None:
        """Cancel all timers of the group."""
        for member_id in (*group.members, *group.pending_joins):
            self.timers.cancel(session_timer(group.group_id, member_id))
        self.timers.cancel(join_timer(group.group_id))
        self.timers.cancel(sync_timer(group.group_id))

    def visible_group(self, group_id: str) -> ClassicGroup | None:
        """The group as plain reads see it. Until a deletion is committed, the group is visible with its newest members.

        A group that is being created is visible before its record is committed: its members may already know it.
        """
        for overwritten in self.pipeline.snapshots():
            before: ClassicGroup | None = overwritten.groups.get(group_id)
            if before is not None:
                return before
        return self.groups.get(group_id)

    def visible_groups(self) -> dict[str, ClassicGroup]:
        """All groups that plain reads see; do not modify."""
        if self.pipeline.is_idle:
            return self.groups
        groups = dict(self.groups)
        for overwritten in reversed(self.pipeline.snapshots()):
            groups |= {group_id: before for group_id, before in overwritten.groups.items() if before is not None}
        return groups

    def rollback(self, overwritten: Overwritten) -> None:
        """Restore the state before a write, the newest one that is pending."""
        for undo in reversed(overwritten.undo):
            undo()
        self.offsets.rollback(overwritten)
        for group_id, before in overwritten.groups.items():
            group = self.groups.pop(group_id, None)
            if group is not None and group is not before:
                self.cancel_timers(group)
            if before is not None:
                self.groups[group_id] = before


def listed(group: AnyModernGroup) -> ListedGroup:
    """The group as ListGroups shows it."""
    return ListedGroup(group.group_id, group.kind, group.state, group.kind)
