"""Producer ids handed out from blocks that the controller allocates (KIP-730, AllocateProducerIds)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from klamm.protocol.value import Value

PREFETCH_SHARE: Final = 0.9


class Block(Value):
    """The ids `[first, end)`."""

    first: int
    end: int


class ProducerIds:
    """Hands out each id once. The next block is allocated when nine tenths of the current one are used."""

    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        """`allocate` asks the controller; it may raise `KafkaError`."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._ahead: asyncio.Task[Block] | None = None

    async def take(self) -> int:
        """A new id. Raises the error of the allocation; the next call retries it."""
        await self.prepare()
        return self._take()

    async def prepare(self) -> None:
        """Wait for a block if no id is left. Raises the error of the allocation."""
        while self._next >= self._end:
            await self._use_next_block()

    def take_now(self) -> int | None:
        """A fresh id; None while there is none, which `prepare` changes."""
        return self._take() if self._next < self._end else None

    def _take(self) -> int:
        taken = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._ahead is None:
            self._ahead = asyncio.ensure_future(self._allocate())
        return taken

    async def _use_next_block(self) -> None:
        if self._ahead is None:
            self._ahead = asyncio.ensure_future(self._allocate())
        pending = self._ahead
        try:
            block = await asyncio.shield(pending)
        except Exception:  # the next request for a block retries; the error is raised
            if self._ahead is pending:
                self._ahead = None
            raise
        if self._ahead is pending:
            self._ahead = None
            self._next, self._end = block.first, block.end
            self._prefetch_at = block.first + int((block.end - block.first) * PREFETCH_SHARE)

    def close(self) -> None:
        """Cancel a request for a block."""
        if self._ahead is not None:
            self._ahead.cancel()
