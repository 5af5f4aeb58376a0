"""The columns of the source, in Spark's types: those of Spark's own, with the value decoded where an option says so."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from klamm.spark.options import OnBadValue, OptionError, SourceOptions, ValueFormat

VALUE: Final = "value"
HEADERS: Final = "headers"
CORRUPT: Final = "_corrupt"
"""The bytes of a value that cannot be decoded, else null."""

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    VALUE: BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    CORRUPT: BinaryType(),
}
_OF_JSON: Final = (
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    TimestampType,
    TimestampNTZType,
)


def full_schema(options: SourceOptions) -> str:
    """All columns, in the order of Spark's own source, as DDL: only the JVM can read that of `value.schema`."""
    kinds = {name: kind.simpleString() for name, kind in _TYPES.items()}
    if options.value_format is ValueFormat.STRING:
        kinds[VALUE] = "string"
    if options.value_format is ValueFormat.JSON:
        kinds[VALUE] = f"struct<{options.value_schema}>"
    if not options.include_headers:
        del kinds[HEADERS]
    if options.on_bad_value is not OnBadValue.KEEP:
        del kinds[CORRUPT]
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Refuse columns that there are not, or of another type; leaving some away, in any order, is a way to read less."""
    known = dict(_TYPES)
    if options.on_bad_value is not OnBadValue.KEEP:
        del known[CORRUPT]
    if options.value_format is ValueFormat.STRING:
        known[VALUE] = StringType()
    if options.value_format is not ValueFormat.BINARY and VALUE not in schema.names:
        raise OptionError(
            f"the schema has no column '{VALUE}', and option 'value.format' is '{options.value_format.value}': "
            "take the option away, or add the column"
        )
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise OptionError(f"the schema has column '{field.name}', which there is not; there are {', '.join(known)}")
        if field.name == VALUE and options.value_format is ValueFormat.JSON:
            _check_json(field.dataType, VALUE)
        elif field.dataType != kind:
            raise OptionError(
                f"the schema has column '{field.name}' as {field.dataType.simpleString()}; it is {kind.simpleString()}"
            )


def _check_json(kind: DataType, path: str) -> None:
    """Whether all of it can be read from JSON; the value itself is an object."""
    match kind:
        case StructType(fields=fields) if fields:
            for field in fields:
                _check_json(field.dataType, f"{path}.{field.name}")
        case ArrayType(elementType=element) if path != VALUE:
            _check_json(element, f"{path}[]")
        case _ if isinstance(kind, _OF_JSON) and path != VALUE:
            pass
        case _:
            raise OptionError(
                f"option 'value.schema': {path} is {kind.simpleString()}, which is not read from JSON; it can have "
                "structs, arrays, booleans, numbers, strings and timestamps"
            )
