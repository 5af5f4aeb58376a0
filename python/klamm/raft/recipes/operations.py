"""The shape of the tree's operations: what comes out of the log is held against it before anything is changed."""

from __future__ import annotations

from typing import Any, Final

from klamm.raft.recipes.nodes import checked_path
from klamm.raft.recipes.packed import Value, unpack

_TEXT: Final = (str,)
_BYTES: Final = (bytes,)
_NUMBER: Final = (int,)
_FLAG: Final = (bool,)
_TEXTS: Final = (list,)
_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER_OR_NONE: Final = (int, type(None))

# Where a path comes, it comes first.
_WITH_PATH: Final[dict[str, tuple[tuple[type, ...], ...]]] = {
    "create": (_TEXT, _BYTES, _TEXT_OR_NONE, _FLAG, _FLAG),
    "set": (_TEXT, _BYTES, _NUMBER_OR_NONE),
    "delete": (_TEXT, _NUMBER_OR_NONE),
    "add": (_TEXT, _NUMBER),
    "pop": (_TEXT,),
    "enter": (_TEXT, _TEXT, _TEXT, _NUMBER),
}
SHAPES: Final[dict[str, tuple[tuple[type, ...], ...]]] = _WITH_PATH | {
    "open": (_TEXT, _NUMBER),
    "renew": (_TEXTS,),
    "end": (_TEXT,),
    "expire": (_TEXT, _NUMBER),
}
"""The types of each operation's arguments."""


def checked_operation(value: Value) -> tuple[str, list[Any]]:
    """An operation's name and arguments. Raises ValueError for an invalid one."""
    match value:
        case [str(name), *arguments] if name in SHAPES:
            shape = SHAPES[name]
        case _:
            raise ValueError("no operation of a tree")
    if len(arguments) != len(shape) or not all(map(_fits, arguments, shape)):
        raise ValueError(f"the arguments of {name} do not fit")
    if name in _WITH_PATH:
        checked_path(arguments[0])
    if name == "enter":
        checked_path(f"/{arguments[1]}")
    return name, arguments


def _fits(argument: object, types: tuple[type, ...]) -> bool:
    if isinstance(argument, bool):
        return bool in types
    if isinstance(argument, list):
        return list in types and all(isinstance(item, str) for item in argument)
    return isinstance(argument, types)


def barrier_state(data: bytes) -> tuple[int, int]:
    """A barrier's round, and the position that released it or 0. Raises ValueError for data of something else."""
    if not data:
        return 1, 0
    match unpack(data):
        case [int(round_number), int(released)]:
            return round_number, released
    raise ValueError("the node is no barrier")
