"""Applies the records of consumer groups: one function for the log and for new writes."""

from __future__ import annotations

from typing import Final

from klamm.coordinator.groups.consumer.group import ConsumerGroup, with_metadata
from klamm.coordinator.groups.consumer.member import LEAVE_EPOCH, ConsumerMember, MemberState
from klamm.coordinator.groups.consumer.records import (
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    PatternRecord,
    TargetEpochRecord,
    TargetRecord,
)
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import ModernGroups

GONE: Final = CurrentAssignment(LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE)


def apply(groups: ModernGroups, journal: Journal, record: ConsumerRecord) -> None:
    """Apply a record. A value creates its group and member; the tombstone of something absent has no effect.

    Raises RecordError for a value of a group of another kind, and for a tombstone that comes too early.
    """
    is_tombstone = record.is_tombstone if isinstance(record, PartitionMetadataRecord) else record.value is None
    found = groups.find(record.group_id, ConsumerGroup)
    if found is None and is_tombstone:
        return
    group = found or groups.create(journal, ConsumerGroup(record.group_id))
    match record:
        case TargetRecord(_, member_id, target):
            group.set_target(journal, member_id, target)  # first: a new target has one for each member
        case GroupEpochRecord(_, None):
            group.check_removable()
            groups.remove(journal, group)
        case GroupEpochRecord(_, (epoch, metadata_hash)):
            group.set_epoch(journal, epoch, metadata_hash)
        case PartitionMetadataRecord(_, is_tombstone):
            journal.assign(group, "has_partition_metadata", not is_tombstone)
        case MemberRecord(_, member_id, None):
            group.drop_member(journal, member_id)
        case MemberRecord(_, member_id, ConsumerMember() as metadata):
            known = group.members.get(member_id) or ConsumerMember(member_id)
            group.put_member(journal, with_metadata(known, metadata))
        case TargetEpochRecord(_, value):
            group.set_target_epoch(journal, value)
        case CurrentAssignmentRecord(_, member_id, None):
            if member_id in group.members:
                group.set_current(journal, member_id, GONE)
        case CurrentAssignmentRecord(_, member_id, CurrentAssignment() as current):
            group.set_current(journal, member_id, current)
        case PatternRecord(_, pattern, resolved):
            group.set_resolved(journal, pattern, resolved)
        case _:
            raise AssertionError(record)
