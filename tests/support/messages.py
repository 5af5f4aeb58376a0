"""Requests and responses of any API, created and read by kio's classes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_origin

from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import build
from klamm.protocol.wire.schemas import item_of, without_null

CODES = ("error_code", "partition_error_code")


def request_with_items(cls: Any) -> Any:
    """A request with one item in each array, and enough time in its time-out fields."""
    values: dict[str, Any] = {}
    for field in fields(cls):
        item = item_of(field.type)
        if get_origin(without_null(field.type)) is tuple:
            plain = {"string": "name", "int64": 4, "int32": 3, "int8": 2, "uuid": bytes(15) + b"x"}
            kind = field.metadata.get("kafka_type", "")
            values[field.name] = [request_with_items(item) if is_dataclass(item) else plain[kind]]
        elif field.name == "timeout":
            values["timeout_ms"] = 30_000
    return build(cls, **values)


def codes(found: Any) -> list[ErrorCode]:
    """All error codes of a response, at any depth."""
    if isinstance(found, tuple):
        return [code for item in found for code in codes(item)]
    if not is_dataclass(found):
        return []
    own = [getattr(found, field.name) for field in fields(found) if field.name in CODES]
    return own + [code for field in fields(found) for code in codes(getattr(found, field.name))]
