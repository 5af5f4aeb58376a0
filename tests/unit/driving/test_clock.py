from __future__ import annotations

import asyncio
import time

import pytest
from tests.support.simulated_time import SimulatedTimeLoop, simulated

from klamm.driving.clock import DeadlineTimer, LoopClock


@simulated
async def test_a_clock_shows_the_loops_time() -> None:
    await asyncio.sleep(1.5)
    clock, other = LoopClock(), LoopClock(1_000_000)
    assert (clock.now_ms(), other.now_ms()) == (1_500, 1_000_000)
    await asyncio.sleep(0.25)
    assert (clock.now_ms(), other.now_ms()) == (1_750, 1_000_250)


@simulated
async def test_the_time_since_1970() -> None:
    assert abs(LoopClock.since_1970().now_ms() - time.time_ns() // 1_000_000) < 60_000


class Alarm:
    """A timer, with the times at which it fired and was due."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.fired: list[tuple[int, int]] = []
        self.timer = DeadlineTimer(clock, lambda at_ms: self.fired.append((clock.now_ms(), at_ms)))


@simulated
async def test_a_timer_fires_once_at_its_deadline() -> None:
    alarm = Alarm(LoopClock(1_000_000))
    alarm.timer.arm(1_000_100)
    await asyncio.sleep(1)
    assert alarm.fired == [(1_000_100, 1_000_100)]


@simulated
async def test_an_earlier_deadline_moves_the_timer_and_a_later_one_does_not() -> None:
    alarm = Alarm(LoopClock(0))
    alarm.timer.arm(500)
    alarm.timer.arm(900)
    alarm.timer.arm(None)
    await asyncio.sleep(1)
    assert alarm.fired == [(500, 500)]
    alarm.timer.arm(2_000)
    alarm.timer.arm(1_500)
    await asyncio.sleep(2)
    assert alarm.fired == [(500, 500), (1_500, 1_500)]


@simulated
async def test_a_deadline_that_has_passed_fires_at_once() -> None:
    alarm = Alarm(LoopClock(1_000))
    alarm.timer.arm(10)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert alarm.fired == [(1_000, 10)]


@simulated
async def test_a_cancelled_timer_does_not_fire_until_it_is_armed_again() -> None:
    alarm = Alarm(LoopClock(0))
    alarm.timer.arm(100)
    alarm.timer.cancel()
    alarm.timer.cancel()
    await asyncio.sleep(1)
    assert alarm.fired == []
    alarm.timer.arm(2_000)
    await asyncio.sleep(2)
    assert alarm.fired == [(2_000, 2_000)]


@simulated
async def test_a_timer_shows_how_late_it_is() -> None:
    alarm = Alarm(LoopClock(0))
    alarm.timer.arm(100)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedTimeLoop)
    loop.stop_for(60)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert alarm.fired == [(60_000, 100)]


@simulated
async def test_a_timer_whose_callback_fails_fires_again_and_logs_each_cause_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, fired, errors = LoopClock(0), list[int](), [ValueError("first"), ValueError("first"), ValueError("second")]

    def fail(at_ms: int) -> None:
        fired.append(clock.now_ms())
        if errors:
            raise errors.pop(0)

    timer = DeadlineTimer(clock, fail)
    timer.arm(500)
    await asyncio.sleep(60)
    assert fired == [500, 1_500, 2_500, 3_500]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["first", "second"]
