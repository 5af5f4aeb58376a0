"""The type of a decoded column: its Arrow type for the engine, and its Spark type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_DDL: Final = {
    "n": "void",
    "b": "boolean",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "g": "double",
    "z": "binary",
    "u": "string",
    "tdD": "date",
    "tsu:UTC": "timestamp",
    "tsu:": "timestamp_ntz",
    "tDu": "interval day to second",
}


class SchemaError(ValueError):
    """A schema is invalid, or not supported by Spark, or values of it cannot be read as another."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A type: `format` as in the Arrow C data interface, with the names and types of its children."""

    format: str
    children: tuple[tuple[str, Shape], ...] = ()

    def to_json(self) -> list[Any]:
        """For the engine."""
        return [self.format, [[name, child.to_json()] for name, child in self.children]]

    def ddl(self) -> str:
        """For Spark."""
        kinds = [child.ddl() for _, child in self.children]
        match self.format:
            case "+l":
                return f"array<{kinds[0]}>"
            case "+m":
                (_, key), (_, value) = self.children[0][1].children
                return f"map<{key.ddl()}, {value.ddl()}>"
            case "+s":
                fields = zip(self.children, kinds, strict=True)
                return f"struct<{', '.join(f'`{name}`: {kind}' for (name, _), kind in fields)}>"
            case text if text.startswith("d:"):
                return f"decimal({text.removeprefix('d:')})"
            case text:
                return _DDL[text]


def list_of(item: Shape) -> Shape:
    """Lists of items."""
    return Shape("+l", (("element", item),))


def map_of(key: Shape, value: Shape) -> Shape:
    """Maps of keys to values."""
    return Shape("+m", (("entries", Shape("+s", (("key", key), ("value", value)))),))
