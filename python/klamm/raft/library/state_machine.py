"""The interface of a replicated state."""

from collections.abc import Callable
from typing import Protocol


class StateMachine(Protocol):
    """A state that only commands change. Called on one thread, one call at a time.

    `apply` must be deterministic: the same commands in the same order give the same state and the same results on every
    replica, in every process, today and when the log is replayed next year. So it must not use a clock, random numbers,
    the environment or a file, nor the order of a set. Such values must be part of the command.
    """

    def apply(self, command: bytes) -> bytes:
        """Change the state; the result is returned to the caller of `execute`.

        To refuse, leave the state unchanged and raise CommandRefusedError: the caller receives it. Any other exception
        counts as a fault and stops the replica, because the other replicas may not have failed in the same way.
        """

    def snapshot(self) -> bytes | Callable[[], bytes]:
        """The complete state, for `restore`.

        A returned callable is called in a thread while commands are applied: return one, on data that does not change
        any more, if creating the bytes takes long.
        """

    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot."""
