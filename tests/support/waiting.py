"""Waiting for what must come to be true, with a bound that only a fault reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

BOUND_S = 30.0
LOOK_S = 0.005


async def until(condition: Callable[[], object], bound_s: float = BOUND_S) -> None:
    """Return when `condition()` is true. Raises TimeoutError."""
    async with asyncio.timeout(bound_s):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(LOOK_S)
