"""What must be true after every event. A file each; each names where the truth comes from."""

from typing import Protocol

from klamm.testing.simulator.simulated_replica import SimulatedReplica


class InvariantViolatedError(AssertionError):
    """An invariant does not hold; the text says which, where and with what values."""


class Invariant(Protocol):
    """A stateful check of what `SimulatedReplica.look` returns and of what was committed."""

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Look at what changed: only `touched` did. Raises InvariantViolatedError."""


class MessageInvariant(Protocol):
    """A check of what leaves a replica."""

    def check_messages(self, touched: SimulatedReplica) -> None:
        """Look at its outbox, which is not empty. Raises InvariantViolatedError."""
