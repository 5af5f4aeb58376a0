"""Timeouts that share a timer."""

from __future__ import annotations

import asyncio

from klamm.driving.deadlines import Deadlines


def test_each_deadline_fires_once_and_on_time() -> None:
    async def run() -> list[str]:
        deadlines, fired, all_told = Deadlines(), list[str](), asyncio.Event()
        deadlines.add(20, lambda: (fired.append("later"), all_told.set()))
        deadlines.add(1, lambda: fired.append("sooner"))
        removed = deadlines.add(5, lambda: fired.append("removed"))
        assert deadlines.remove(removed)
        assert not deadlines.remove(removed)
        async with asyncio.timeout(30):
            await all_told.wait()
        return fired

    assert asyncio.run(run()) == ["sooner", "later"]


def test_after_a_pause_deadlines_fire_in_order() -> None:
    async def run() -> list[str]:
        deadlines, fired, all_told = Deadlines(), list[str](), asyncio.Event()
        deadlines.add(2, lambda: (fired.append("later"), all_told.set()))
        deadlines.add(1, lambda: fired.append("sooner"))
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 0.01
        while loop.time() < end_s:  # the loop is blocked
            pass
        async with asyncio.timeout(30):
            await all_told.wait()
        return fired

    assert asyncio.run(run()) == ["sooner", "later"]


def test_a_callback_may_cancel_and_add_deadlines() -> None:
    async def run() -> list[str]:
        deadlines, fired, all_told = Deadlines(), list[str](), asyncio.Event()

        def first() -> None:
            fired.append("first")
            assert deadlines.remove(second)
            deadlines.add(1, lambda: (fired.append("third"), all_told.set()))

        deadlines.add(1, first)
        second = deadlines.add(1, lambda: fired.append("second"))
        async with asyncio.timeout(30):
            await all_told.wait()
        return fired

    assert asyncio.run(run()) == ["first", "third"]


def test_after_close_nothing_fires() -> None:
    async def run() -> None:
        deadlines, fired = Deadlines(), list[str]()
        token = deadlines.add(1, lambda: fired.append("over"))
        deadlines.close()
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, over.set)
        await over.wait()
        assert fired == []
        assert deadlines.remove(token)

    asyncio.run(run())


def test_a_failing_callback_does_not_delay_the_others() -> None:
    async def run() -> list[str]:
        deadlines, fired, all_told = Deadlines(), list[str](), asyncio.Event()

        def fail() -> None:
            fired.append("fails")
            raise RuntimeError("broken")

        deadlines.add(1, fail)
        deadlines.add(1, lambda: (fired.append("next"), all_told.set()))
        async with asyncio.timeout(0.9):
            await all_told.wait()
        return fired

    assert asyncio.run(run()) == ["fails", "next"]
