"""The effects of the controller, which its driver carries out in order."""

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
    """Send the response once everything appended so far is committed.

    A response without own records waits too: the state that it was read from must not be lost afterwards.
    """

    ticket: Ticket
    response: Any


Effect = UpgradeKraftVersion | Append | Reply
