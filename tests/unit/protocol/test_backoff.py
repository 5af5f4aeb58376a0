"""Exponential backoff."""

from __future__ import annotations

import pytest

from klamm.protocol.backoff import ExponentialBackoff


@pytest.mark.parametrize(
    ("number", "times"),
    [(0.5, [100, 200, 400, 500, 500]), (0.0, [80, 160, 320, 400, 400]), (0.99, [119.6, 239.2, 478.4, 500, 500])],
)
def test_it_doubles_with_20_percent_jitter_up_to_the_maximum(number: float, times: list[float]) -> None:
    backoff = ExponentialBackoff(100, 500)
    assert [backoff.time_ms(failures, lambda: number) for failures in range(5)] == pytest.approx(times)
    assert backoff.time_ms(10**6, lambda: 0.5) == 500


def test_a_maximum_below_the_initial_backoff_is_the_backoff() -> None:
    assert {ExponentialBackoff(100, 50).time_ms(failures, lambda: 0.0) for failures in range(3)} == {50}
