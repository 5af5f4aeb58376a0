"""`typing.NamedTuple` for those classes that a start defines, of which most have an object or two then.

`typing` takes a quarter of a millisecond for each class, and compiles every annotation that is a string, the first of
them for two milliseconds. Here the class statement only names the fields, and `__new__` is compiled for a class that
has more than a few objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.arguments import FEW, values_of

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter

    class _Fields(tuple):
        """What all of them have. The names are those of `collections.namedtuple`."""

        __slots__ = ()

        def __new__(cls, *args, **kwargs):
            made = _made[cls] = _made.get(cls, 0) + 1
            if made > FEW:
                _compile_new(next(base for base in cls.__mro__ if "_fields" in base.__dict__))
            return tuple.__new__(cls, values_of(cls, cls._fields, cls._field_defaults, args, kwargs))

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **values):
            made = self._make(map(values.pop, self._fields, self))
            if values:
                raise ValueError(f"Got unexpected field names: {list(values)!r}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({fields})"

        def __getnewargs__(self):
            return tuple(self)

    class _Maker(type):
        """Makes a class of `_Fields` out of a class statement, with a descriptor for each annotation."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            names = tuple(body.get("__annotations__", ()))
            facts = {"__slots__": (), "__match_args__": names, "_fields": names}
            facts["_field_defaults"] = {field: body[field] for field in names if field in body}
            getters = {field: _tuplegetter(place, "") for place, field in enumerate(names)}
            return type(name, (_Fields,), body | facts | getters)

    class NamedTuple(metaclass=_Maker):
        """The base of a class statement, and of no class."""

    _made: dict[type, int] = {}

    def _compile_new(cls):
        parameters = ", ".join(("_cls", *cls._fields))
        values = "".join(f"{name}, " for name in cls._fields)
        # As `collections` does it; the names are a class's own.
        new = eval(f"lambda {parameters}: _make(_cls, ({values}))", {"_make": tuple.__new__})
        new.__name__, new.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
        new.__defaults__ = tuple(cls._field_defaults.values())
        cls.__new__ = staticmethod(new)
