"""The Spark types of messages, and programs for the engine that read them.

Absent fields are null, as in Spark's `from_protobuf`, or the default that proto2 gives them; absent repeated fields and
maps are empty. Unsigned numbers get a type that holds them all: bigint for 32 bits, decimal(20,0) for 64.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from klamm.spark.formats.protobuf.files import Enum, Field, Message
from klamm.spark.formats.protobuf.pool import Pool
from klamm.spark.formats.shapes import SchemaError, Shape, list_of, map_of

_SCALARS: Final = {
    "bool": "b",
    "int32": "i",
    "sint32": "i",
    "sfixed32": "i",
    "uint32": "l",
    "fixed32": "l",
    "int64": "l",
    "sint64": "l",
    "sfixed64": "l",
    "uint64": "d:20,0",
    "fixed64": "d:20,0",
    "float": "f",
    "double": "g",
    "string": "u",
    "bytes": "z",
}
_TIMES: Final = {"google.protobuf.Timestamp": ("timestamp", "tsu:UTC"), "google.protobuf.Duration": ("duration", "tDu")}
_NO_KEYS: Final = {"float", "double", "bytes"}


def compile_message(pool: Pool, message: Message) -> tuple[Shape, dict[str, Any]]:
    """The column of a message and the program for its values. Raises SchemaError."""
    shape, kind = _Compiler(pool).message(message)
    if not shape.children:
        raise SchemaError(f"message {message.name} has no fields")
    return shape, {"message": kind[1:], "indexes": pool.indexes(message)}


class _Compiler:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._within: list[Message] = []

    def message(self, message: Message) -> tuple[Shape, list[Any]]:
        """The column, and the kind in the form that the engine expects."""
        if message in self._within:
            raise SchemaError(f"message {message.name} is within itself, and Spark has no type for that")
        self._within.append(message)
        children: list[tuple[str, Shape]] = []
        fields: list[Any] = []
        absent: list[Any] = []
        oneofs: dict[str, int] = {}
        for field in message.fields:
            shape, kind = self._kind(field, message)
            if shape.format == "+s" and not shape.children:
                continue  # Spark has no struct without fields; `from_protobuf` omits them as well
            oneof = None if field.oneof is None else oneofs.setdefault(field.oneof, len(oneofs))
            fields.append([field.number, len(children), field.is_repeated, oneof, kind])
            absent.append(None if field.default is None else self._default(field, message))
            is_list = field.is_repeated and field.map_key is None
            children.append((field.name, list_of(shape) if is_list else shape))
        self._within.pop()
        return Shape("+s", tuple(children)), ["message", fields, absent]

    def _kind(self, field: Field, message: Message) -> tuple[Shape, list[Any]]:
        """Of an item, where the field is repeated; of a map with its column, and the kind of its entries."""
        if field.map_key is None:
            return self._type(field.type, message)
        if field.map_key not in _SCALARS or field.map_key in _NO_KEYS:
            raise SchemaError(f"field '{field.name}' of {message.name} is a map with keys of type {field.map_key}")
        key, value = (self._type(name, message) for name in (field.map_key, field.type))
        if value[0] == Shape("+s"):
            return value
        entries = [[1, 0, False, None, key[1]], [2, 1, False, None, value[1]]]
        return map_of(key[0], value[0]), ["message", entries, [_zero(key[1]), _zero(value[1])]]

    def _type(self, name: str, message: Message) -> tuple[Shape, list[Any]]:
        if name in _SCALARS:
            return Shape(_SCALARS[name]), [name]
        found = self._pool.find(name, message.name)
        if isinstance(found, Enum):
            return Shape("u"), ["enum", found.is_closed, [[number, symbol] for number, symbol in found.symbols]]
        if found.name in _TIMES:
            kind, shape = _TIMES[found.name]
            return Shape(shape), [kind]
        return self.message(found)

    def _default(self, field: Field, message: Message) -> int | str:
        """The default of an absent proto2 field, in wire format."""
        _, kind = self._type(field.type, message)
        try:
            return _on_the_wire(kind, field.default)
        except (ValueError, StopIteration, OverflowError, struct.error, TypeError):
            default = field.default
            raise SchemaError(f"field '{field.name}' of {message.name} has the default {default!r}") from None


def _zero(kind: list[Any]) -> int | str:
    """The key or value of a map entry that omits it."""
    match kind[0]:
        case "enum":
            return int(kind[2][0][0]) & (2**64 - 1)
        case "string" | "bytes" | "message" | "timestamp" | "duration":
            return ""
        case _:
            return 0


def _on_the_wire(kind: list[Any], default: str | bytes | None) -> int | str:
    """Numbers as their bits, bytes as hexadecimal digits."""
    if kind[0] in ("string", "bytes"):
        if not isinstance(default, bytes):
            raise ValueError("no string")
        return default.hex()
    if not isinstance(default, str):
        raise ValueError("a string")
    match kind[0]:
        case "bool":
            return ["false", "true"].index(default)
        case "float":
            return int(struct.unpack("<I", struct.pack("<f", float(default)))[0])
        case "double":
            return int(struct.unpack("<Q", struct.pack("<d", float(default)))[0])
        case "enum":
            return next(int(number) for number, name in kind[2] if name == default) & (2**64 - 1)
        case "sint32" | "sint64":
            number = int(default, 0)
            return (number << 1) ^ (number >> 63)
        case "sfixed32" | "fixed32":
            return int(default, 0) & (2**32 - 1)
        case _:
            return int(default, 0) & (2**64 - 1)
