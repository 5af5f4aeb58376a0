"""The errors of a tree. An error's number is part of the results that replicas agree on."""

from typing import ClassVar, Final


class TreeError(Exception):
    """The tree refused; nothing has changed."""

    NUMBER: ClassVar[int] = 0


class NoNodeError(TreeError):
    """There is no such node."""

    NUMBER: ClassVar[int] = 1


class NodeExistsError(TreeError):
    """There is such a node already."""

    NUMBER: ClassVar[int] = 2


class BadVersionError(TreeError):
    """The node's version differs from the expected one: it was changed meanwhile."""

    NUMBER: ClassVar[int] = 3


class NotEmptyError(TreeError):
    """The node has children; or it is ephemeral, and can have none."""

    NUMBER: ClassVar[int] = 4


class SessionLostError(TreeError):
    """The session is over. Its ephemeral nodes are or will be deleted, and its locks are no longer held."""

    NUMBER: ClassVar[int] = 5


class BusyError(TreeError):
    """The barrier's last round has not been left by all."""

    NUMBER: ClassVar[int] = 6


class ChangesLostError(Exception):
    """The tree no longer has all changes since that position: read the state, and continue from `Tree.position`."""


ERRORS: Final[dict[int, type[TreeError]]] = {
    error.NUMBER: error
    for error in (TreeError, NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, SessionLostError, BusyError)
}
