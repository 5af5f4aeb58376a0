"""The content of a tree, for its users."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

ROOT: Final = "/"


class Node(NamedTuple):
    """A node at some position of the tree.

    `version` counts its changes from 0; `created` and `modified` are the positions of its creation and its last change;
    `owner` is the session that an ephemeral node ends with; `children` are names, in order.
    """

    path: str
    data: bytes
    version: int
    created: int
    modified: int
    owner: str | None
    children: tuple[str, ...]


class Change(NamedTuple):
    """One change of one node. Positions ascend by one; one command may take several."""

    position: int
    kind: Literal["created", "changed", "deleted"]
    path: str


def checked_path(path: str) -> str:
    """The path. Raises ValueError for an invalid one."""
    is_path = path == ROOT or (path.startswith("/") and all(path[1:].split("/")))
    if not is_path or "\0" in path:
        raise ValueError(f"{path!r} is no path: /name, /name/name and so on, or / for the root")
    return path


def parent_of(path: str) -> str:
    """The path of the node above; the root's is the root."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def child_of(path: str, name: str) -> str:
    """The path of a child."""
    return f"{path.rstrip('/')}/{name}"


def is_below(path: str, top: str) -> bool:
    """Whether `path` is `top` or under it."""
    return path == top or path.startswith(top.rstrip("/") + "/")
