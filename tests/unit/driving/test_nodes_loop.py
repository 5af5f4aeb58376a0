"""A node can be paused without affecting the others; the time of sessions can be advanced."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.waiting import until

from klamm.driving.nodes_loop import OWNER, NodesLoop, Owner
from klamm.embedded.members import lost_between


def run(
    work: Callable[[NodesLoop], Coroutine[Any, Any, None]],
    on_advanced: Callable[[int, int], object] = lambda wall_ms, running_ms: None,
) -> None:
    loop = NodesLoop(on_advanced)
    try:
        loop.run_until_complete(work(loop))
    finally:
        loop.close()


def context_of(owner: Owner) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(OWNER.set, owner)
    return context


def test_callbacks_of_a_paused_node_wait_and_then_run_in_order() -> None:
    async def work(loop: NodesLoop) -> None:
        paused, other, seen = Owner(), Owner(), list[str]()
        read, write = os.pipe()
        contexts = context_of(paused), context_of(other)

        def take() -> None:
            os.read(read, 1)
            seen.append("reader")

        contexts[0].run(loop.add_reader, read, take)
        contexts[0].run(loop.call_later, 0, seen.append, "timer")
        loop.pause(paused)
        os.write(write, b"x")
        contexts[0].run(loop.call_soon, seen.append, "soon")
        contexts[0].run(loop.call_soon, seen.append, "cancelled").cancel()
        contexts[1].run(loop.call_later, 0, seen.append, "other timer")
        contexts[1].run(loop.call_soon, seen.append, "other")
        loop.call_soon(seen.append, "none")
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(0.05)  # nothing runs, however long this waits
        assert sorted(seen) == ["none", "other", "other timer"]
        loop.resume(paused)
        await until(lambda: len(seen) == 6)
        assert seen[3] == "soon"
        assert sorted(seen[4:]) == ["reader", "timer"]
        assert contexts[0].run(loop.remove_reader, read)
        os.close(read)
        os.close(write)

    run(work)


def test_a_task_of_a_paused_node_resumes() -> None:
    async def work(loop: NodesLoop) -> None:
        owner, steps = Owner(), list[int]()

        async def task() -> None:
            OWNER.set(owner)
            for step in range(1_000_000):
                steps.append(step)
                await asyncio.sleep(0)

        running = loop.create_task(task())
        await until(lambda: len(steps) > 3)
        loop.pause(owner)
        await asyncio.sleep(0)
        count = len(steps)
        await asyncio.sleep(0.05)  # no step comes, however long this is
        assert len(steps) == count
        loop.resume(owner)
        await until(lambda: len(steps) > count + 3)
        running.cancel()
        assert steps == list(range(len(steps)))

    run(work)


def test_timers_fire_at_their_times_when_the_time_is_advanced() -> None:
    async def work(loop: NodesLoop) -> None:
        time, seen, begun = loop.advanced, list[tuple[str, float]](), loop.advanced.time()

        def note(name: str) -> None:
            seen.append((name, time.time() - begun))

        time.call_at(begun + 40, lambda: note("40"))
        time.call_at(begun + 20, lambda: note("20"))
        time.call_at(begun + 30, lambda: note("30")).cancel()
        time.call_at(begun + 100, lambda: note("100"))
        await time.advance(50)
        assert [name for name, _ in seen] == ["20", "40"]
        assert all(at >= int(name) for name, at in seen)
        assert time.time() - loop.time() == pytest.approx(50)
        assert moved == [(passed, passed) for passed, _ in moved]
        assert sum(wall_ms for wall_ms, _ in moved) == pytest.approx(50_000, abs=1)
        await time.advance(1_000)
        assert [name for name, _ in seen] == ["20", "40", "100"]
        assert sum(wall_ms for wall_ms, _ in moved) == pytest.approx(1_050_000, abs=1)
        assert sum(running_ms for _, running_ms in moved) == pytest.approx(110_000, abs=1), "the rest is a pause"

    moved = list[tuple[int, int]]()
    run(work, lambda wall_ms, running_ms: moved.append((wall_ms, running_ms)))


def test_a_paused_node_gets_results_after_the_pause() -> None:
    async def work(loop: NodesLoop) -> None:
        owner, seen = Owner(), list[str]()
        context_of(owner).run(loop.advanced.call_at, loop.advanced.time() + 1, lambda: seen.append("due"))
        loop.pause(owner)
        await loop.advanced.advance(2)
        assert seen == []
        loop.resume(owner)
        await until(lambda: seen)
        await loop.advanced.advance(2)
        assert seen == ["due"]

    run(work)


def test_two_nodes_communicate_if_a_group_contains_both() -> None:
    assert lost_between([[1]], [1, 2, 3]) == {(1, 2), (2, 1), (1, 3), (3, 1)}
    assert lost_between([[1, 3], [2, 3]], [1, 2, 3]) == {(1, 2), (2, 1)}
    assert lost_between([[1, 2, 3]], [1, 2, 3]) == frozenset()
    assert lost_between([[1], [2]], [1, 2, 3]) == lost_between([[1], [2], [3]], [1, 2, 3])
