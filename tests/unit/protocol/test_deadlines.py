"""Time-outs that share a timer."""

from __future__ import annotations

import asyncio

from klamm.protocol.deadlines import Deadlines


def test_each_is_told_once_and_in_its_time() -> None:
    async def run() -> list[str]:
        deadlines, told, all_told = Deadlines(), list[str](), asyncio.Event()
        deadlines.add(0.02, lambda: (told.append("later"), all_told.set()))
        deadlines.add(0.001, lambda: told.append("sooner"))
        removed = deadlines.add(0.005, lambda: told.append("removed"))
        assert deadlines.remove(removed)
        assert not deadlines.remove(removed)
        async with asyncio.timeout(30):
            await all_told.wait()
        return told

    assert asyncio.run(run()) == ["sooner", "later"]


def test_after_a_pause_they_are_told_in_the_order_of_their_times() -> None:
    async def run() -> list[str]:
        deadlines, told, all_told = Deadlines(), list[str](), asyncio.Event()
        deadlines.add(0.002, lambda: (told.append("later"), all_told.set()))
        deadlines.add(0.001, lambda: told.append("sooner"))
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 0.01
        while loop.time() < end_s:  # the loop does not run
            pass
        async with asyncio.timeout(30):
            await all_told.wait()
        return told

    assert asyncio.run(run()) == ["sooner", "later"]


def test_one_that_is_told_may_end_others_and_begin_some() -> None:
    async def run() -> list[str]:
        deadlines, told, all_told = Deadlines(), list[str](), asyncio.Event()

        def first() -> None:
            told.append("first")
            assert deadlines.remove(second)
            deadlines.add(0.001, lambda: (told.append("third"), all_told.set()))

        deadlines.add(0.001, first)
        second = deadlines.add(0.001, lambda: told.append("second"))
        async with asyncio.timeout(30):
            await all_told.wait()
        return told

    assert asyncio.run(run()) == ["first", "third"]


def test_after_its_end_nothing_is_told_but_what_was_known_still_is() -> None:
    async def run() -> None:
        deadlines, told = Deadlines(), list[str]()
        token = deadlines.add(0.001, lambda: told.append("over"))
        deadlines.close()
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, over.set)
        await over.wait()
        assert told == []
        assert deadlines.remove(token)

    asyncio.run(run())
