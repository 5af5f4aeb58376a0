"""Compiles programs for the engine that read values of one schema as another (Avro 1.12, "Schema Resolution").

Records are matched by their fields regardless of their names, as in Java's reader; enums and fixed by their names
without namespace, or an alias.
"""

from __future__ import annotations

from typing import Any, Final

from klamm.spark.formats.avro.binary import encode
from klamm.spark.formats.avro.schema import (
    NO_DEFAULT,
    Array,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
    describe,
)
from klamm.spark.formats.avro.shape import members
from klamm.spark.formats.avro.skip import Skips
from klamm.spark.formats.shapes import SchemaError

_PROMOTED: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_READS: Final = {"bytes": "counted", "string": "counted"}
_UNITS: Final[dict[str, list[Any]]] = {"millis": ["scaled", 1000, 1], "micros": ["long"], "nanos": ["scaled", 1, 1000]}


class MismatchError(SchemaError):
    """The written schema cannot be read as the wanted one."""

    def __init__(self, path: str, written: Schema, wanted: Schema, why: str = "") -> None:
        message = f"{path or 'it'} was written as {describe(written)} and cannot be read as {describe(wanted)}"
        super().__init__(f"{message}: {why}" if why else message)


def program(written: Schema, wanted: Schema) -> dict[str, Any]:
    """The program for the engine. Raises SchemaError if no value can be read."""
    resolver = _Resolver()
    root = resolver.read(written, wanted, "")
    return {"root": root, "named": resolver.skips.named}


class _Resolver:
    def __init__(self) -> None:
        self.skips = Skips()

    def read(self, written: Schema, wanted: Schema, path: str) -> list[Any]:
        match written, wanted:
            case Union(branches), _:
                return ["union", [self._branch(branch, wanted, path) for branch in branches]]
            case _, Union():
                return self._read_as_union(written, wanted, path)
            case Record(), Record():
                return self._read_record(written, wanted, path)
            case Array(items), Array(wanted_items):
                return ["array", self.read(items, wanted_items, f"{path}[]")]
            case Map(values), Map(wanted_values):
                return ["map", self.read(values, wanted_values, f"{path}{{}}")]
            case Enum(), Enum() if _has_name_of(written, wanted):
                known = [symbol if symbol in wanted.symbols else wanted.default for symbol in written.symbols]
                return ["enum", known]
            case Fixed(size=size), Fixed() if _has_name_of(written, wanted) and size == wanted.size:
                return _read_fixed(written, wanted, path)
            case Primitive(kind), Primitive(wanted_kind) if kind == wanted_kind or wanted_kind in _PROMOTED.get(
                kind, ()
            ):
                return _read_primitive(written, wanted, path)
            case _:
                raise MismatchError(path, written, wanted)

    def _branch(self, written: Schema, wanted: Schema, path: str) -> list[Any]:
        """A branch that cannot be read makes only its own values bad."""
        try:
            return self.read(written, wanted, path)
        except MismatchError as error:
            return ["refuse", str(error)]

    def _read_as_union(self, written: Schema, wanted: Union, path: str) -> list[Any]:
        if written == Primitive("null") and written in wanted.branches:
            return ["null"]
        choices = members(wanted)
        if len(choices) == 1:
            return self.read(written, choices[0], path)
        # Prefer the same type to one that it can be promoted to.
        ranked = sorted(enumerate(choices), key=lambda choice: not _is_same(written, choice[1]))
        for place, choice in ranked:
            try:
                return ["member", place, self.read(written, choice, path)]
            except MismatchError:
                continue
        raise MismatchError(path, written, wanted)

    def _read_record(self, written: Record, wanted: Record, path: str) -> list[Any]:
        sources = _sources(written, wanted)
        steps: list[Any] = []
        for field in written.fields:
            place = sources.get(field.name)
            if place is None:
                steps.append(self.skips.skip(field.schema))
            else:
                target = wanted.fields[place]
                steps.append([place, self.read(field.schema, target.schema, _join(path, target.name))])
        missing = [place for place in range(len(wanted.fields)) if place not in sources.values()]
        defaults = [[place, *self._default(wanted.fields[place], written, wanted, path)] for place in missing]
        return ["record", steps, defaults]

    def _default(self, field: Field, written: Record, wanted: Record, path: str) -> list[Any]:
        if field.default is NO_DEFAULT:
            why = f"field '{field.name}' was not written and has no default"
            raise MismatchError(path, written, wanted, why)
        value = encode(field.schema, field.default, _join(path, field.name))
        return [value.hex(), self.read(field.schema, field.schema, _join(path, field.name))]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _sources(written: Record, wanted: Record) -> dict[str, int]:
    """Maps wanted fields to written fields, by name or alias."""
    names = {field.name for field in written.fields}
    sources: dict[str, int] = {}
    for place, field in enumerate(wanted.fields):
        source = next((name for name in (field.name, *field.aliases) if name in names), None)
        if source is not None and source not in sources:
            sources[source] = place
    return sources


def _has_name_of(written: Named, wanted: Named) -> bool:
    names = {name.rpartition(".")[2] for name in (wanted.name, *wanted.aliases)}
    return written.name.rpartition(".")[2] in names


def _is_same(written: Schema, wanted: Schema) -> bool:
    match written, wanted:
        case Named(), Named():
            return type(written) is type(wanted) and _has_name_of(written, wanted)
        case Primitive(kind), Primitive(wanted_kind):
            return kind == wanted_kind
        case _:
            return type(written) is type(wanted)


def _read_primitive(written: Primitive, wanted: Primitive, path: str) -> list[Any]:
    logical = wanted.logical
    if logical is not None and logical.name == "decimal":
        return _read_decimal(written, wanted, logical, None, path)
    if logical is not None and "timestamp-" in logical.name:
        source = written.logical if written.logical is not None and "timestamp-" in written.logical.name else logical
        return _UNITS[source.name.rpartition("-")[2]]
    return [_READS.get(written.kind, written.kind)]


def _read_fixed(written: Fixed, wanted: Fixed, path: str) -> list[Any]:
    logical = wanted.logical
    if logical is None:
        return ["fixed", written.size]
    if logical.name == "uuid":
        return ["uuid"]
    return _read_decimal(written, wanted, logical, written.size, path)


def _read_decimal(
    written: Primitive | Fixed, wanted: Primitive | Fixed, logical: Logical, size: int | None, path: str
) -> list[Any]:
    source = written.logical
    if isinstance(written, Primitive) and written.kind != "bytes":
        raise MismatchError(path, written, wanted)
    if source is not None and source.scale != logical.scale:
        raise MismatchError(
            path, written, wanted, f"{source.scale} digits after the decimal point, not {logical.scale}"
        )
    return ["decimal", size, logical.precision]
