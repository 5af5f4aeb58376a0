"""Results between threads."""

from __future__ import annotations

import threading
import time

import pytest

from klamm.embedded.outcome import Outcome


def test_the_first_result_counts() -> None:
    outcome: Outcome[int] = Outcome()
    assert not outcome.is_set
    assert not outcome.wait(0)
    with pytest.raises(TimeoutError, match="no result within 0 s"):
        outcome.result(0)
    outcome.set_value(7)
    outcome.set_error(ValueError("late"))
    outcome.set_value(8)
    assert (outcome.result(0), outcome.result(0)) == (7, 7)


def test_an_error_is_raised_in_the_waiting_thread() -> None:
    outcome: Outcome[None] = Outcome()
    outcome.set_error(ValueError("broken"))
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            outcome.result(30)


def test_several_threads_may_wait() -> None:
    outcome: Outcome[int] = Outcome()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(outcome.result(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    outcome.set_value(time.monotonic_ns() & 1)
    for thread in threads:
        thread.join(30)
    assert found == [outcome.result(0)] * 4
