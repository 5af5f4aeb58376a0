"""Random operations on two groups; `random_lives` has the invariants."""

from __future__ import annotations

from collections import Counter

import pytest

from .random_lives import Lives

SEEDS = 25
STEPS = 300


@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_failed_appends(seed: int) -> None:
    Lives(seed, may_fail=False).run(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_with_failed_appends(seed: int) -> None:
    Lives(seed, may_fail=True).run(STEPS)


def test_the_lives_reach_every_state() -> None:
    """A run that misses a state would prove nothing about it."""
    seen: Counter[str] = Counter()
    for seed in range(20):
        lives = Lives(seed, may_fail=True)
        lives.run(STEPS)
        seen += lives.seen
    for size in range(2, 5):
        assert seen[f"Stable with {size}"] > 50
        assert seen[f"CompletingRebalance with {size}"] > 50
        assert seen[f"PreparingRebalance with {size}"] > 50
    for error in ("NONE", "MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED"):
        assert seen[f"join {error}"] > 0, error
    for error in ("NONE", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "NOT_COORDINATOR"):
        assert seen[f"sync {error}"] > 0, error
    assert seen["restart"] > 10
    assert seen["lost with an append under way"] > 3
