"""A member of a streams group: its metadata, its epoch and its tasks."""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Final

from klamm.coordinator.groups.streams.records import CurrentAssignment, MemberMetadata
from klamm.coordinator.groups.streams.tasks import NONE_ASSIGNED, AssignedTasks
from klamm.protocol.value import Value

LEAVING_EPOCH: Final = -1


class MemberState(enum.IntEnum):
    """The state of a member in its record 22. Any other number in a record counts as UNKNOWN."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state with a number in a record."""
        return _STATES.get(number, cls.UNKNOWN)


_STATES: Final = {state.value: state for state in MemberState}


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


class StreamsMember(Value):
    """A member as its records say.

    Active tasks have the epoch in which they were assigned. `pending_revocation` is empty unless the state is
    UNREVOKED_TASKS.
    """

    member_id: str
    metadata: MemberMetadata = MemberMetadata()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: AssignedTasks = NONE_ASSIGNED
    pending_revocation: AssignedTasks = NONE_ASSIGNED

    @property
    def subscribed_topic_names(self) -> frozenset[str]:
        """None: the group's topology subscribes, not the member."""
        return frozenset()

    @property
    def process_id(self) -> str:
        """The instance of the application to which the member belongs."""
        return self.metadata.process_id

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member has exactly its target of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def current_assignment(self) -> CurrentAssignment:
        """The value of its record 22."""
        return CurrentAssignment(
            self.member_epoch, self.previous_member_epoch, self.state, self.assigned, self.pending_revocation
        )

    def with_current_assignment(self, value: CurrentAssignment | None) -> StreamsMember:
        """The member after its record 22, or after the tombstone of that record."""
        if value is None:
            value = CurrentAssignment(LEAVING_EPOCH, LEAVING_EPOCH, self.state, NONE_ASSIGNED, NONE_ASSIGNED)
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=value.assigned,
            pending_revocation=value.pending_revocation,
        )
