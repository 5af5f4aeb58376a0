"""A session: ephemeral nodes exist as long as it does. Its owner renews it, and loses it when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from klamm.raft.library.errors import NoLeaderError, OutcomeUnknownError
from klamm.raft.ports import RaftStoppedError
from klamm.raft.recipes.errors import SessionLostError

if TYPE_CHECKING:
    from klamm.raft.recipes.driver.tree import Tree

logger = logging.getLogger("klamm.raft")

RENEWALS_PER_TIMEOUT: Final = 3


class Session:
    """Made by `Tree.session`.

    It is alive until its time-out has passed since the last successful renewal was sent. The leader ends it later than
    that, so while `is_alive` no other session holds what its ephemeral nodes stand for. A lost session stays lost.
    """

    def __init__(self, tree: Tree, timeout_s: float) -> None:
        self.tree, self.timeout_s = tree, timeout_s
        self.id = os.urandom(16).hex()
        self.alive_until_s = 0.0
        """Until then it is alive, by `time.monotonic`, if no further renewal gets through."""
        self._is_over = False
        self._callbacks: list[Callable[[], object]] = []
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin."""
        sent_s = time.monotonic()
        await self.tree.change("open", self.id, int(self.timeout_s * 1000))
        self.alive_until_s = sent_s + self.timeout_s
        self._renewing = asyncio.create_task(self._renew())

    @property
    def is_alive(self) -> bool:
        """Whether its ephemeral nodes are certainly there still."""
        return not self._is_over and time.monotonic() < self.alive_until_s

    def check_alive(self) -> None:
        """Raise SessionLostError unless it is alive."""
        if not self.is_alive:
            raise SessionLostError(f"session {self.id} is over: open another one")

    def on_end(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback()` when the session is closed or lost: then give up what its nodes stand for.

        Returns what ends that.
        """
        self._callbacks.append(callback)
        if self._is_over:
            callback()

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(callback)

        return unsubscribe

    async def close(self, *, timeout_s: float | None = None) -> None:
        """End it, and with it its ephemeral nodes; without a leader in time they end by time-out."""
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
        every_s = self.timeout_s / RENEWALS_PER_TIMEOUT
        next_s = time.monotonic() + every_s
        while not self._is_over:
            await asyncio.sleep(max(min(next_s, self.alive_until_s) - time.monotonic(), 0))
            sent_s = time.monotonic()
            next_s = sent_s + every_s
            if sent_s >= self.alive_until_s or not await self._renew_once(sent_s):
                logger.warning("session %s is lost: no renewal got through within %s s", self.id, self.timeout_s)
                self._end()

    async def _renew_once(self, sent_s: float) -> bool:
        """False when the session is over; True also when that is unknown, which the next renewal will show."""
        try:
            left_s = max(self.alive_until_s - sent_s, 0.001)
            (is_alive,) = await self.tree.change("renew", [self.id], timeout_s=left_s)
        except (NoLeaderError, OutcomeUnknownError):
            return True
        except RaftStoppedError:
            return False
        if is_alive:
            self.alive_until_s = sent_s + self.timeout_s
        return bool(is_alive)

    def _end(self) -> None:
        self._is_over = True
        for callback in list(self._callbacks):
            try:
                callback()
            except Exception:  # a failing callback must not keep the others from being called
                logger.exception("a callback of Session.on_end failed")
