"""The columns of an archive's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from klamm.spark.options.options import SourceOptions
    from klamm.spark.ranges.offsets import OffsetRange

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
"""The fields of a Kafka record, with the same nulls. topic and date are in the path."""


def spark_schema() -> StructType:
    """The same columns as the source provides them."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds = [BinaryType(), BinaryType(), ArrayType(header), TimestampType(), IntegerType(), IntegerType(), LongType()]
    return StructType([StructField(name, kind) for name, kind in zip(SCHEMA.names, kinds, strict=True)])


def read(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range in these columns, by the source's reader. For tasks: it needs pyspark."""
    from klamm.spark.reading.reader import read_range

    for batch in read_range(options, spark_schema(), wanted):
        yield conform(batch)


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same records with exactly these columns and types."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for field, column in ((field, batch.column(field.name)) for field in SCHEMA)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
