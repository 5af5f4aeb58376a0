"""The broker's life cycle, sentence by sentence of facts 6.1."""

from __future__ import annotations

import itertools

import pytest

from klamm.broker.lifecycle import NEXT_STATES, BrokerLifecycle, BrokerState, Heartbeat, Register


def lifecycle() -> BrokerLifecycle:
    return BrokerLifecycle(
        heartbeat_interval_ms=2000, session_timeout_ms=9000, registration_timeout_ms=60_000, draw=lambda: 0.5
    )


def running(now_ms: int = 0) -> BrokerLifecycle:
    core = lifecycle()
    core.on_start(now_ms)
    core.next_request(now_ms)
    core.on_registered(now_ms, 7)
    core.next_request(now_ms)
    core.on_heartbeat_answer(now_ms, caught_up=True, fenced=True, should_shut_down=False)
    core.on_ready(now_ms)
    core.next_request(now_ms)
    core.on_heartbeat_answer(now_ms, caught_up=True, fenced=False, should_shut_down=False)
    assert core.state is BrokerState.RUNNING
    return core


@pytest.mark.parametrize(("old", "new"), list(itertools.product(BrokerState, BrokerState)))
def test_only_the_table_moves_the_state(old: BrokerState, new: BrokerState) -> None:
    core = lifecycle()
    core.state = old
    if new in NEXT_STATES[old]:
        core._become(new)
        assert core.state is new
    else:
        with pytest.raises(AssertionError, match=old.name):
            core._become(new)


def test_registers_then_beats_every_ten_ms_until_caught_up() -> None:
    core = lifecycle()
    core.on_start(100)
    assert core.next_request(100) == Register()
    assert core.next_request(100) is None, "one request in flight at a time"
    core.on_registered(105, 7)
    assert core.next_request(105) == Heartbeat(7, want_fence=True, want_shut_down=False)
    core.on_heartbeat_answer(106, caught_up=False, fenced=True, should_shut_down=False)
    assert core.next_request(115) is None
    assert core.next_request(116) == Heartbeat(7, want_fence=True, want_shut_down=False)


def test_stays_fenced_until_ready() -> None:
    core = lifecycle()
    core.on_start(0)
    core.next_request(0)
    core.on_registered(0, 7)
    core.next_request(0)
    core.on_heartbeat_answer(0, caught_up=True, fenced=True, should_shut_down=False)
    assert core.state is BrokerState.RECOVERY
    assert core.next_request(0) == Heartbeat(7, want_fence=True, want_shut_down=False)
    core.on_heartbeat_answer(1, caught_up=True, fenced=True, should_shut_down=False)
    core.on_ready(5)
    assert core.next_request(5) == Heartbeat(7, want_fence=False, want_shut_down=False)
    core.on_heartbeat_answer(6, caught_up=True, fenced=False, should_shut_down=False)
    assert core.state is BrokerState.RUNNING
    assert core.deadline_ms == 2006


def test_controlled_shutdown_waits_for_leave() -> None:
    core = running()
    core.on_shutdown_asked(10)
    assert core.next_request(10) == Heartbeat(7, want_fence=False, want_shut_down=True)
    core.on_heartbeat_answer(11, caught_up=True, fenced=False, should_shut_down=False)
    assert core.deadline_ms == 61, "the second heartbeat of a shutdown comes after 50 ms"
    core.next_request(61)
    core.on_heartbeat_answer(62, caught_up=True, fenced=True, should_shut_down=True)
    assert core.state is BrokerState.SHUTTING_DOWN
    assert core.next_request(10_000) is None


def test_shutdown_before_running_is_at_once() -> None:
    core = lifecycle()
    core.on_start(0)
    core.on_shutdown_asked(0)
    assert core.state is BrokerState.SHUTTING_DOWN


def test_failures_back_off_up_to_half_a_session() -> None:
    core = running()
    pauses = []
    for _ in range(9):
        core.deadline_ms = 0
        core.next_request(0)
        core.on_failure(0)
        pauses.append(core.deadline_ms)
    assert pauses == [100, 200, 400, 800, 1600, 3200, 4500, 4500, 4500]


def test_registration_must_succeed_in_time() -> None:
    core = lifecycle()
    core.on_start(0)
    assert not core.registration_overdue(59_999)
    assert core.registration_overdue(60_000)
    core.next_request(0)
    core.on_registered(1, 3)
    assert not core.registration_overdue(70_000)
