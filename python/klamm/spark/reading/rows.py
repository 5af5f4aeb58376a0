"""Converts fetched columns to the rows of a query: Spark's names and types, decoded keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.options.format_options import Format, FormatOptions, OnBad
from klamm.spark.options.options import SourceOptions

if TYPE_CHECKING:
    from klamm.spark.reading.decoding import Decoded

OFFSET = "offset"


class CorruptValueError(RuntimeError):
    """A key or value that cannot be decoded in its format."""


class Rows:
    """Converts fetched columns to Spark's rows."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        """`schema`: the columns of the query. Raises PlanningError."""
        self._schema = schema
        self._formats = [one for one in options.formats if one.column in schema.names]
        self._decoders = {
            one.column: decoder for one in self._formats if (decoder := _decoder(one, schema.field(one.column).type))
        }
        corrupt = {one.corrupt for one in options.formats}
        names = [name for name in schema.names if name not in corrupt]
        self.fetched = list(dict.fromkeys(names + ([OFFSET] if self._decoders else [])))
        """The columns to fetch; includes the offset if a value may be bad, for the message."""

    def of(self, batch: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
        """The rows of a fetched batch. Raises CorruptValueError, RegistryError."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        kept: pa.Array | None = None
        for options in self._formats:
            if options.column in self._decoders:
                found = self._decoders[options.column](columns[options.column])
                dropped = _settle(found, columns, options, partition) if found.bad else None
                kept = _both(kept, dropped)
                columns[options.column] = found.values
            columns.setdefault(options.corrupt, pa.nulls(batch.num_rows, pa.binary()))
        arrays = [_cast(columns[field.name], field.type) for field in self._schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return rows if kept is None else rows.filter(kept)


def _decoder(options: FormatOptions, kind: pa.DataType) -> Callable[[pa.Array], Decoded] | None:
    """The decoder for a column of this type; None if it stays binary."""
    if options.format is Format.BINARY:
        return None
    from klamm.spark.reading.decoding import decode, decode_string, json_decoder

    match options.format:
        case Format.STRING:
            return lambda raw: decode(raw, decode_string, kind)
        case Format.JSON:
            decode_json = json_decoder(kind)
            return lambda raw: decode(raw, decode_json, kind)
        case Format.AVRO | Format.PROTOBUF:
            from klamm.spark.formats.decoder import SchemaDecoder

            return SchemaDecoder(options)


def _both(left: pa.Array | None, right: pa.Array | None) -> pa.Array | None:
    """The rows that both keep; None: all rows."""
    if left is None or right is None:
        return left if right is None else right
    import pyarrow.compute as pc

    return pc.and_(left, right)


def _settle(
    found: Decoded, columns: dict[str, pa.Array], options: FormatOptions, partition: TopicPartition
) -> pa.Array | None:
    """Handle bad values; returns which rows are kept, or None for all."""
    import pyarrow.compute as pc

    bad = set(found.bad)
    is_good = pa.array([number not in bad for number in range(len(found.values))])
    match options.on_bad:
        case OnBad.DROP:
            return is_good
        case OnBad.KEEP:
            columns[options.corrupt] = pc.if_else(is_good, pa.scalar(None, pa.binary()), columns[options.column])
            return None
        case OnBad.FAIL:
            column, offset = options.column, columns[OFFSET][found.bad[0]]
            raise CorruptValueError(
                f"the {column} at offset {offset} of partition {partition} is not valid {options.format.value}: "
                f"{found.why}; set the option {column}.onError to drop, or to keep, which puts such a {column} "
                f"into the column {options.corrupt}"
            )


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values with types that differ only in nested names and nullability."""
    return column if column.type == kind else column.cast(kind)
