"""What a program gives to be replicated."""

from collections.abc import Callable
from typing import Protocol


class StateMachine(Protocol):
    """A state that changes by commands alone. Called on one thread, one call at a time.

    `apply` must be deterministic: the same commands in the same order give the same state and the same results on
    every replica, in every process, today and when the log is replayed next year. So it may not look at a clock, rng,
    the environment or a file, nor at the order of a set. What it needs of those comes in with the command.
    """

    def apply(self, command: bytes) -> bytes:
        """Change the state; the result is returned to the caller of `execute`.

        To refuse, leave the state unchanged and raise CommandRefusedError: the caller receives it. Any other exception
        counts as a fault and stops the replica, because the other replicas may not have failed in the same way.
        """

    def snapshot(self) -> bytes | Callable[[], bytes]:
        """All of the state, for `restore`.

        A callable is called in a thread while commands go on: give one, over something that no longer changes, where
        making the bytes takes long.
        """

    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot."""
