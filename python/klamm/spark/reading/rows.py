"""What was fetched as the rows that a query has: names and types that Spark checks for, key and value decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from klamm.spark.options.format_options import Format, FormatOptions, OnBad
from klamm.spark.options.options import SourceOptions
from klamm.spark.ranges.offsets import TopicPartition

if TYPE_CHECKING:
    from klamm.spark.reading.decoding import Decoded

OFFSET = "offset"


class CorruptValueError(RuntimeError):
    """A key or value is not what its format says."""


class Rows:
    """Makes Spark's rows of fetched columns."""

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
        """The columns to fetch: the offset, too, where a value may be bad, to say which."""

    def of(self, batch: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
        """The rows of what was fetched of a partition. Raises CorruptValueError, RegistryError."""
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
    """What decodes a column to this type; None where it stays bytes."""
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
    """Which rows are kept by both; None: all of them."""
    if left is None or right is None:
        return left if right is None else right
    import pyarrow.compute as pc

    return pc.and_(left, right)


def _settle(
    found: Decoded, columns: dict[str, pa.Array], options: FormatOptions, partition: TopicPartition
) -> pa.Array | None:
    """What is to be done about bad values; gives which rows are kept, where not all are."""
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
                f"the {column} at offset {offset} of partition {partition} is no {options.format.value}: {found.why}; "
                f"the option {column}.onError can be drop, or keep to have such {column}s in a column {options.corrupt}"
            )


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values, where types differ only in names within and in what may be null."""
    return column if column.type == kind else column.cast(kind)
