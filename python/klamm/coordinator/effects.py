"""What a shard asks its driver to do."""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.coordinator.records import LogRecord
from klamm.protocol.value import Value

Ticket = Any
"""The driver's own token for a request that is to be answered; a shard only hands it back."""


class Reply(NamedTuple):
    """Answer a request now. Every ticket is answered exactly once."""

    ticket: Ticket
    response: Any


class Append(Value):
    """Append `records` as one batch and report with `on_append_done`; there is never a second one under way."""

    records: list[LogRecord]


Effect = Reply | Append
