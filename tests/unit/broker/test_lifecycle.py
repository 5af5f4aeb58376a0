"""The broker's life cycle (Kafka's `BrokerLifecycleManager`)."""

from __future__ import annotations

import itertools

import pytest

from klamm.broker.lifecycle import (
    NEXT_STATES,
    BrokerLifecycle,
    BrokerState,
    Effect,
    Heartbeat,
    LogDirFailureOverdue,
    Register,
    RegistrationOverdue,
    StateChanged,
)

FENCED_BEAT = Heartbeat(7, want_fence=True, want_shut_down=False)
BEAT = Heartbeat(7, want_fence=False, want_shut_down=False)
ONE, TWO = b"1" * 16, b"2" * 16


def beat_with(*offline_log_dirs: bytes) -> Heartbeat:
    return Heartbeat(7, want_fence=False, want_shut_down=False, offline_log_dirs=offline_log_dirs)


def lifecycle() -> BrokerLifecycle:
    return BrokerLifecycle(
        heartbeat_interval_ms=2000,
        session_timeout_ms=9000,
        registration_timeout_ms=60_000,
        log_dir_failure_timeout_ms=30_000,
        draw=lambda: 0.5,
    )


def answer(
    core: BrokerLifecycle, now_ms: int, *, caught_up: bool = True, fenced: bool = False, should_shut_down: bool = False
) -> list[Effect]:
    return core.on_heartbeat_answer(now_ms, caught_up=caught_up, fenced=fenced, should_shut_down=should_shut_down)


def registered(now_ms: int = 0) -> BrokerLifecycle:
    """Its first heartbeat is in flight."""
    core = lifecycle()
    assert core.on_start(now_ms) == [StateChanged(BrokerState.STARTING), Register()]
    assert core.on_registered(now_ms, 7) == [FENCED_BEAT]
    return core


def running(now_ms: int = 0) -> BrokerLifecycle:
    """Its next heartbeat is due in 2 s."""
    core = registered(now_ms)
    core.on_ready(now_ms)
    assert answer(core, now_ms, fenced=True) == [StateChanged(BrokerState.RECOVERY), BEAT]
    assert answer(core, now_ms) == [StateChanged(BrokerState.RUNNING)]
    assert core.deadline_ms == now_ms + 2000
    return core


@pytest.mark.parametrize(("old", "new"), list(itertools.product(BrokerState, BrokerState)))
def test_only_the_table_moves_the_state(old: BrokerState, new: BrokerState) -> None:
    core = lifecycle()
    core.state = old
    if new in NEXT_STATES[old]:
        core.become(new)
        assert core.state is new
    else:
        with pytest.raises(AssertionError, match=old.name):
            core.become(new)


def test_registers_then_beats_every_ten_ms_until_caught_up() -> None:
    core = lifecycle()
    assert core.on_start(100) == [StateChanged(BrokerState.STARTING), Register()]
    assert core.deadline_ms is None
    assert core.on_timer(100) == [], "one request in flight at a time"
    assert core.on_registered(105, 7) == [FENCED_BEAT]
    assert answer(core, 106, caught_up=False, fenced=True) == []
    assert core.deadline_ms == 116
    assert core.on_timer(115) == []
    assert core.on_timer(116) == [FENCED_BEAT]


def test_stays_fenced_until_ready() -> None:
    core = registered()
    assert answer(core, 0, fenced=True) == [StateChanged(BrokerState.RECOVERY), FENCED_BEAT]
    assert answer(core, 1, fenced=True) == []
    assert core.on_ready(5) == [BEAT]
    assert answer(core, 6) == [StateChanged(BrokerState.RUNNING)]
    assert core.deadline_ms == 2006


def test_a_broker_that_is_ready_while_a_heartbeat_is_in_flight_beats_again_at_once() -> None:
    core = registered()
    answer(core, 0, fenced=True)
    assert core.on_ready(1) == []
    assert answer(core, 2, fenced=True) == [BEAT]


def test_awaited_metadata_causes_a_heartbeat_at_once() -> None:
    core = registered()
    answer(core, 0, caught_up=False, fenced=True)
    assert core.on_published(3) == [FENCED_BEAT]
    assert core.on_published(4) == [], "one request in flight at a time"
    assert answer(core, 5, caught_up=False, fenced=True) == [FENCED_BEAT], "it came after the request had left"
    assert answer(core, 6, caught_up=False, fenced=True) == []
    assert core.deadline_ms == 16


def test_other_metadata_causes_no_heartbeat() -> None:
    core = running()
    assert core.on_published(3) == []
    assert core.on_timer(2000) == [BEAT]
    assert core.on_published(2001) == []
    assert answer(core, 2002) == []
    assert core.deadline_ms == 4002


def test_a_running_broker_reports_its_offset_while_another_waits_for_it() -> None:
    core = running()
    assert core.on_published(1_000, is_another_leaving=True) == [BEAT]
    assert core.on_published(1_001, is_another_leaving=True) == [], "one request in flight at a time"
    assert answer(core, 1_002) == [BEAT]
    assert answer(core, 1_003) == []
    assert core.on_published(1_004) == [], "the other one has left"


def test_a_failed_log_directory_is_reported_at_once() -> None:
    core = running()
    assert core.on_log_dir_failed(10, ONE) == [beat_with(ONE)]
    assert core.on_log_dir_failed(11, TWO) == []
    assert answer(core, 12) == [beat_with(ONE, TWO)], "the heartbeat in flight does not name the second one"
    assert answer(core, 13) == []
    assert core.deadline_ms == 2013


def test_a_failed_log_directory_that_is_not_acknowledged_stops_the_broker() -> None:
    core = running()
    assert core.on_log_dir_failed(10, ONE) == [beat_with(ONE)]
    assert core.on_log_dir_failed(20, TWO) == []
    assert answer(core, 30) == [beat_with(ONE, TWO)]
    assert core.on_failure(40) == []
    assert core.on_timer(140) == [beat_with(ONE, TWO)]
    assert core.deadline_ms == 30_020, "the first one is acknowledged"
    assert core.on_timer(30_019) == []
    assert core.on_timer(30_020) == [LogDirFailureOverdue()]
    assert core.deadline_ms is None


def test_a_broker_that_stops_needs_no_acknowledgement() -> None:
    core = running()
    core.on_log_dir_failed(10, ONE)
    core.on_give_up(20)
    assert core.on_log_dir_failed(30, TWO) == []
    assert core.deadline_ms is None
    assert core.on_timer(40_000) == []


def test_controlled_shutdown_waits_for_leave() -> None:
    core = running()
    leaving = Heartbeat(7, want_fence=False, want_shut_down=True)
    assert core.on_shutdown_asked(10) == [StateChanged(BrokerState.PENDING_CONTROLLED_SHUTDOWN), leaving]
    assert answer(core, 11) == []
    assert core.deadline_ms == 61, "the second heartbeat of a shutdown comes after 50 ms"
    assert core.on_timer(61) == [leaving]
    assert answer(core, 62, fenced=True, should_shut_down=True) == [StateChanged(BrokerState.SHUTTING_DOWN)]
    assert core.deadline_ms is None
    assert core.on_timer(10_000) == []


def test_shutdown_before_running_is_at_once() -> None:
    core = registered()
    assert core.on_shutdown_asked(0) == [StateChanged(BrokerState.SHUTTING_DOWN)]
    assert answer(core, 1) == [], "the answer that was in flight changes nothing"
    assert core.deadline_ms is None


def test_giving_up_needs_no_leave() -> None:
    core = running()
    assert core.on_give_up(5) == [StateChanged(BrokerState.SHUTTING_DOWN)]
    assert core.on_give_up(6) == []
    assert core.on_log_dir_failed(7, ONE) == core.on_failure(8) == []


def test_failures_back_off_up_to_half_a_session() -> None:
    core, now_ms, pauses = running(), 2000, []
    for _ in range(9):
        assert core.on_timer(now_ms) == [BEAT]
        assert core.on_failure(now_ms) == []
        assert core.deadline_ms is not None
        pauses.append(core.deadline_ms - now_ms)
        now_ms = core.deadline_ms
    assert pauses == [100, 200, 400, 800, 1600, 3200, 4500, 4500, 4500]


def test_registration_must_succeed_in_time() -> None:
    core = lifecycle()
    core.on_start(0)
    core.on_failure(59_950)
    assert core.deadline_ms == 60_000, "earlier than the next attempt"
    assert core.on_timer(59_999) == []
    assert core.on_timer(60_000) == [RegistrationOverdue()]
    assert core.deadline_ms is None
    assert core.on_timer(70_000) == []


def test_a_registered_broker_is_never_overdue() -> None:
    core = lifecycle()
    core.on_start(0)
    assert core.on_registered(59_999, 7) == [FENCED_BEAT]
    assert answer(core, 70_000, caught_up=False, fenced=True) == []
    assert core.on_timer(70_010) == [FENCED_BEAT]
