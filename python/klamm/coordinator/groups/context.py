"""What the parts of a group shard share: groups, offsets, timers, configuration and the pipeline to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Never

from klamm.coordinator.groups.classic_group import ClassicGroup, Member, empty_group_record
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.counts import GroupCounts
from klamm.coordinator.groups.foreign_groups import ForeignGroup, ForeignGroups
from klamm.coordinator.groups.offsets import OffsetStore
from klamm.coordinator.groups.overwritten import Overwritten
from klamm.coordinator.groups.records import GroupMetadata, group_key, group_value
from klamm.coordinator.groups.verifications import Verifications
from klamm.coordinator.runtime.effects import Ticket
from klamm.coordinator.runtime.log import LogRecord
from klamm.coordinator.runtime.pipeline import Done, Pipeline
from klamm.coordinator.runtime.timers import LATE_MS, UNREAD_MS, Timers
from klamm.protocol.errors import ErrorCode

log: Final = logging.getLogger("klamm.coordinator")

TimerKey = tuple[str, ...]
"""("session", group id, member id), ("join", group id), ("sync", group id) or ("expiry",)."""
EXPIRY_TIMER: Final[TimerKey] = ("expiry",)


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

    def __init__(self, config: GroupConfig, draw_uuid: Callable[[], str], counts: GroupCounts) -> None:
        self.config: Final = config
        self.counts: Final = counts
        self.draw_uuid: Final = draw_uuid
        self.pipeline: Final[Pipeline[Overwritten, Never]] = Pipeline(
            config.offsets_commit_timeout_ms, config.batch_bytes_max, Overwritten
        )
        self.timers: Final[Timers[TimerKey]] = Timers(LATE_MS, UNREAD_MS)
        self.groups: Final[dict[str, ClassicGroup]] = {}
        self.offsets: Final = OffsetStore()
        self.foreign: Final = ForeignGroups()
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

        It replaces an empty foreign group with its id. A failure removes it again.
        """
        foreign = self.foreign.remove(group.group_id)
        tombstones = [] if foreign is None else foreign.tombstones()
        overwritten = self._append_group(now_ms, group, empty_group_record(group), done, tombstones)
        if overwritten is None:
            self.groups.pop(group.group_id)
            self.cancel_timers(group)
        else:
            self.note_group(overwritten, group.group_id, None)
        if foreign is not None:
            log.info("group %s: an empty %s group becomes a classic one", group.group_id, foreign.kind)
            self.note_foreign(overwritten, foreign)

    def note_foreign(self, overwritten: Overwritten | None, before: ForeignGroup) -> None:
        """Restore a removed foreign group: on rollback, or now if nothing was written."""
        if overwritten is None:
            self.foreign.restore(before)
        else:
            overwritten.undo.append(lambda: self.foreign.restore(before))

    def _append_group(
        self, now_ms: int, group: ClassicGroup, metadata: GroupMetadata, done: Done, before: Sequence[LogRecord] = ()
    ) -> Overwritten | None:
        records = [*before, (group_key(group.group_id), group_value(metadata))]
        overwritten = self.pipeline.write(records)
        if overwritten is None:
            done(now_ms, ErrorCode.MESSAGE_TOO_LARGE)
        else:
            self.pipeline.call_when_committed(now_ms, done)
        return overwritten

    def remove_group(self, group_id: str, overwritten: Overwritten | None) -> None:
        """Remove a classic group from memory; its tombstone was written or replayed."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return
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
