"""Groups of types that klamm does not serve (streams), stored as the keys of their records.

A directory that Apache Kafka wrote may contain them. Klamm loses none of their state: their records stay in the log.
ListGroups lists them and OffsetFetch reads their committed offsets. When they are empty they can be deleted or, as in
Kafka, replaced by a classic group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.records import ForeignRecord
from klamm.coordinator.runtime.log import LogRecord

STREAMS: Final = "streams"
MEMBER_TYPES: Final = {RecordType.STREAMS_GROUP_MEMBER_METADATA}

TOMBSTONE_ORDER: Final = (
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    RecordType.STREAMS_GROUP_MEMBER_METADATA,
    RecordType.STREAMS_GROUP_METADATA,
    RecordType.STREAMS_GROUP_TOPOLOGY,
)
"""A tombstone out of this order fails the load of an Apache Kafka broker (`GroupMetadataManager.replay`)."""


@dataclass(slots=True)
class ForeignGroup:
    """A group, identified by its live records."""

    group_id: str
    kind: str
    keys: dict[bytes, RecordType] = field(default_factory=dict)

    @property
    def has_members(self) -> bool:
        """Whether the record of a member is live."""
        return any(type_ in MEMBER_TYPES for type_ in self.keys.values())

    @property
    def state(self) -> str:
        """Empty, or Unknown: this coordinator does not track the members."""
        return "Unknown" if self.has_members else "Empty"

    def tombstones(self) -> list[LogRecord]:
        """The tombstones that delete the group, in an order that Kafka can replay."""
        ordered = sorted(self.keys.items(), key=lambda item: TOMBSTONE_ORDER.index(item[1]))
        return [(key, None) for key, _ in ordered]


class ForeignGroups:
    """All foreign groups by id."""

    def __init__(self) -> None:
        self._groups: dict[str, ForeignGroup] = {}

    def __iter__(self) -> Iterator[ForeignGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> ForeignGroup | None:
        """The group with this id, if it is a foreign one."""
        return self._groups.get(group_id)

    def replay(self, record: ForeignRecord) -> None:
        """Apply a record of the log."""
        group = self._groups.get(record.group_id)
        if record.is_tombstone:
            if group is not None and group.keys.pop(record.key, None) is not None and not group.keys:
                del self._groups[record.group_id]
            return
        if group is None:
            group = self._groups[record.group_id] = ForeignGroup(record.group_id, STREAMS)
        group.keys[record.key] = record.type

    def remove(self, group_id: str) -> ForeignGroup | None:
        """Remove a group whose tombstones are being written."""
        return self._groups.pop(group_id, None)

    def restore(self, group: ForeignGroup) -> None:
        """Restore a group whose tombstones could not be written."""
        self._groups[group.group_id] = group
