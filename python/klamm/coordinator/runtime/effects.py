"""What a shard asks the runtime to do. A shard may have further effects, which its own driver carries out."""

from __future__ import annotations

from typing import Any

from klamm.protocol.value import Value

Ticket = Any
"""The driver's token for a request that is to be answered; a shard only hands it back."""


class Reply(Value):
    """Answer a request now. Every ticket is answered exactly once."""

    ticket: Ticket
    response: Any
