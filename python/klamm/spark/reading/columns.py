"""The columns of the source with Spark's types: those of Spark's own source, with decoded keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from klamm.spark.options.column_choice import HEADERS, all_columns
from klamm.spark.options.column_choice import OPTION as COLUMNS
from klamm.spark.options.format_options import Format, FormatOptions, OnBad
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.options import SourceOptions

if TYPE_CHECKING:
    from klamm.spark.formats.shapes import Shape

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
    """The selected columns, or all, as DDL: only the JVM can parse the DDL of `value.schema`.

    The options must be pinned.
    """
    kinds = {name: kind.simpleString() for name, kind in _TYPES.items()}
    for decoded in options.formats:
        kinds[decoded.column] = _ddl(decoded) or kinds[decoded.column]
        kinds[decoded.corrupt] = "binary"
    names = options.columns or all_columns(options.formats, include_headers=options.include_headers)
    return ", ".join(f"{name} {kinds[name]}" for name in names)


def _ddl(options: FormatOptions) -> str | None:
    """The type of a decoded column."""
    match options.format:
        case Format.BINARY:
            return None
        case Format.STRING:
            return "string"
        case Format.JSON:
            return f"struct<{options.schema}>"
        case Format.AVRO | Format.PROTOBUF:
            return _shape(options).ddl()


def _shape(options: FormatOptions) -> Shape:
    from klamm.spark.formats.planning import shape_of

    shape = shape_of(options)
    assert shape is not None, "the options are pinned"
    return shape


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Refuse unknown columns or types. A schema may omit columns and change their order, in order to read less."""
    if options.columns is not None and set(options.columns) != set(schema.names):
        raise OptionError(
            f"option '{COLUMNS}' is '{','.join(options.columns)}', and the schema has {', '.join(schema.names)}: say "
            "one of them"
        )
    known = dict(_TYPES)
    decoded = {one.column: one for one in options.formats if one.format is not Format.BINARY}
    for name, one in decoded.items():
        if one.on_bad is OnBad.KEEP:
            known[one.corrupt] = BinaryType()
        if name not in schema.names:
            raise OptionError(
                f"the schema has no column '{name}', and option '{name}.format' is '{one.format.value}': "
                "remove the option, or add the column"
            )
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise OptionError(f"the schema has an unknown column '{field.name}'; the columns are {', '.join(known)}")
        if field.name in decoded:
            _check_decoded(field.dataType, decoded[field.name])
        elif field.dataType != kind:
            raise _other_type(field, kind.simpleString())


def _other_type(field: StructField, wanted: str) -> OptionError:
    return OptionError(f"the schema has column '{field.name}' as {field.dataType.simpleString()}; it is {wanted}")


def _check_decoded(kind: DataType, options: FormatOptions) -> None:
    match options.format:
        case Format.JSON:
            _check_json(kind, options.column, is_root=True, root=options.column)
        case Format.STRING if kind != StringType():
            raise _other_type(StructField(options.column, kind), "string")
        case Format.AVRO | Format.PROTOBUF:
            shape = _shape(options)
            if not _is(kind, shape):
                raise _other_type(StructField(options.column, kind), shape.ddl())
        case _:
            pass


def _is(kind: DataType, shape: Shape) -> bool:
    """Whether a column of this shape is one of this type; what may be null does not matter."""
    match kind, shape.format:
        case StructType(fields=fields), "+s":
            children = shape.children
            return [field.name for field in fields] == [name for name, _ in children] and all(
                _is(field.dataType, child) for field, (_, child) in zip(fields, children, strict=True)
            )
        case ArrayType(elementType=element), "+l":
            return _is(element, shape.children[0][1])
        case MapType(keyType=key, valueType=value), "+m":
            (_, key_shape), (_, value_shape) = shape.children[0][1].children
            return _is(key, key_shape) and _is(value, value_shape)
        case _:
            return not shape.children and kind.simpleString() == shape.ddl()


def _check_json(kind: DataType, path: str, *, is_root: bool, root: str) -> None:
    """Whether all of it can be read from JSON; the value itself is an object."""
    match kind:
        case StructType(fields=fields) if fields:
            for field in fields:
                _check_json(field.dataType, f"{path}.{field.name}", is_root=False, root=root)
        case ArrayType(elementType=element) if not is_root:
            _check_json(element, f"{path}[]", is_root=False, root=root)
        case _ if isinstance(kind, _OF_JSON) and not is_root:
            pass
        case _:
            raise OptionError(
                f"option '{root}.schema': {path} is {kind.simpleString()}, which cannot be read from JSON; "
                "supported are structs, arrays, booleans, numbers, strings and timestamps"
            )
