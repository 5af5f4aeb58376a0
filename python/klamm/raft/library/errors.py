"""The errors of the replica's API. Each states what is known about the command's outcome."""

from klamm.raft.ports import RaftStoppedError

__all__ = [
    "CommandRefusedError",
    "MembershipError",
    "NoLeaderError",
    "OutcomeUnknownError",
    "RaftStoppedError",
    "ReplicaDirectoryError",
]


class CommandRefusedError(Exception):
    """The state machine refused the command, on every replica: nothing has changed."""


class NoLeaderError(TimeoutError):
    """No leader was found in time, and nothing was sent: nothing has changed, nor will it. Try again later."""


class OutcomeUnknownError(TimeoutError):
    """The command was sent and no result arrived in time: it was applied, will be, or never will.

    Within one call a replica retries by itself, and a command is applied once however often it is sent. A new call is a
    new command: read the state first.
    """


class MembershipError(Exception):
    """The voters could not be changed; the message has the reason and what is known."""


class ReplicaDirectoryError(Exception):
    """The directory belongs to another replica, or is in use; the message says which, and what to do."""
