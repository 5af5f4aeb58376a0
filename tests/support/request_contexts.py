"""Request contexts as the node creates them."""

from __future__ import annotations

from typing import Any, Final

from klamm.broker.request import RequestContext, monotonic_ms
from klamm.protocol.api_key import ApiKey
from klamm.protocol.principal import ANONYMOUS

REQUEST_TIMEOUT_MS: Final = 60_000


def request_context(api_key: int = ApiKey.API_VERSIONS, api_version: int = 0, **others: Any) -> RequestContext:
    """The context of a request that a broker has just received from a client; `others` override fields."""
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
