"""A share group: the fold of its records (Kafka's `ShareGroup`)."""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.coordinator.groups.modern.group import ModernGroup
from klamm.coordinator.groups.share.member import ShareMember
from klamm.coordinator.groups.share.records import (
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareMemberRecord,
    ShareRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)
from klamm.coordinator.groups.share.state_partitions import StatePartitions

SHARE: Final = "share"
EMPTY: Final = "Empty"
STABLE: Final = "Stable"


class ShareGroup(ModernGroup[ShareMember]):
    """A share group. `states_written_ms` is soft state: when its newest record 15 was written, or loaded."""

    kind: ClassVar[str] = SHARE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.states: StatePartitions | None = None
        """The partitions that have a state at the share coordinator; None without a record."""
        self.states_written_ms = 0

    @property
    def state(self) -> str:
        """Empty or Stable."""
        return STABLE if self.members else EMPTY

    def tombstones(self) -> list[ShareRecord]:
        """The tombstones that delete the group, in an order that Kafka can replay."""
        group_id, members = self.group_id, list(self.members)
        made: list[ShareRecord] = [ShareCurrentRecord(group_id, one, None) for one in members]
        strays = (one for one in self.targets if one not in self.members)
        made += [ShareTargetRecord(group_id, one, None) for one in (*members, *strays)]
        made.append(ShareTargetEpochRecord(group_id, None))
        made += [ShareMemberRecord(group_id, one, None) for one in members]
        return [*made, StatePartitionsRecord(group_id, None), ShareGroupEpochRecord(group_id, None)]
