"""The states of a transactional id."""

from __future__ import annotations

from pathlib import Path

from klamm.coordinator.transactions.states import state_table


def test_the_documented_table_is_the_code_s() -> None:
    """ARCHITECTURE.md has the table as it is printed: after a change, paste `state_table()` there."""
    assert state_table() in (Path(__file__).parents[4] / "ARCHITECTURE.md").read_text()
