"""What the controller asks its driver to do, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.protocol.value import Value

Ticket = Any
"""The driver's token for a request. The controller only passes it back."""


class UpgradeKraftVersion(Value):
    """Have the quorum write that level to its log; then report `on_kraft_version`."""

    level: int


class Append(Value):
    """Append the records as one batch, and `replay` them at once: the next effect or event builds on them."""

    records: Sequence[bytes]


class Reply(Value):
    """Answer the request once everything that was appended so far is committed.

    An answer without records of its own waits too: what it was read from must not be lost after the answer.
    """

    ticket: Ticket
    response: Any


Effect = UpgradeKraftVersion | Append | Reply
