"""The time of a coroutine's steps."""

from __future__ import annotations

import asyncio
import time

import pytest

from klamm.node.requests.handler_time import timed

STEP_NS = 20_000_000


def work_for(ns: int) -> None:
    until = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < until:
        pass


async def test_steps_count_and_waiting_does_not() -> None:
    async def handle() -> str:
        work_for(STEP_NS)
        await asyncio.sleep(5 * STEP_NS / 1e9)
        work_for(STEP_NS)
        return "done"

    took: list[int] = []
    begun = time.perf_counter_ns()
    assert await timed(handle(), took.append) == "done"
    [ns] = took
    assert 2 * STEP_NS <= ns <= time.perf_counter_ns() - begun - 5 * STEP_NS


async def test_errors_reach_the_handler_and_leave_it() -> None:
    async def handle(waits_for: asyncio.Future[None]) -> str:
        try:
            await waits_for
        except ValueError:
            work_for(STEP_NS)
            return "handled"
        raise KeyError

    took: list[int] = []
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(ValueError)
    assert await timed(handle(future), took.append) == "handled"
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    with pytest.raises(KeyError):
        await timed(handle(future), took.append)
    assert took[0] >= STEP_NS
    assert len(took) == 2


async def test_a_cancellation_reaches_the_handler() -> None:
    took: list[int] = []
    has_ended = []

    async def handle() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            has_ended.append(True)

    async def run() -> None:
        await timed(handle(), took.append)

    task = asyncio.ensure_future(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert has_ended == [True]
    assert len(took) == 1
