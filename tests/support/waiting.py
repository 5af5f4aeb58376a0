"""Waiting for conditions, with a bound that only a fault reaches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BOUND_S = 30.0
LOOK_S = 0.005


async def until(condition: Callable[[], object], bound_s: float = BOUND_S) -> None:
    """Return once `condition()` is true. Raises TimeoutError."""
    async with asyncio.timeout(bound_s):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(LOOK_S)


def wait_until(condition: Callable[[], object], what: object = "", *, bound_s: float = BOUND_S) -> None:
    """The same without an event loop. The TimeoutError names `what` was expected; it may be a function."""
    deadline = time.monotonic() + bound_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"a condition did not hold within {bound_s} s: {what() if callable(what) else what}")
        time.sleep(LOOK_S)
