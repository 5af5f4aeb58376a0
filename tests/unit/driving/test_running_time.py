from __future__ import annotations

from klamm.driving.running_time import RunningTime


def test_time_runs_until_the_timer_was_due() -> None:
    time = RunningTime(0, long_pause_ms=100)
    assert [time.on_turn(now_ms, 50) for now_ms in (10, 50, 50)] == [10, 50, 50]
    assert time.on_turn(130, 60) == 60
    assert time.take_pause() == 0
    assert time.on_turn(1_130, 1_030) == 960
    assert time.take_pause() == 100
    assert time.take_pause() == 0
    assert time.on_turn(2_000, None) == 1_830, "without a timer nothing can be late"


def test_a_pause_detected_by_another_timer_counts_once() -> None:
    time = RunningTime(0, long_pause_ms=100)
    time.on_turn(500, 500)
    time.on_pause(5_000, 4_000)
    time.on_pause(5_000, 4_000)
    assert time.take_pause() == 4_000
    assert time.on_turn(5_000, 1_200) == 1_000, "the late timer belongs to the same pause"
    assert time.take_pause() == 0
    time.on_pause(6_000, 2_000)
    assert time.take_pause() == 0, "the loop ran in between"
