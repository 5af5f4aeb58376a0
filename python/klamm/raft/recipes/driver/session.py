"""A session: ephemeral nodes exist as long as it does. Its owner renews it, and loses it when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from klamm.driving.clock import LoopClock
from klamm.raft.library.errors import NoLeaderError, OutcomeUnknownError
from klamm.raft.ports import RaftStoppedError
from klamm.raft.recipes.driver.operations import TreeOperations
from klamm.raft.recipes.errors import SessionLostError

logger = logging.getLogger("klamm.raft")

RENEWALS_PER_TIMEOUT: Final = 3


class Session:
    """Created by `Tree.session`.

    It is alive until its timeout has passed since the last successful renewal was sent. The leader expires it later
    than that, so while `is_alive` no other session holds the meaning of its ephemeral nodes. A lost session stays lost.
    """

    def __init__(self, tree: TreeOperations, timeout_s: float) -> None:
        self.tree, self.timeout_s = tree, timeout_s
        self.id = os.urandom(16).hex()
        self._clock = LoopClock()
        self._timeout_ms = int(timeout_s * 1000)
        self._alive_until_ms = 0
        self._is_over = False
        self._callbacks: list[Callable[[], object]] = []
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin."""
        sent_ms = self._clock.now_ms()
        await self.tree.change("open", self.id, self._timeout_ms)
        self._alive_until_ms = sent_ms + self._timeout_ms
        self._renewing = asyncio.create_task(self._renew())

    @property
    def is_alive(self) -> bool:
        """Whether its ephemeral nodes are certainly there still."""
        return not self._is_over and self._clock.now_ms() < self._alive_until_ms

    @property
    def alive_until_s(self) -> float:
        """When it ends, in the loop's time, if no further renewal succeeds."""
        return self._alive_until_ms / 1000

    def check_alive(self) -> None:
        """Raise SessionLostError unless it is alive."""
        if not self.is_alive:
            raise SessionLostError(f"session {self.id} is over: open another one")

    def on_end(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback()` when the session is closed or lost, to release what its nodes represent.

        Returns a function that ends the subscription.
        """
        self._callbacks.append(callback)
        if self._is_over:
            callback()

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(callback)

        return unsubscribe

    async def close(self, *, timeout_s: float | None = None) -> None:
        """End it and its ephemeral nodes; without a leader in time they end by timeout."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if not self._is_over:
            self._end()
            with contextlib.suppress(SessionLostError, NoLeaderError, OutcomeUnknownError, RaftStoppedError):
                await self.tree.change("end", self.id, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _renew(self) -> None:
        every_ms = self._timeout_ms // RENEWALS_PER_TIMEOUT
        next_ms = self._clock.now_ms() + every_ms
        while not self._is_over:
            left_ms = min(next_ms, self._alive_until_ms) - self._clock.now_ms()
            await asyncio.sleep(max(left_ms, 0) / 1000)
            sent_ms = self._clock.now_ms()
            next_ms = sent_ms + every_ms
            if sent_ms >= self._alive_until_ms or not await self._renew_once(sent_ms):
                logger.warning("session %s is lost: no renewal got through within %s s", self.id, self.timeout_s)
                self._end()

    async def _renew_once(self, sent_ms: int) -> bool:
        """False when the session is over; True also when that is unknown, which the next renewal will show."""
        try:
            left_ms = self._alive_until_ms - sent_ms
            (is_alive,) = await self.tree.change("renew", [self.id], timeout_s=left_ms / 1000)
        except (NoLeaderError, OutcomeUnknownError):
            return True
        except RaftStoppedError:
            return False
        if is_alive:
            self._alive_until_ms = sent_ms + self._timeout_ms
        return bool(is_alive)

    def _end(self) -> None:
        self._is_over = True
        for callback in list(self._callbacks):
            try:
                callback()
            except Exception:  # a failing callback must not keep the others from being called
                logger.exception("a callback of Session.on_end failed")
