"""Effects of a shard for the runtime. A shard may have further effects, which `carry_out` of the runtime receives."""

from __future__ import annotations

from typing import Any

from klamm.protocol.value import Value

Ticket = Any
"""The driver's token for a request. A shard only passes it back."""


class Reply(Value):
    """Send a response now. Every ticket is answered exactly once."""

    ticket: Ticket
    response: Any
