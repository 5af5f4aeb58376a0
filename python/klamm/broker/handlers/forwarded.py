"""Requests that the active controller answers; a broker hands them on (KIP-590)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from klamm.broker.request import Handler, RequestContext
from klamm.protocol.codec import read, write

T = TypeVar("T")


def _with_time_left(context: RequestContext, request: T) -> T:
    """A request whose time is over before its turn has come is not begun: it has no time any more (facts 5.1)."""
    timeout_ms = getattr(request, "timeout_ms", 0)
    is_over = timeout_ms > 0 and context.has_waited(timeout_ms)
    return replace(request, timeout_ms=0) if is_over else request  # type: ignore[type-var]


def forwarded(request: type[Any], ask: Callable[[Any, int], Awaitable[Any]]) -> Handler:
    """A handler that reads `request`, a value type of `klamm.protocol`, asks, and writes what comes back.

    `ask` gets the request and the API version; refusals are in its answer.
    """

    async def handle(context: RequestContext, version: int, body: bytes) -> bytes:
        asked = _with_time_left(context, read(request, version, body))
        return write(await ask(asked, version), version)

    return handle
