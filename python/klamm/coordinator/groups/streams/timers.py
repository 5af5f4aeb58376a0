"""The timer of a streams group, besides those of its members (`modern.sessions`)."""

from __future__ import annotations

from typing import Final

INITIAL_REBALANCE: Final = "initial rebalance"


def initial_delay_timer(group_id: str) -> tuple[str, ...]:
    """How long the first target waits for more members."""
    return (INITIAL_REBALANCE, group_id)
