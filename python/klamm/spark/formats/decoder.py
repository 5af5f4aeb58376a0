"""In a task: decodes values of any schema to the column of the reader's schema, with the engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from klamm._engine.spark import ValueDecoder
from klamm.spark.formats.planning import is_own, read_as
from klamm.spark.formats.reading import refusal
from klamm.spark.formats.registry import Registry, UnknownSchemaError
from klamm.spark.formats.shapes import SchemaError
from klamm.spark.reading.decoding import Decoded

if TYPE_CHECKING:
    from klamm.spark.formats.reading import Reading
    from klamm.spark.options.format_options import FormatOptions


class SchemaDecoder:
    """Decodes batches of values, and requests each new schema from the registry."""

    def __init__(self, options: FormatOptions) -> None:
        """`options`: pinned. Raises PlanningError."""
        reading = read_as(options)
        assert reading is not None, "the options were pinned"
        self._reading: Reading = reading
        self._is_framed = options.framing.value == "confluent"
        self._native = ValueDecoder(json.dumps(reading.shape.to_json()), framed=self._is_framed)
        self._registry: Registry | None = None
        if is_own(options):
            self._native.learn(None, reading.program(None))
        elif options.registry is not None:
            self._registry = Registry(options.registry)

    def __call__(self, raw: pa.Array) -> Decoded:
        """The values, with null for null and bad ones. Raises RegistryError if a schema cannot be requested."""
        for schema_id in self._native.unknown(raw):
            self._native.learn(schema_id, self._program(schema_id))
        found = self._native.decode(raw)
        return Decoded(pa.array(found), found.bad, found.why)

    def _program(self, schema_id: int) -> str:
        """A schema that does not exist, or cannot be read as the reader's, makes only its own values bad."""
        assert self._registry is not None, "without a registry all values have one program"
        try:
            return self._reading.program(self._registry.by_id(schema_id))
        except UnknownSchemaError as error:
            return refusal(str(error))
        except SchemaError as error:
            return refusal(f"schema {schema_id}: {error}")
