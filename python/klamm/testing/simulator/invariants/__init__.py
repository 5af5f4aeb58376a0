"""Invariants that hold after every event, one per file; each names its source."""

from typing import Protocol

from klamm.testing.simulator.simulated_replica import SimulatedReplica


class InvariantViolatedError(AssertionError):
    """An invariant does not hold; the message has the invariant, the replica and the values."""


class Invariant(Protocol):
    """A stateful check of `SimulatedReplica.look` and of the committed history."""

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Check after a change of `touched` only. Raises InvariantViolatedError."""


class MessageInvariant(Protocol):
    """A check of the messages that a replica sends."""

    def check_messages(self, touched: SimulatedReplica) -> None:
        """Check its outbox, which is not empty. Raises InvariantViolatedError."""
