"""A member of a consumer group."""

from __future__ import annotations

import enum
from typing import Final

from klamm.coordinator.groups.modern.wire import Owned
from klamm.protocol.messages.group_messages import JoinProtocol
from klamm.protocol.value import Value, field

JOIN_EPOCH: Final = 0
"""The epoch with which a member joins, or joins again."""
LEAVE_EPOCH: Final = -1
"""A member leaves for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""A static member leaves and rejoins within its session, perhaps with a new member id."""
NO_OWNED: Final[Owned] = {}


class MemberState(enum.IntEnum):
    """How far a member is on its way to its target; the numbers are those of record 8."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


S, R, L, U = MemberState

NEXT_STATES: Final[dict[MemberState, frozenset[MemberState]]] = {
    S: frozenset({S, R, L}),
    R: frozenset({S, R, L}),
    L: frozenset({S, R, L}),
    U: frozenset({S, R, L}),  # left by a newer version: the member must give up everything first
}


def state_table() -> str:
    """NEXT_STATES as a Markdown table: a row per state, a column per state it may go to."""
    states = list(MemberState)
    rows = [f"| from \\ to | {' | '.join(state.name for state in states)} |", "|---" * (len(states) + 1) + "|"]
    for state in states:
        cells = ("yes" if target in NEXT_STATES[state] else "" for target in states)
        rows.append(f"| {state.name} | {' | '.join(cells)} |")
    return "\n".join(rows)


class ClassicMember(Value):
    """The fields of the JoinGroup of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]


class ConsumerMember(Value):
    """A member. It never changes: an update makes a new one.

    1. `assigned` and `pending_revocation` have no partition in common.
    2. `pending_revocation` is empty unless the state is UNREVOKED_PARTITIONS.
    3. `member_epoch` is -2 while a static member is away, and -1 after the tombstone of its record 8.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)

    @property
    def pattern(self) -> str | None:
        """The regular expression of the subscription, if there is one."""
        return self.subscribed_topic_regex or None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch
