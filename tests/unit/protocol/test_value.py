"""A value class behaves like `@dataclass(frozen=True, slots=True)`, whichever attribute is used first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from klamm.protocol.value import Value, field


def fresh(*, with_factory: bool = True) -> tuple[Any, Any]:
    """The same class twice: as an unused value class, and as a dataclass."""

    no_parts: Any = field(default_factory=list) if with_factory else ()
    no_model_parts: Any = dataclasses.field(default_factory=list) if with_factory else ()

    class Found(Value):
        KEY: ClassVar[int] = 7
        name: str
        size: int = 1
        parts: Sequence[int] = no_parts

        def double(self) -> int:
            return 2 * self.size

    @dataclasses.dataclass(frozen=True, slots=True)
    class Model:
        KEY: ClassVar[int] = 7
        name: str
        size: int = 1
        parts: Sequence[int] = no_model_parts

        def double(self) -> int:
            return 2 * self.size

    Model.__qualname__ = Found.__qualname__
    return Found, Model


ASKED = {
    "repr": lambda cls: repr(cls("a", 2)),
    "defaults": lambda cls: (cls("a").size, cls("a").parts, cls(name="b").name),
    "equal": lambda cls: (cls("a") == cls("a"), cls("a") == cls("b"), cls("a") == ("a", 1, [])),
    "hash": lambda cls: hash(cls("a", 2, ())) == hash(("a", 2, ())),
    "fields": lambda cls: [(each.name, each.type, each.default) for each in dataclasses.fields(cls)],
    "fields of an object": lambda cls: [each.name for each in dataclasses.fields(object.__new__(cls))],
    "is a dataclass": dataclasses.is_dataclass,
    "replace": lambda cls: repr(dataclasses.replace(cls("a"), size=5)),
    "asdict": lambda cls: dataclasses.asdict(cls("a")),
    "match": lambda cls: cls.__match_args__,
    "methods": lambda cls: (cls("a", 4).double(), cls.KEY),
    "no room for more": lambda cls: hasattr(cls("a"), "__dict__"),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
@pytest.mark.parametrize("with_factory", [True, False])
def test_like_a_dataclass(ask: Any, with_factory: bool) -> None:
    value, model = fresh(with_factory=with_factory)
    for _ in range(2):
        assert ask(value) == ask(model)


@pytest.mark.parametrize("arguments", [(), ("a", 1, [], 4)])
@pytest.mark.parametrize("with_factory", [True, False])
def test_wrong_arguments(arguments: tuple[Any, ...], with_factory: bool) -> None:
    value, _ = fresh(with_factory=with_factory)
    for _ in range(2):
        with pytest.raises(TypeError, match="argument"):
            value(*arguments)


def test_nothing_changes_it() -> None:
    value, _ = fresh()
    made = value("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.other = 1
    assert made == value("a")


def test_the_base_itself_has_no_fields() -> None:
    assert not dataclasses.is_dataclass(Value)


def test_plain_defaults_are_those_of_the_fields() -> None:
    found, model = fresh()
    assert found.plain_defaults(dataclasses.MISSING) == {each.name: each.default for each in dataclasses.fields(model)}
