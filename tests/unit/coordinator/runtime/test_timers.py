"""Timers compared with a dictionary of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.runtime.timers import Timers

steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 20)),
    )
)


@given(steps)
def test_timers_equal_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    expected: dict[int, int] = {}
    now_ms = 0
    for what, key, amount in steps:
        if what == "set":
            timers.schedule(key, now_ms + amount)
            expected[key] = now_ms + amount
        elif what == "cancel":
            timers.cancel(key)
            expected.pop(key, None)
        else:
            now_ms += amount
            due = {key for key, at_ms in expected.items() if at_ms <= now_ms}
            assert set(timers.pop_due(now_ms)) == due
            expected = {key: at_ms for key, at_ms in expected.items() if key not in due}
        assert len(timers) == len(expected)
        assert all(timers.deadline_of(key) == at_ms for key, at_ms in expected.items())
        if expected:
            assert timers.deadline_ms is not None
            assert timers.deadline_ms <= min(expected.values())


def test_a_timer_set_while_firing_waits_for_the_next_call() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10)
    fired = []
    for key in timers.pop_due(10):
        fired.append(key)
        timers.schedule("a", 10)
    assert fired == ["a"]
    assert list(timers.pop_due(10)) == ["a"]


def test_a_timer_cancelled_while_firing_does_not_fire() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10)
    timers.schedule("b", 10)
    for _ in timers.pop_due(10):
        timers.cancel("b")
    assert list(timers.pop_due(10)) == []


def test_a_late_deadline_is_extended_once() -> None:
    timers: Timers[str] = Timers(late_ms=100, grace_ms=1_000)
    timers.schedule("late", 10)
    timers.schedule("in time", 11)
    assert list(timers.pop_due(110)) == ["in time"]
    assert timers.deadline_ms == 1_110
    assert list(timers.pop_due(5_000)) == ["late"]
    timers.schedule("late", 5_010)
    assert list(timers.pop_due(6_000)) == [], "a key that is set again may be extended again"
    assert list(timers.pop_due(7_000)) == ["late"]


def test_a_key_that_is_renewed_while_it_is_extended_may_be_extended_again() -> None:
    """Its heartbeat was read after the first pause, so a second one must not end the session earlier."""
    timers: Timers[str] = Timers(late_ms=100, grace_ms=1_000)
    timers.schedule("member", 10)
    assert list(timers.pop_due(110)) == []
    timers.schedule("member", 3_000)
    assert list(timers.pop_due(3_200)) == []
    assert list(timers.pop_due(4_200)) == ["member"]
