"""Applies the records of streams groups: one function for the log and for new writes."""

from __future__ import annotations

from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import ModernGroups
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.records import (
    CurrentAssignment,
    MemberMetadata,
    StreamsMetadata,
    StreamsRecord,
    TargetMetadata,
)
from klamm.coordinator.groups.streams.tasks import TaskSets
from klamm.protocol.messages.streams_messages import Topology


def apply(groups: ModernGroups, journal: Journal, record: StreamsRecord) -> None:
    """Apply a record. A value creates its group and member; the tombstone of something absent has no effect.

    Raises RecordError for a value of a group of another kind, and for a tombstone that comes too early.
    """
    found = groups.find(record.group_id, StreamsGroup)
    if record.value is None:
        if found is not None:
            _remove(groups, journal, found, record)
        return
    group = found or groups.create(journal, StreamsGroup(record.group_id))
    match record.value:
        case StreamsMetadata() as metadata:
            group.set_metadata(journal, metadata)
        case MemberMetadata() as member:
            group.set_member(journal, record.member_id, member)
        case TargetMetadata(epoch, timestamp_ms):
            group.set_target_epoch(journal, (epoch, timestamp_ms))
        case TaskSets() as target:
            group.set_target(journal, record.member_id, target)
        case CurrentAssignment() as current:
            group.set_current(journal, record.member_id, current)
        case Topology() as topology:
            group.set_topology(journal, topology)


def _remove(groups: ModernGroups, journal: Journal, group: StreamsGroup, tombstone: StreamsRecord) -> None:
    match tombstone.type:
        case RecordType.STREAMS_GROUP_METADATA:
            group.check_removable()
            groups.remove(journal, group)
        case RecordType.STREAMS_GROUP_MEMBER_METADATA:
            group.drop_member(journal, tombstone.member_id)
        case RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA:
            group.set_target_epoch(journal, None)
        case RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER:
            group.set_target(journal, tombstone.member_id, None)
        case RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT:
            group.set_current(journal, tombstone.member_id, None)
        case _:
            assert tombstone.type is RecordType.STREAMS_GROUP_TOPOLOGY, tombstone
            group.set_topology(journal, None)
