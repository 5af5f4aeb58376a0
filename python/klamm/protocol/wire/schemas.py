"""From kio's message classes to native schemas, which the codec uses to read and write.

kio has one dataclass per message and version, whose field metadata describe the wire. This module reads that
description once per class and passes it to the engine, together with the class for the message's values: kio's own, or
one of ours whose fields have the same names (a duration or a time `x` is our `x_ms`, an id is 16 bytes).
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from klamm._engine.protocol import MessageSchema
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value
from klamm.protocol.wire.kio_classes import MessageClass

Convert = Callable[[Any], object] | None

ZERO_ID: Final = bytes(16)
_EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)
_MS: Final = datetime.timedelta(milliseconds=1)


def _uuid_from_wire(value: bytes) -> uuid.UUID | None:
    return None if value == ZERO_ID else uuid.UUID(bytes=value)


def uuid_to_wire(value: uuid.UUID | bytes | None) -> bytes:
    """The 16 bytes of an id; None is all zero."""
    if value is None:
        return ZERO_ID
    return value if isinstance(value, bytes) else value.bytes


def duration_from_wire(value: int) -> datetime.timedelta:
    """Milliseconds, as kio holds them."""
    return datetime.timedelta(milliseconds=value)


def duration_to_wire(value: datetime.timedelta | int) -> int:
    """Whole milliseconds."""
    return value if isinstance(value, int) else value // _MS


def time_from_wire(value: int) -> datetime.datetime | None:
    """Milliseconds since 1970, as kio holds them; None for -1, as for any time before."""
    return None if value < 0 else _EPOCH + datetime.timedelta(milliseconds=value)


def time_to_wire(value: datetime.datetime | int | None) -> int:
    """Milliseconds since 1970; None is -1."""
    if value is None:
        return -1
    return value if isinstance(value, int) else (value - _EPOCH) // _MS


KIND_OF_KIO: Final[dict[str, tuple[str, Convert, Convert]]] = {
    "error_code": ("error_code", ErrorCode, int),
    "records": ("bytes", None, None),
    "uuid": ("uuid", _uuid_from_wire, uuid_to_wire),
    "timedelta_i32": ("int32", duration_from_wire, duration_to_wire),
    "timedelta_i64": ("int64", duration_from_wire, duration_to_wire),
    "datetime_i64": ("int64", time_from_wire, time_to_wire),
}
"""kio's description of a field: its name on the wire, and the conversion from and to kio's objects."""

KIND_OF_OURS: Final[dict[str, tuple[str, Convert, Convert]]] = {
    "error_code": ("error_code", ErrorCode, None),
    "records": ("bytes", None, None),
    "uuid": ("uuid", None, None),
    "timedelta_i32": ("int32", None, None),
    "timedelta_i64": ("int64", None, None),
    "datetime_i64": ("int64", None, None),
}
"""The same for our objects, which contain the values on the wire."""


def is_nullable(annotation: object) -> bool:
    """Whether a field may be None as a whole (an array of nullable items is not)."""
    return get_origin(annotation) is not tuple and NoneType in get_args(annotation)


def without_null(annotation: Any) -> Any:
    """The annotation of a field's values other than None."""
    if not is_nullable(annotation):
        return annotation
    return next(arg for arg in get_args(annotation) if arg is not NoneType)


def item_of(annotation: Any) -> Any:
    """The annotation of an array's items, or of the field itself when it is no array."""
    inner = without_null(annotation)
    return without_null(get_args(inner)[0]) if get_origin(inner) is tuple else inner


_ZEROES: Final[dict[str, object]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), 0),
    "bool": False,
    "bytes": b"",
    "datetime_i64": _EPOCH,
    "error_code": ErrorCode.NONE,
    "float64": 0.0,
    "records": None,
    "string": "",
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "uuid": None,
}


def default_of(field: Field[Any]) -> object:
    """The default of a kio field: the schema's default, or null, empty, zero."""
    annotation: Any = field.type
    if field.default is not MISSING:
        return field.default
    if is_nullable(annotation):
        return None
    if get_origin(annotation) is tuple:
        return ()
    if is_dataclass(annotation):
        cls: MessageClass = annotation
        return cls(**{inner.name: default_of(inner) for inner in fields(cls)})
    return _ZEROES[field.metadata["kafka_type"]]


@cache
def schema_of(theirs: MessageClass, carrier: MessageClass) -> MessageSchema:
    """How objects of `carrier` are read and written as kio's message class `theirs`."""
    attributes = _attributes(theirs, carrier)
    specs = [_field_spec(field, attributes.get(field.name), carrier is theirs) for field in fields(theirs)]
    matched = {attribute for attribute, _ in attributes.values()}
    absent = [(name, default) for name, default in _defaults_of(carrier).items() if name not in matched]
    without_default = [name for name, default in absent if default is MISSING]
    assert not without_default, f"{theirs.__qualname__} has no {without_default}, nor have they a default"
    return MessageSchema(carrier, theirs.__flexible__, specs, absent)


def _attributes(theirs: MessageClass, carrier: MessageClass) -> dict[str, tuple[str, Any]]:
    """kio's field name to the carrier's attribute and its annotation."""
    if theirs is carrier:
        return {field.name: (field.name, field.type) for field in fields(theirs)}
    hints = get_type_hints(carrier)
    names = {field.name for field in fields(theirs)}
    attributes = {}
    for ours in _defaults_of(carrier):
        name = ours if ours in names else ours.removesuffix("_ms")
        if name in names:
            attributes[name] = (ours, hints[ours])
    return attributes


def _defaults_of(carrier: MessageClass) -> dict[str, object]:
    """The fields of a class and their defaults; MISSING for required ones."""
    if issubclass(carrier, Value):  # `fields` would first turn it into a dataclass
        defaults: dict[str, object] = carrier.plain_defaults(MISSING)
        return defaults
    return {field.name: field.default for field in fields(carrier)}


def _field_spec(
    field: Field[Any], attribute: tuple[str, Any] | None, is_kios: bool
) -> tuple[str | None, str | MessageSchema, bool, bool, int | None, object, Convert, Convert]:
    annotation: Any = field.type
    name, ours = (None, annotation) if attribute is None else attribute
    is_array = get_origin(without_null(annotation)) is tuple
    tag = field.metadata.get("tag")
    kind: str | MessageSchema
    if is_dataclass(item_of(annotation)):
        kind, from_wire, to_wire = schema_of(item_of(annotation), item_of(ours)), None, None
    else:
        kinds = KIND_OF_OURS if attribute is not None and not is_kios else KIND_OF_KIO
        kafka_type = field.metadata["kafka_type"]
        kind, from_wire, to_wire = kinds.get(kafka_type, (kafka_type, None, None))
    # KIP-893 allows nullable tagged structures, but no message of Kafka has one. Where kio has None for a tagged
    # structure, its tag is absent, and no presence byte is written.
    nullable = is_nullable(annotation) and (is_array or tag is None or not isinstance(kind, MessageSchema))
    return name, kind, is_array, nullable, tag, _carried(default_of(field), is_kios, item_of(ours)), from_wire, to_wire


def _carried(default: Any, is_kios: bool, carrier: Any) -> object:
    """kio's default as the carrier holds it, a structure as `carrier`."""
    if is_kios:
        return default
    if is_dataclass(default) and is_dataclass(carrier):
        make: MessageClass = carrier
        attributes = _attributes(type(default), make).items()
        return make(**{name: _carried(getattr(default, field), False, ours) for field, (name, ours) in attributes})
    match default:
        case datetime.timedelta():
            return duration_to_wire(default)
        case datetime.datetime():
            return time_to_wire(default)
        case _:
            return default
