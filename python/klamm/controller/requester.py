"""Whose quota a request is charged to."""

from __future__ import annotations

from klamm.protocol.value import Value


class Requester(Value):
    """The name of the principal, and the client id."""

    user: str
    client_id: str
