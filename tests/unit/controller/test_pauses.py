"""A controller whose process was stopped does not blame brokers for heartbeats that it missed."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster import Cluster

SESSION_MS = 9_000
LOOK_MS = SESSION_MS // 8
PAUSES_MS = (SESSION_MS + 1, 60_000, 3_600_000)


def is_fenced(cluster: Cluster, broker_id: int) -> bool:
    broker = cluster.image.broker(broker_id)
    assert broker is not None
    return broker.fenced


def stop_for(cluster: Cluster, ms: int) -> None:
    """SIGSTOP and SIGCONT: the next turn is late."""
    cluster.now_ms += ms


@pytest.mark.parametrize("pause_ms", PAUSES_MS)
def test_a_pause_expires_no_session(pause_ms: int) -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    cluster.pass_silently(2_000)
    stop_for(cluster, pause_ms)
    cluster.pass_silently(LOOK_MS)
    assert not is_fenced(cluster, 1)
    cluster.heartbeat(1)
    cluster.pass_silently(SESSION_MS - 2_000 + LOOK_MS)
    assert not is_fenced(cluster, 1)
    assert is_fenced(cluster, 2), "its session was not longer, except for the pause"


@pytest.mark.parametrize("pause_ms", PAUSES_MS)
def test_a_heartbeat_that_comes_first_does_not_hide_the_pause(pause_ms: int) -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    stop_for(cluster, pause_ms)
    assert not cluster.heartbeat(1).is_fenced
    cluster.pass_silently(SESSION_MS - 2 * LOOK_MS)
    assert not is_fenced(cluster, 2)
    cluster.pass_silently(4 * LOOK_MS)
    assert is_fenced(cluster, 1), "a session that begins after the pause is no longer than others"
    assert is_fenced(cluster, 2)


@pytest.mark.parametrize("heard_ms", [0, 1, LOOK_MS // 2, LOOK_MS - 20])
def test_unread_heartbeats_are_processed_before_the_next_check(heard_ms: int) -> None:
    """`heard_ms`: the time of the broker's last heartbeat; like the session's end, it is between two checks."""
    cluster = Cluster()
    cluster.add_brokers(1)
    cluster.pass_silently(heard_ms)
    cluster.heartbeat(1)
    cluster.pass_silently(SESSION_MS - 10)
    stop_for(cluster, 60_000)
    cluster.run_clock(1)
    assert not is_fenced(cluster, 1), "its session ended after the pause, before a heartbeat could be read"
    assert not cluster.heartbeat(1).is_fenced


def test_a_controller_that_is_always_late_still_fences() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    for _ in range(4 * 8):
        stop_for(cluster, 3 * LOOK_MS)
        cluster.run_clock(1)
    assert is_fenced(cluster, 1)


def test_a_second_incarnation_waits_for_the_running_time_of_the_session() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    stop_for(cluster, 60_000)
    assert cluster.register(1).error_code.name == "DUPLICATE_BROKER_REGISTRATION"


def test_an_activation_begins_without_a_pause() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    stop_for(cluster, 60_000)
    cluster.fail_over()
    cluster.pass_silently(SESSION_MS + 2 * LOOK_MS)
    assert is_fenced(cluster, 1)
