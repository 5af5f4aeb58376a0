"""What a shard asks its driver to do."""

from __future__ import annotations

from typing import Any, NamedTuple

Ticket = Any
"""The driver's own token for a request that is to be answered; a shard only hands it back."""


class Reply(NamedTuple):
    """Answer a request now. Every ticket is answered exactly once."""

    ticket: Ticket
    response: Any
