"""From the engine's requests to handlers and back: every request gets one answer, or its connection is closed."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from klamm.broker.request import Handler, RequestContext
from klamm.protocol.errors import MalformedRequest

log = logging.getLogger("klamm.node.dispatch")


class Answers(Protocol):
    """The engine's side of an answer."""

    def answer(self, handle: int, body: bytes | None) -> bool:
        """Give the body without header; None closes the connection. False when nobody waits for it."""
        ...


class Handlers(Protocol):
    """What answers each API."""

    def find(self, api_key: int, *, on_controller: bool) -> Handler | None:
        """The handler of an API on a controller's or another listener; None for what is not served there."""
        ...


class Dispatcher:
    """Runs a handler for each request; keeps the tasks so that a stop can wait for them."""

    def __init__(self, engine: Answers, handlers: Handlers) -> None:
        self._engine = engine
        self._handlers = handlers
        self._running: set[asyncio.Task[None] | None] = set()

    def dispatch(self, handle: int, context: RequestContext, body: bytes) -> None:
        """Begin to answer a request. Does not block."""
        handler = self._handlers.find(context.api_key, on_controller=context.on_controller)
        if handler is None:
            # The engine lets through only what the node said it serves: see `Engine.serve`.
            log.error("no handler for API %d on listener %s: closing", context.api_key, context.listener)
            self._engine.answer(handle, None)
            return
        self._running.add(asyncio.get_running_loop().create_task(self._run(handler, handle, context, body)))

    async def _run(self, handler: Handler, handle: int, context: RequestContext, body: bytes) -> None:
        answer: bytes | None = None
        try:
            answer = await handler(context, context.api_version, body)
        except MalformedRequest as error:
            log.warning("closing connection of %s: %s", context.peer, error)
        except Exception:
            log.exception("API %d v%d of %s failed: closing", context.api_key, context.api_version, context.peer)
        finally:
            # Not by a callback of the task: that would be one more turn of the loop for each request.
            self._running.discard(asyncio.current_task())
            self._engine.answer(handle, answer)

    async def drain(self, timeout_s: float) -> None:
        """Wait for the answers under way, `timeout_s` at most; cancel what is left."""
        running = [task for task in self._running if task is not None]
        if running:
            _, late = await asyncio.wait(running, timeout=timeout_s)
            for task in late:
                task.cancel()
