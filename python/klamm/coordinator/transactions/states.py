"""The states of a transactional id, and the transitions between them (Kafka's `TransactionState`)."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from typing import Final


class State(enum.IntEnum):
    """The status in a record of `__transaction_state`. DEAD and PREPARE_EPOCH_FENCE are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """The name in DescribeTransactions and ListTransactions, such as PrepareCommit."""
        return self.name.title().replace("_", "")


PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
COMPLETE: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

_WITHOUT_TRANSACTION: Final = frozenset({State.EMPTY, State.ONGOING, State.DEAD, State.PREPARE_ABORT})

TRANSITIONS: Final[Mapping[State, Set[State]]] = {
    State.EMPTY: _WITHOUT_TRANSACTION,
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE}),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: _WITHOUT_TRANSACTION,
    State.COMPLETE_ABORT: _WITHOUT_TRANSACTION,
    State.DEAD: frozenset(),
}
"""The states that may follow each state.

PREPARE_ABORT follows a state without a transaction for producers of version 2, whose abort of nothing raises the epoch.
"""


def state_table() -> str:
    """The transitions as ARCHITECTURE.md has them."""
    rows = [["from \\ to", *(state.shown for state in State)], ["---"] * (len(State) + 1)]
    rows += [[one.shown, *("yes" if other in TRANSITIONS[one] else "" for other in State)] for one in State]
    return "\n".join("|" + "".join(f" {cell} |" if cell else "  |" for cell in row) for row in rows)
