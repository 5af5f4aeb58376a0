"""Requests that the active controller answers; a broker hands them on (KIP-590)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from klamm.broker.request import Handler, RequestContext
from klamm.protocol.codec import read, write


def forwarded(request: type[Any], ask: Callable[[Any, int], Awaitable[Any]]) -> Handler:
    """A handler that reads `request`, a value type of `klamm.protocol`, asks, and writes what comes back.

    `ask` gets the request and the API version; refusals are in its answer.
    """

    async def handle(context: RequestContext, version: int, body: bytes) -> bytes:
        return write(await ask(read(request, version, body), version), version)

    return handle
