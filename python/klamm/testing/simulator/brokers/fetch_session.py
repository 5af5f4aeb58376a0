"""Fetch sessions of followers: what is named once counts until it changes (KIP-227).

A request in a session names only what has changed. The leader must fetch what the request would name without a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.simulation import InSession


class Fetch(NamedTuple):
    """A follower's request, and all that it fetches with it."""

    body: bytes
    partitions: Sequence[InSession]


def check_session(leader_id: int, fetch: Fetch, found: Sequence[InSession]) -> None:
    """The session of a fetch that was accepted has what its follower fetches. Raises InvariantViolatedError."""
    if found != fetch.partitions:
        raise InvariantViolatedError(
            f"broker {leader_id} has {found} in the session of a follower that fetches {fetch.partitions}"
        )
