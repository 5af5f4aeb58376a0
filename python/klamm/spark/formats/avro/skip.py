"""Skips written values that are not read."""

from __future__ import annotations

from typing import Any, Final

from klamm.spark.formats.avro.schema import Array, Enum, Fixed, Map, Primitive, Record, Schema, Union

_PRIMITIVES: Final[dict[str, list[Any]]] = {
    "null": ["bytes", 0],
    "boolean": ["bytes", 1],
    "int": ["varint"],
    "long": ["varint"],
    "float": ["bytes", 4],
    "double": ["bytes", 8],
    "bytes": ["counted"],
    "string": ["counted"],
}


class Skips:
    """The skips of a program. Only a recursive record is referred to by its number in `named`."""

    def __init__(self) -> None:
        self.named: list[list[Any]] = []
        self._numbers: dict[Record, int] = {}
        self._within: list[Record] = []

    def skip(self, schema: Schema) -> list[Any]:
        """The instruction that skips a value of this schema."""
        match schema:
            case Primitive(kind):
                return _PRIMITIVES[kind]
            case Fixed(size=size):
                return ["bytes", size]
            case Enum():
                return ["varint"]
            case Array(items):
                return ["array", self.skip(items)]
            case Map(values):
                return ["map", self.skip(values)]
            case Union(branches):
                return ["union", [self.skip(branch) for branch in branches]]
            case Record():
                return self._skip_record(schema)

    def _skip_record(self, record: Record) -> list[Any]:
        if record in self._within and record not in self._numbers:
            self._numbers[record] = len(self.named)
            self.named.append([])
        if record in self._numbers:
            return ["named", self._numbers[record]]
        self._within.append(record)
        fields = ["record", [self.skip(field.schema) for field in record.fields]]
        self._within.pop()
        if record not in self._numbers:
            return fields
        self.named[self._numbers[record]] = fields
        return ["named", self._numbers[record]]
