"""Applies the records of share groups: one function for the log and for new writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import ModernGroups
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.coordinator.groups.share.member import LEAVE_EPOCH, ShareMember
from klamm.coordinator.groups.share.records import (
    ShareCurrent,
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareMemberRecord,
    ShareRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)

GONE: Final = ShareCurrent(LEAVE_EPOCH, LEAVE_EPOCH, {})


def apply(groups: ModernGroups, journal: Journal, record: ShareRecord) -> None:
    """Apply a record. A value creates its group and member; the tombstone of something absent has no effect.

    Raises RecordError for a value of a group of another kind, and for a tombstone that comes too early.
    """
    found = groups.find(record.group_id, ShareGroup)
    if found is None and record.value is None:
        return
    group = found or groups.create(journal, ShareGroup(record.group_id))
    match record:
        case ShareGroupEpochRecord(_, None):
            group.check_removable()
            groups.remove(journal, group)
        case ShareGroupEpochRecord(_, (epoch, metadata_hash)):
            group.set_epoch(journal, epoch, metadata_hash)
        case ShareMemberRecord(_, member_id, None):
            group.drop_member(journal, member_id)
        case ShareMemberRecord(_, member_id, ShareMember() as metadata):
            known = group.members.get(member_id) or ShareMember(member_id)
            group.put_member(journal, _with_metadata(known, metadata))
        case ShareTargetEpochRecord(_, value):
            group.set_target_epoch(journal, value)
        case ShareTargetRecord(_, member_id, target):
            group.set_target(journal, member_id, target)
        case ShareCurrentRecord(_, member_id, current):
            if current is not None or member_id in group.members:
                known = group.members.get(member_id) or ShareMember(member_id)
                group.put_member(journal, _with_current(known, current or GONE))
        case StatePartitionsRecord(_, states):
            journal.assign(group, "states", states)
        case _:
            raise AssertionError(record)


def _with_metadata(member: ShareMember, metadata: ShareMember) -> ShareMember:
    return replace(
        metadata,
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        assigned=member.assigned,
    )


def _with_current(member: ShareMember, current: ShareCurrent) -> ShareMember:
    return replace(
        member,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        assigned=current.assigned,
    )
