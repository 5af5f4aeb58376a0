"""Contexts of requests as the node makes them."""

from __future__ import annotations

from typing import Any, Final

from klamm.broker.request import RequestContext, monotonic_ms
from klamm.protocol.api_key import ApiKey
from klamm.protocol.principal import ANONYMOUS

REQUEST_TIMEOUT_MS: Final = 60_000


def request_context(api_key: int = ApiKey.API_VERSIONS, api_version: int = 0, **others: Any) -> RequestContext:
    """A request that has just come from a client of a broker; `others` are fields with other values."""
    now_ms = monotonic_ms()
    context = RequestContext(
        1,
        api_key,
        api_version,
        "client",
        "PLAINTEXT",
        ANONYMOUS,
        "127.0.0.1",
        False,
        now_ms,
        now_ms + REQUEST_TIMEOUT_MS,
    )
    return context._replace(**others)
