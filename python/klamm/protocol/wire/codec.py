"""Request bodies to objects and answers back to bytes, by the engine's message schemas.

kio is imported on first use and never with this module: importing its first message costs milliseconds. Only its
message classes are used. Its reader sets memory aside for as many array elements as a message claims to have, and
aborts the process when there is not that much; its writer is Python. Ours are the engine's (`schemas`).

There are two ways. `read` and `write` go between bytes and our own value types. `decode_request`, `build` and
`encode` go between bytes and kio's classes, one a version, for handlers that need no types of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from klamm._engine.protocol import MessageSchema
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire.kio_classes import MessageClass, request_class, response_class
from klamm.protocol.wire.schemas import (
    KIND_OF_KIO,
    default_of,
    item_of,
    schema_of,
    without_null,
)

T = TypeVar("T")
Entity = Any
"""An instance of one of kio's message classes; they share no base class."""


def decode_request(api_key: int, version: int, body: bytes) -> Entity:
    """The request in `body` (header already cut off) as kio's class. Raises MalformedRequest."""
    cls = request_class(api_key, version)
    return _read(schema_of(cls, cls), cls, body)


def decode_response(api_key: int, version: int, body: bytes) -> Entity:
    """The response in `body` (header already cut off), for klamm as a client. Raises MalformedRequest."""
    cls = response_class(api_key, version)
    return _read(schema_of(cls, cls), cls, body)


def response_schema(api_key: int, version: int) -> MessageSchema:
    """The schema of an API's responses."""
    cls = response_class(api_key, version)
    return schema_of(cls, cls)


def _read(schema: MessageSchema, cls: MessageClass, body: bytes) -> Any:
    try:
        return schema.read(body)
    except (ValueError, OverflowError) as error:
        raise MalformedRequest(f"{cls.__name__} v{cls.__version__} of {len(body)} bytes: {error}") from error


def encode(entity: Entity) -> bytes:
    """The bytes of one of kio's messages, without header."""
    cls: MessageClass = type(entity)
    return schema_of(cls, cls).write(entity)


def read(request: type[T], version: int, body: bytes) -> T:
    """Our request type `request` (it names its API_KEY) from a body of `version`. Raises MalformedRequest."""
    return _read_ours(request_class, request, version, body)


def write(response: Any, version: int) -> bytes:
    """The body of `version` for one of our response types (it names its API_KEY)."""
    ours: Any = type(response)
    return schema_of(response_class(ours.API_KEY, version), ours).write(response)


def read_response(response: type[T], version: int, body: bytes) -> T:
    """Our response type `response` (it names its API_KEY), for klamm as a client. Raises MalformedRequest."""
    return _read_ours(response_class, response, version, body)


def _read_ours(class_of: Callable[[int, int], MessageClass], carrier: type[T], version: int, body: bytes) -> T:
    ours: Any = carrier
    cls = class_of(ours.API_KEY, version)
    found: T = _read(schema_of(cls, ours), cls, body)
    return found


def write_request(request: Any, version: int) -> bytes:
    """The body of `version` for one of our request types, for klamm as a client."""
    ours: Any = type(request)
    return schema_of(request_class(ours.API_KEY, version), ours).write(request)


def build(cls: MessageClass, /, **values: object) -> Entity:
    """An entity of kio's class `cls`, whatever its version has or lacks.

    Fields that this version does not have are dropped; those not given get the schema's default, or zero, empty, null.
    Values may be plain: lists for arrays, mappings or dataclasses for structures, 16 bytes for an id,
    `<field>_ms=<int>` for a duration or a time.
    """
    return to_entity(cls, values)


def to_entity(cls: MessageClass, value: object) -> Entity:
    """`value`, a mapping or a dataclass of ours, as kio's class `cls`, matched by field name; see `build`."""
    get = value.get if isinstance(value, Mapping) else _attribute_getter(value)
    return cls(**{plan.name: plan.take(get) for plan in _plans(cls)})


_ABSENT: Final = object()


def _attribute_getter(value: object) -> Callable[[str, object], object]:
    return lambda name, default: getattr(value, name, default)


class _FieldPlan:
    """How one field of a kio class is filled from a plain value."""

    __slots__ = ("_convert", "_default", "_other_name", "name")

    def __init__(self, field: Any) -> None:
        kind = field.metadata.get("kafka_type", "")
        self.name: str = field.name
        self._other_name = f"{field.name}_ms" if kind.startswith(("timedelta", "datetime")) else field.name
        self._convert = _to_kio(field.type, kind)
        self._default = default_of(field)

    def take(self, get: Callable[[str, object], object]) -> object:
        value = get(self.name, _ABSENT)
        if value is _ABSENT:
            value = get(self._other_name, _ABSENT)
        return self._default if value is _ABSENT else self._convert(value)


@cache
def _plans(cls: MessageClass) -> tuple[_FieldPlan, ...]:
    return tuple(_FieldPlan(field) for field in fields(cls))


def _to_kio(annotation: Any, kind: str) -> Callable[[Any], Any]:
    """The conversion from a plain value to kio's; values of kio pass unchanged."""
    if get_origin(without_null(annotation)) is tuple:
        item = _to_kio(get_args(without_null(annotation))[0], kind)
        return lambda items: None if items is None else tuple(map(item, items))
    inner = item_of(annotation)
    if is_dataclass(inner):
        cls: MessageClass = inner
        return lambda value: value if value is None or isinstance(value, cls) else to_entity(cls, value)
    _, from_wire, _ = KIND_OF_KIO.get(kind, (kind, None, None))
    if from_wire is None:
        return lambda value: value
    convert = from_wire
    return lambda value: convert(value) if isinstance(value, int | bytes) else value


def from_entity(cls: type[T], entity: Entity) -> T:
    """Our dataclass `cls` from kio's entity, matched by field name; fields that the version lacks keep our default."""
    ours: Any = cls
    theirs: MessageClass = type(entity)
    plans = _plans_back(ours, theirs)
    return cls(**{name: convert(getattr(entity, source)) for name, source, convert in plans})


@cache
def _plans_back(cls: Any, entity_cls: MessageClass) -> tuple[tuple[str, str, Callable[[Any], Any]], ...]:
    theirs = {field.name: field for field in fields(entity_cls)}
    hints = get_type_hints(cls)
    plans = []
    for ours in fields(cls):
        source = ours.name if ours.name in theirs else ours.name.removesuffix("_ms")
        if source in theirs:
            kind = theirs[source].metadata.get("kafka_type", "")
            plans.append((ours.name, source, _from_kio(hints[ours.name], kind)))
    return tuple(plans)


def _from_kio(annotation: Any, kind: str) -> Callable[[Any], Any]:
    if get_origin(without_null(annotation)) is tuple:
        item = _from_kio(get_args(without_null(annotation))[0], kind)
        return lambda items: None if items is None else tuple(map(item, items))
    inner = item_of(annotation)
    if is_dataclass(inner):
        cls: Any = inner
        return lambda value: None if value is None else from_entity(cls, value)
    *_, to_wire = KIND_OF_KIO.get(kind, (kind, None, None))
    return (lambda value: value) if to_wire is None or kind == "error_code" else to_wire
