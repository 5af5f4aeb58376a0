"""The columns of the source, in Spark's types and in Arrow's."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from klamm.spark.options import OptionError

HEADERS: Final = "headers"

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def full_schema(include_headers: bool) -> StructType:
    """All columns, in the order of Spark's own source."""
    return StructType([StructField(name, kind) for name, kind in _TYPES.items() if include_headers or name != HEADERS])


def check_schema(schema: StructType) -> None:
    """Refuse columns that there are not, or of another type; leaving some away, in any order, is a way to read less."""
    for field in schema.fields:
        known = _TYPES.get(field.name)
        if known is None:
            raise OptionError(
                f"the schema has column '{field.name}', which there is not; there are {', '.join(_TYPES)}"
            )
        if field.dataType != known:
            raise OptionError(
                f"the schema has column '{field.name}' as {field.dataType.simpleString()}; it is {known.simpleString()}"
            )
