"""The states of a transactional id."""

from __future__ import annotations

from pathlib import Path

from klamm.coordinator.transactions.states import state_table


def test_the_documented_table_is_the_code_s() -> None:
    """After a change, paste the output of `state_table()` into ARCHITECTURE.md."""
    assert state_table() in (Path(__file__).parents[4] / "ARCHITECTURE.md").read_text()
