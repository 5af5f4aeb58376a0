"""A member of a share group."""

from __future__ import annotations

from typing import Final

from klamm.coordinator.groups.modern.wire import Target
from klamm.protocol.value import Value, field

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


class ShareMember(Value):
    """A member. It never changes: an update makes a new one. `member_epoch` is -1 after the tombstone of record 14."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Target = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target of this epoch: it takes a target at once."""
        return self.member_epoch == epoch
