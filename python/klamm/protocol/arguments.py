"""What a constructor is given, taken apart without compiling one: that takes longer than its first calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

FEW: Final = 20
"""Of a class that has more objects, the constructor is compiled."""


def values_of(
    cls: type, names: Sequence[str], defaults: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Sequence[Any]:
    """A value for each of the names. Raises TypeError as a function of such parameters does."""
    if len(args) == len(names) and not kwargs:
        return args
    if len(args) > len(names):
        raise TypeError(f"{cls.__qualname__} takes {len(names)} arguments, but {len(args)} were given")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in given or name not in names:
            what = "multiple values for" if name in given else "an unexpected"
            raise TypeError(f"{cls.__qualname__} got {what} argument {name!r}")
        given[name] = value
    missing = [name for name in names if name not in given and name not in defaults]
    if missing:
        raise TypeError(f"{cls.__qualname__} misses the arguments {', '.join(missing)}")
    return [given[name] if name in given else defaults[name] for name in names]
