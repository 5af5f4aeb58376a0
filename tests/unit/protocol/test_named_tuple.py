"""A named tuple of klamm is what `typing.NamedTuple` would have made, from its first object to its hundredth."""

from __future__ import annotations

import pickle
import typing
from typing import Any

import pytest

from klamm.protocol.arguments import FEW
from klamm.protocol.named_tuple import NamedTuple


class Found(NamedTuple):
    """A doc."""

    name: str
    size: int = 1
    parts: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.size

    @classmethod
    def of(cls, name: str) -> Found:
        return cls(name, 3)

    def __str__(self) -> str:
        return f"<{self.name}>"


class Model(typing.NamedTuple):
    """A doc."""

    name: str
    size: int = 1
    parts: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.size

    @classmethod
    def of(cls, name: str) -> Model:
        return cls(name, 3)

    def __str__(self) -> str:
        return f"<{self.name}>"


class Nothing(NamedTuple):
    """No field."""


class Below(Found):
    """Of another's fields."""


def matched(made: Any) -> Any:
    match made:
        case Found(name, size=size) | Model(name, size=size):
            return name, size
    return None


ASKED = {
    "defaults": lambda cls: (cls("a"), cls(name="b"), cls("c", parts=(1,))),
    "equal": lambda cls: (cls("a") == ("a", 1, ()), cls("a") == cls("b"), cls("a") < cls("b")),
    "hash": lambda cls: hash(cls("a", 2)) == hash(("a", 2, ())),
    "repr": lambda cls: repr(cls("a")).partition("(")[2],
    "str": lambda cls: str(cls("a")),
    "fields": lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__, list(typing.get_type_hints(cls))),
    "replace": lambda cls: cls("a")._replace(size=5),
    "make": lambda cls: cls._make(["a", 2, ()]),
    "asdict": lambda cls: cls("a")._asdict(),
    "methods": lambda cls: (cls("a", 4).double, cls.of("b"), cls.__doc__),
    "unpacked": lambda cls: [*cls("a")],
    "matched": lambda cls: matched(cls("a", 7)),
    "pickled": lambda cls: pickle.loads(pickle.dumps(cls("a", 9))).size,
    "type": lambda cls: type(pickle.loads(pickle.dumps(cls("a")))) is cls,
    "no room for more": lambda cls: hasattr(cls("a"), "__dict__"),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
def test_like_a_named_tuple(ask: Any) -> None:
    for _ in range(2 * FEW):
        assert ask(Found) == ask(Model)


def test_without_fields_and_below() -> None:
    for _ in range(2 * FEW):
        assert Nothing() == ()
        assert repr(Below("a")) == "Below(name='a', size=1, parts=())"
        assert type(Below.of("a")) is Below


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), (("a", 1, (), 4), {}), (("a",), {"name": "b"}), (("a",), {"sort": 1})]
)
def test_wrong_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrong: Any = Found
    for _ in range(2 * FEW):
        with pytest.raises(TypeError, match="argument"):
            wrong(*args, **kwargs)


def test_nothing_changes_it() -> None:
    made: Any = Found("a")
    with pytest.raises(AttributeError):
        made.name = "b"
    with pytest.raises(ValueError, match="sort"):
        made._replace(sort=1)
    with pytest.raises(TypeError, match="Expected 3 arguments, got 1"):
        Found._make(["a"])
