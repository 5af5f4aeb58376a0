"""The compiled reader's schema: its column, and a program for each written schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from klamm.spark.formats.avro.resolve import program as resolve
from klamm.spark.formats.avro.schema import Schema, parse
from klamm.spark.formats.avro.shape import shape_of
from klamm.spark.formats.protobuf.pool import Pool
from klamm.spark.formats.protobuf.program import compile_message
from klamm.spark.formats.schema_text import SchemaText
from klamm.spark.formats.shapes import SchemaError, Shape


class Reading(Protocol):
    """A compiled reader's schema."""

    @property
    def shape(self) -> Shape:
        """The type of the column."""

    def program(self, written: SchemaText | None) -> str:
        """The program for values of this schema; None means the reader's own. Raises SchemaError."""


def reading_of(wanted: SchemaText, message: str | None) -> Reading:
    """Compile a schema by its kind. Raises SchemaError."""
    return _AvroReading(wanted) if wanted.kind == "AVRO" else _ProtobufReading(wanted, message)


def refusal(why: str) -> str:
    """A program that refuses all values."""
    return json.dumps({"refused": why})


@dataclass(frozen=True, slots=True, init=False)
class _AvroReading:
    shape: Shape
    _schema: Schema

    def __init__(self, wanted: SchemaText) -> None:
        schema = _parse_avro(wanted)
        object.__setattr__(self, "_schema", schema)
        object.__setattr__(self, "shape", shape_of(schema))

    def program(self, written: SchemaText | None) -> str:
        schema = self._schema if written is None else _parse_avro(_of_kind(written, "AVRO"))
        try:
            return json.dumps({"avro": resolve(schema, self._schema)})
        except RecursionError:
            raise SchemaError("the Avro schema is nested too deep") from None


def _parse_avro(schema: SchemaText) -> Schema:
    return parse(schema.text, [text for _, text in schema.references])


@dataclass(frozen=True, slots=True, init=False)
class _ProtobufReading:
    """Fields are identified by number, so the written schema only serves to find the message that a header names."""

    shape: Shape
    _name: str
    _program: dict[str, Any]

    def __init__(self, wanted: SchemaText, message: str | None) -> None:
        pool = _parse_protobuf(wanted)
        found = pool.message(message)
        shape, program = compile_message(pool, found)
        object.__setattr__(self, "_name", found.name)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "_program", program)

    def program(self, written: SchemaText | None) -> str:
        program = self._program
        if written is not None:
            pool = _parse_protobuf(_of_kind(written, "PROTOBUF"))
            program = program | {"indexes": pool.indexes(pool.message(self._name))}
        return json.dumps({"protobuf": program})


def _parse_protobuf(schema: SchemaText) -> Pool:
    try:
        return Pool(schema.text, dict(schema.references))
    except RecursionError:
        raise SchemaError("the Protobuf schema is nested too deep") from None


def _of_kind(schema: SchemaText, kind: str) -> SchemaText:
    if schema.kind != kind:
        raise SchemaError(f"{schema.origin} is of the kind {schema.kind}")
    return schema
