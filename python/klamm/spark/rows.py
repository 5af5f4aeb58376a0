"""What was fetched as the rows that a query has: names and types that Spark checks for, and the value decoded."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from klamm.spark.decoding import Decoded, Decoder, decode, decode_string, json_decoder
from klamm.spark.offsets import TopicPartition
from klamm.spark.options import OnBadValue, SourceOptions, ValueFormat

VALUE, OFFSET, CORRUPT = "value", "offset", "_corrupt"


class CorruptValueError(RuntimeError):
    """A value is not what `value.format` says."""


class Rows:
    """Makes Spark's rows of fetched columns."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        """`schema`: the columns of the query."""
        self._options = options
        self._schema = schema
        self._decoder = self._choose_decoder()
        names = [name for name in schema.names if name != CORRUPT]
        decoded = [OFFSET] if self._decoder else []
        self.fetched = list(dict.fromkeys(names + decoded))
        """The columns to fetch: the offset, too, where a value may be bad, to say which."""

    def _choose_decoder(self) -> Decoder | None:
        if VALUE not in self._schema.names:
            return None
        match self._options.value_format:
            case ValueFormat.BINARY:
                return None
            case ValueFormat.STRING:
                return decode_string
            case ValueFormat.JSON:
                return json_decoder(self._schema.field(VALUE).type)

    def of(self, batch: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
        """The rows of what was fetched of a partition. Raises CorruptValueError."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        kept: pa.Array | None = None
        if self._decoder is not None:
            found = decode(columns[VALUE], self._decoder, self._schema.field(VALUE).type)
            if found.bad:
                kept = self._settle(found, columns, partition)
            columns[VALUE] = found.values
        columns.setdefault(CORRUPT, pa.nulls(batch.num_rows, pa.binary()))
        arrays = [_cast(columns[field.name], field.type) for field in self._schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return rows if kept is None else rows.filter(kept)

    def _settle(self, found: Decoded, columns: dict[str, pa.Array], partition: TopicPartition) -> pa.Array | None:
        """What is to be done about bad values; gives which rows are kept, where not all are."""
        bad = set(found.bad)
        is_good = pa.array([number not in bad for number in range(len(found.values))])
        raw = columns[VALUE]
        match self._options.on_bad_value:
            case OnBadValue.DROP:
                return is_good
            case OnBadValue.KEEP:
                columns[CORRUPT] = pc.if_else(is_good, pa.scalar(None, pa.binary()), raw)
                return None
            case OnBadValue.FAIL:
                first = found.bad[0]
                kind, why = self._options.value_format.value, self._why(raw[first : first + 1])
                raise CorruptValueError(
                    f"the value at offset {columns[OFFSET][first]} of partition {partition} is no {kind}: {why}; the "
                    "option value.onError can be drop, or keep to have such values in a column _corrupt"
                )

    def _why(self, one: pa.Array) -> str:
        assert self._decoder is not None
        try:
            self._decoder(one)
        except pa.ArrowInvalid as error:
            return str(error)
        raise AssertionError("a value that was bad is good when it is alone")


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values, where types differ only in names within and in what may be null."""
    return column if column.type == kind else column.cast(kind)
