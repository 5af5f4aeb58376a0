"""Defaults of fields in Avro's binary encoding, so that the engine reads them like other values."""

from __future__ import annotations

import struct
from typing import Any

from klamm.spark.formats.avro.schema import (
    NO_DEFAULT,
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    describe,
)
from klamm.spark.formats.shapes import SchemaError


def encode(schema: Schema, value: Any, path: str) -> bytes:
    """Encode a JSON default (bytes are strings of the code points 0 to 255). Raises SchemaError."""
    match schema, value:
        case Union(branches), _:
            return _encode_as_union(branches, value, path)
        case Primitive("null"), None:
            return b""
        case Primitive("boolean"), bool():
            return bytes([value])
        case Primitive("int" | "long" as kind), int() if not isinstance(value, bool):
            bits = 31 if kind == "int" else 63
            if -(2**bits) <= value < 2**bits:
                return zigzag(value)
        case Primitive("float" | "double" as kind), int() | float() | str() if not isinstance(value, bool):
            return _encode_float(kind, value, path)
        case Primitive("string"), str():
            return _counted(value.encode())
        case Primitive("bytes"), str() if _is_bytes(value):
            return _counted(value.encode("latin-1"))
        case Fixed(size=size), str() if _is_bytes(value) and len(value) == size:
            return value.encode("latin-1")
        case Enum(symbols=symbols), str() if value in symbols:
            return zigzag(symbols.index(value))
        case Array(items), list():
            return _blocks([encode(items, item, f"{path}[]") for item in value])
        case Map(values), dict():
            return _blocks([_counted(key.encode()) + encode(values, one, path) for key, one in value.items()])
        case Record(fields=fields), dict():
            field_values = {field.name: value.get(field.name, field.default) for field in fields}
            return b"".join(encode(field.schema, field_values[field.name], f"{path}.{field.name}") for field in fields)
        case _:
            pass
    raise _wrong(schema, value, path)


def _wrong(schema: Schema, value: object, path: str) -> SchemaError:
    text = "missing" if value is NO_DEFAULT else repr(value)
    return SchemaError(f"the default of {path} is {text}, which is no {describe(schema)}")


def _encode_as_union(branches: tuple[Schema, ...], value: object, path: str) -> bytes:
    """The first branch that fits: before Avro 1.12 that had to be the first one of the union."""
    for number, branch in enumerate(branches):
        try:
            return zigzag(number) + encode(branch, value, path)
        except SchemaError:
            continue
    raise _wrong(Union(branches), value, path)


def _encode_float(kind: str, value: float | str, path: str) -> bytes:
    try:
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    except (ValueError, OverflowError):
        raise _wrong(Primitive(kind), value, path) from None


def _is_bytes(value: str) -> bool:
    return all(ord(letter) < 256 for letter in value)


def zigzag(number: int) -> bytes:
    """A long."""
    left = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _counted(value: bytes) -> bytes:
    return zigzag(len(value)) + value


def _blocks(items: list[bytes]) -> bytes:
    return (zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"
