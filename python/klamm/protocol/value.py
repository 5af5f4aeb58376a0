"""A value: behaves like a class with `@dataclass(frozen=True, slots=True)`, but is set up when it is first used.

The decorator takes a third of a millisecond per class, klamm has hundreds of them, and a starting node uses a few
(docs/decisions/0038). So the class statement only reserves the slots, `__init__` is compiled once there are more than a
few objects, and the first use of the fields makes `dataclasses` describe them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, dataclass_transform

if TYPE_CHECKING:
    import dataclasses

FEW: Final = 20
"""Compiling `__init__` takes longer than creating this many objects without it."""


class _Factory:
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Any]) -> Any:
    """A field whose default is created for each object: `dataclasses.field`, without `dataclasses`."""
    return _Factory(default_factory)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _Deferred(type):
    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _Deferred:
        annotations = body.get("__annotations__", {})
        names = tuple(name for name, annotation in annotations.items() if "ClassVar" not in str(annotation))
        defaults = {name: body.pop(name) for name in names if name in body}
        body |= {"__slots__": names, "__match_args__": names, "_defaults": defaults}
        return super().__new__(cls, name, bases, body)


class _FieldsWhenAsked:
    """`dataclasses.fields`, `replace` and `is_dataclass` first read this attribute, which completes the class."""

    def __get__(self, instance: object, owner: type) -> Any:
        if owner is Value:
            raise AttributeError("__dataclass_fields__")
        _complete(owner)
        return owner.__dict__["__dataclass_fields__"]


class Slotted:
    """Compared, hashed and shown field by field, a field a slot."""

    if TYPE_CHECKING:
        __slots__: tuple[str, ...] = ()
    else:
        __slots__ = ()  # without the annotation, which would count as a field's

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return other is self or all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({fields})"


class Value(Slotted, metaclass=_Deferred):
    """The base of values. Fields and defaults are declared like those of a dataclass; no value inherits one."""

    if TYPE_CHECKING:
        _defaults: ClassVar[dict[str, Any]]
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    else:
        __dataclass_fields__ = _FieldsWhenAsked()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        names, count = cls.__slots__, _counts.get(cls, 0) + 1
        values = {**cls._defaults, **dict(zip(names, args, strict=False)), **kwargs}
        is_valid = len(args) <= len(names) and values.keys() == set(names) and not kwargs.keys() & names[: len(args)]
        if count > FEW or not is_valid:
            _compile_init(cls)
            self.__init__(*args, **kwargs)  # type: ignore[misc]
            return
        _counts[cls] = count
        for name, value in values.items():
            object.__setattr__(self, name, value.make() if type(value) is _Factory else value)

    @classmethod
    def plain_defaults(cls, missing: object) -> dict[str, object]:
        """The fields with their defaults; `missing` if there is none, or one that is created for each object."""
        plain = {name: value for name, value in cls._defaults.items() if type(value) is not _Factory}
        return {name: plain.get(name, missing) for name in cls.__slots__}

    def __setattr__(self, name: str, value: object) -> None:
        import dataclasses

        raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")

    def __delattr__(self, name: str) -> None:
        import dataclasses

        raise dataclasses.FrozenInstanceError(f"cannot delete field '{name}'")


_counts: Final[dict[type, int]] = {}
"""How many objects of a class exist or existed, while it has no compiled `__init__`."""


def _compile_init(cls: Any) -> None:
    """Give the class its `__init__`, which takes a tenth of the time that `dataclasses` needs for all it does."""
    parameters, body = list[str](), ""
    scope: dict[str, Any] = {}
    for name in cls.__slots__:
        value, default = name, cls._defaults.get(name)
        if isinstance(default, _Factory):
            scope[f"_f_{name}"] = default.make
            value = f"_f_{name}() if {name} is _f_{name} else {name}"
            parameters.append(f"{name}=_f_{name}")
        elif type(default).__module__ == "dataclasses":
            raise TypeError(f"{cls.__qualname__}.{name}: a value's field is described by {__name__}.field")
        elif name in cls._defaults:
            scope[f"_d_{name}"] = default
            parameters.append(f"{name}=_d_{name}")
        else:
            parameters.append(name)
        # The slot's own setter: `object.__setattr__` would look it up each time.
        scope[f"_s_{name}"] = cls.__dict__[name].__set__
        body += f"\n  _s_{name}(self, {value})"
    # As `dataclasses` does it; the names are a class's own.
    exec(f"def __init__({', '.join(['self', *parameters])}):{body or ' pass'}", scope)
    scope["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = scope["__init__"]


def _complete(cls: Any) -> None:
    """Give the class what `dataclasses` writes for one of the same fields."""
    import dataclasses

    # With its docstring: otherwise `dataclasses` creates one from the signature, which is slow.
    names = ("__module__", "__qualname__", "__annotations__", "__doc__")
    body = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    for name, default in cls._defaults.items():
        is_made = isinstance(default, _Factory)
        body[name] = dataclasses.field(default_factory=default.make) if is_made else default
    plain: type = type(cls.__name__, (), body)
    model: Any = dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)(plain)
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        setattr(cls, name, model.__dict__[name])
