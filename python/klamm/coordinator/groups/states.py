"""The states of a classic group and their transitions."""

from __future__ import annotations

import enum
from typing import Final


class GroupState(enum.Enum):
    """Each value is the name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


E, P, C, S, D = GroupState

NEXT_STATES: Final[dict[GroupState, frozenset[GroupState]]] = {
    E: frozenset({P, D}),
    P: frozenset({E, C, D}),  # the join phase ends with members, or with none
    C: frozenset({P, S, D}),  # never C -> E: a member that leaves starts a join phase, which may end with no members
    S: frozenset({P, D}),
    D: frozenset(),  # the partition was unloaded
}


def state_table() -> str:
    """NEXT_STATES as a Markdown table: a row per state, a column per state it may go to."""
    states = list(GroupState)
    rows = [f"| from \\ to | {' | '.join(state.value for state in states)} |", "|---" * (len(states) + 1) + "|"]
    for state in states:
        cells = ("yes" if target in NEXT_STATES[state] else "" for target in states)
        rows.append(f"| {state.value} | {' | '.join(cells)} |")
    return "\n".join(rows)
