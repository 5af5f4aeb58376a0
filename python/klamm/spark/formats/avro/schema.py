"""Parses Avro schemas from JSON (Avro 1.12's specification)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.spark.formats.shapes import SchemaError

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NO_DEFAULT: Final = object()


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type. As the specification requires, an invalid one is ignored."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type."""

    kind: str
    logical: Logical | None = None


@dataclass(eq=False, slots=True)
class Named:
    """A named type, with its namespace and aliases."""

    name: str
    aliases: tuple[str, ...]


@dataclass(eq=False, slots=True)
class Fixed(Named):
    """A fixed number of bytes."""

    size: int
    logical: Logical | None


@dataclass(eq=False, slots=True)
class Enum(Named):
    """One of the symbols. The default, if any, replaces symbols that the reader does not know."""

    symbols: tuple[str, ...]
    default: str | None


@dataclass(eq=False, slots=True)
class Field:
    """A field of a record."""

    name: str
    schema: Schema
    aliases: tuple[str, ...]
    default: object


@dataclass(eq=False, slots=True)
class Record(Named):
    """A record; it may contain itself."""

    fields: list[Field] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Array:
    """Items of one type."""

    items: Schema


@dataclass(eq=False, slots=True)
class Map:
    """Strings to values of one type."""

    values: Schema


@dataclass(eq=False, slots=True)
class Union:
    """One of several types."""

    branches: tuple[Schema, ...]


Schema = Primitive | Fixed | Enum | Record | Array | Map | Union


def describe(schema: Schema) -> str:
    """The type as a word, for messages."""
    match schema:
        case Primitive(kind, logical):
            return kind if logical is None else f"{kind} ({logical.name})"
        case Named(name=name):
            return f"{type(schema).__name__.lower()} {name}"
        case Union(branches):
            return f"union of {', '.join(map(describe, branches))}"
        case _:
            return type(schema).__name__.lower()


def parse(text: str, references: Iterable[str] = ()) -> Schema:
    """The schema of `text`. It may use the names of `references`, each listed after those that it uses itself."""
    parser = _Parser()
    try:
        for one in references:
            parser.schema(_loads(one), "")
        return parser.schema(_loads(text), "")
    except RecursionError:
        raise SchemaError("the Avro schema is nested too deep") from None


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SchemaError(f"the Avro schema is no JSON: {error}") from None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Schema] = {}

    def schema(self, declared: object, namespace: str) -> Schema:
        match declared:
            case str(name):
                return self._by_name(name, namespace)
            case list(branches):
                return self._union([self.schema(branch, namespace) for branch in branches])
            case {"type": (dict() | list()) as inner}:
                return self.schema(inner, namespace)
            case dict() if isinstance(declared.get("type"), str):
                return self._typed(declared["type"], declared, namespace)
            case _:
                raise SchemaError(f"the Avro schema has no type in {json.dumps(declared)[:200]}")

    def _by_name(self, name: str, namespace: str) -> Schema:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise SchemaError(f"the Avro schema has the type '{name}', which nothing defines")
        return found

    def _union(self, branches: list[Schema]) -> Schema:
        if any(isinstance(branch, Union) for branch in branches):
            raise SchemaError("the Avro schema has a union right in a union")
        if not branches:
            raise SchemaError("the Avro schema has a union of nothing")
        return Union(tuple(branches))

    def _typed(self, kind: str, declared: dict[str, Any], namespace: str) -> Schema:
        match kind:
            case "array":
                return Array(self.schema(declared.get("items"), namespace))
            case "map":
                return Map(self.schema(declared.get("values"), namespace))
            case "fixed":
                return self._define(self._fixed(declared, namespace))
            case "enum":
                return self._define(self._enum(declared, namespace))
            case "record" | "error":
                return self._record(declared, namespace)
            case _ if kind in PRIMITIVES:
                return Primitive(kind, _logical(declared, kind, None))
            case _:
                return self._by_name(kind, namespace)

    def _names(self, declared: dict[str, Any], namespace: str) -> tuple[str, tuple[str, ...]]:
        name = declared.get("name")
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise SchemaError(f"the Avro schema has a {declared['type']} whose name is {name!r}")
        if "." not in name and (space := declared.get("namespace", namespace)):
            name = f"{space}.{name}"
        space = name.rpartition(".")[0]
        aliases = [alias for alias in declared.get("aliases") or () if isinstance(alias, str)]
        return name, tuple(alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases)

    def _define(self, schema: Fixed | Enum | Record) -> Schema:
        if schema.name in self._named:
            raise SchemaError(f"the Avro schema defines '{schema.name}' twice")
        self._named[schema.name] = schema
        return schema

    def _fixed(self, declared: dict[str, Any], namespace: str) -> Fixed:
        size = declared.get("size")
        name, aliases = self._names(declared, namespace)
        if not isinstance(size, int) or size < 0:
            raise SchemaError(f"the Avro schema has fixed {name} of size {size!r}")
        return Fixed(name, aliases, size, _logical(declared, "fixed", size))

    def _enum(self, declared: dict[str, Any], namespace: str) -> Enum:
        symbols = declared.get("symbols")
        name, aliases = self._names(declared, namespace)
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise SchemaError(f"the Avro schema has enum {name} without a list of symbols")
        default = declared.get("default")
        return Enum(name, aliases, tuple(symbols), default if default in symbols else None)

    def _record(self, declared: dict[str, Any], namespace: str) -> Schema:
        record = Record(*self._names(declared, namespace))
        self._define(record)
        fields = declared.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f"the Avro schema has record {record.name} without a list of fields")
        space = record.name.rpartition(".")[0]
        for one in fields:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str) or "type" not in one:
                raise SchemaError(f"the Avro schema has record {record.name} with the field {json.dumps(one)[:200]}")
            aliases = tuple(alias for alias in one.get("aliases") or () if isinstance(alias, str))
            default = one.get("default", NO_DEFAULT)
            record.fields.append(Field(one["name"], self.schema(one["type"], space), aliases, default))
        names = [field.name for field in record.fields]
        if len(set(names)) != len(names):
            raise SchemaError(f"the Avro schema has record {record.name} with a field twice, of {', '.join(names)}")
        return record


_LOGICAL_OF: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}


def _logical(declared: dict[str, Any], kind: str, size: int | None) -> Logical | None:
    match declared.get("logicalType"):
        case "decimal" if kind in ("bytes", "fixed"):
            return _decimal(declared.get("precision"), declared.get("scale", 0), size)
        case "uuid" if kind == "string" or size == 16:
            return Logical("uuid")
        case str(name) if _LOGICAL_OF.get(name) == kind:
            return Logical(name)
        case _:
            return None


def _decimal(precision: object, scale: object, size: int | None) -> Logical | None:
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        return None
    if size is not None and 10**precision > 2 ** (8 * size - 1):
        return None
    return Logical("decimal", precision, scale)
