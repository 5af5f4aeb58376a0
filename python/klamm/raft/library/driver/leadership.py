"""The leader as one replica knows it, and the callers that wait for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger("klamm.raft")


class Leadership(NamedTuple):
    """The leader of an epoch; `leader_id` None while none is known. `is_self`: this replica, and it takes commands."""

    leader_id: int | None
    epoch: int
    is_self: bool = False


Callback = Callable[[Leadership], object]


class LeadershipView:
    """The newest leadership."""

    def __init__(self) -> None:
        self.current = Leadership(None, 0)
        self._callbacks: list[Callback] = []
        self._waiting: list[asyncio.Future[None]] = []

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` now and with each change; returns a function that ends the subscription."""
        self._callbacks.append(callback)
        _tell(callback, self.current)

        def unsubscribe() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return unsubscribe

    def change(self, leadership: Leadership) -> None:
        """Another leader, or none."""
        if leadership == self.current:
            return
        self.current = leadership
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for callback in list(self._callbacks):
            _tell(callback, leadership)

    async def changed(self, timeout_s: float) -> None:
        """Return at the next change, or when the time is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await asyncio.wait([future], timeout=timeout_s)
        if not future.done():
            self._waiting.remove(future)


def _tell(callback: Callback, leadership: Leadership) -> None:
    try:
        callback(leadership)
    except Exception:  # a listener's fault is not the replica's
        logger.exception("a callback of on_leader_change failed")
