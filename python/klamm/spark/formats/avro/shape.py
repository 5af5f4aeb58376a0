"""The Spark type of an Avro schema, as in Spark's own `from_avro`."""

from __future__ import annotations

from typing import Final

from klamm.spark.formats.avro.schema import Array, Enum, Fixed, Logical, Map, Primitive, Record, Schema, Union
from klamm.spark.formats.shapes import SchemaError, Shape, list_of, map_of

DECIMAL_DIGITS_MAX: Final = 38
_PRIMITIVES: Final = {
    "null": "n",
    "boolean": "b",
    "int": "i",
    "long": "l",
    "float": "f",
    "double": "g",
    "bytes": "z",
    "string": "u",
}


def shape_of(schema: Schema, within: tuple[Record, ...] = ()) -> Shape:
    """The column for values of this schema. Raises SchemaError."""
    match schema:
        case Primitive(kind, logical):
            return Shape(_logical_format(logical) or _PRIMITIVES[kind])
        case Fixed(logical=logical):
            return Shape(_logical_format(logical) or "z")
        case Enum():
            return Shape("u")
        case Array(items):
            return list_of(shape_of(items, within))
        case Map(values):
            return map_of(Shape("u"), shape_of(values, within))
        case Union():
            return _shape_of_union(schema, within)
        case Record():
            return _shape_of_record(schema, within)


def members(union: Union) -> tuple[Schema, ...]:
    """The branches of a union other than null; numbers are merged into one type that holds them all."""
    found = tuple(branch for branch in union.branches if branch != Primitive("null"))
    kinds = {branch.kind for branch in found if isinstance(branch, Primitive) and branch.logical is None}
    for pair, wide in (({"int", "long"}, "long"), ({"float", "double"}, "double")):
        if len(found) == 2 and kinds == pair:
            return (Primitive(wide),)
    return found


def _shape_of_union(union: Union, within: tuple[Record, ...]) -> Shape:
    found = members(union)
    if not found:
        return Shape("n")
    if len(found) == 1:
        return shape_of(found[0], within)
    return Shape("+s", tuple((f"member{at}", shape_of(member, within)) for at, member in enumerate(found)))


def _shape_of_record(record: Record, within: tuple[Record, ...]) -> Shape:
    if record in within:
        raise SchemaError(f"record {record.name} is within itself, and Spark has no type for that")
    deeper = (*within, record)
    return Shape("+s", tuple((field.name, shape_of(field.schema, deeper)) for field in record.fields))


def _logical_format(logical: Logical | None) -> str | None:
    if logical is None:
        return None
    match logical.name:
        case "decimal" if logical.precision > DECIMAL_DIGITS_MAX:
            raise SchemaError(
                f"a decimal has {logical.precision} digits, and Spark's have {DECIMAL_DIGITS_MAX} at most"
            )
        case "decimal":
            return f"d:{logical.precision},{logical.scale}"
        case "date":
            return "tdD"
        case "uuid":
            return "u"
        case name if name.startswith("timestamp-"):
            return "tsu:UTC"
        case name if name.startswith("local-timestamp-"):
            return "tsu:"
        case _:
            return None  # times of day are numbers, as in `from_avro`
