"""The response to a request that failed as a whole, derived from the schemas of both.

It is what `AbstractRequest.getErrorResponse` gives in Apache Kafka. The code goes into the outermost `error_code` of
the response. Where that is inside an array, the response gets an item for each item of the request, with the fields by
which the request names it; Fetch and ElectLeaders have both. Messages stay empty: the cause belongs in the node's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Final, get_args, get_origin

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import build, decode_request, encode
from klamm.protocol.wire.kio_classes import MessageClass, request_class, response_class
from klamm.protocol.wire.schemas import item_of, without_null

Make = Callable[[Any, ErrorCode], Any]
"""From a request's structure, or an item of it, and the code."""

_CODE: Final = "error_code"
_UNKNOWN: Final[Mapping[str, object]] = {
    **dict.fromkeys(("node_id", "port", "committed_offset", "low_watermark", "high_watermark", "producer_epoch"), -1),
    "records": b"",
}
"""What Kafka answers for these instead of zero or null; their schemas have no default."""
_NAMED_OTHERWISE: Final[Mapping[str, str]] = {"partition_index": "partition"}
"""Fields of a response's item to those of the request's, where the request has not the same: Fetch."""
_FETCH_BY_IDS_VERSION: Final = 13


class NoErrorResponse(Exception):
    """A response has no place for the code."""


def error_response(api_key: int, version: int, body: bytes, code: ErrorCode) -> bytes:
    """The body of the response that says `code`. Raises MalformedRequest, NoErrorResponse or kio's KioIndexError."""
    make = _response_maker(api_key, version)
    return encode(make(decode_request(api_key, version, body), code))


@cache
def _response_maker(api_key: int, version: int) -> Make:
    response = response_class(api_key, version)
    make = _struct_maker(response, request_class(api_key, version), {}, _has_items_beside_the_code(api_key, version))
    if make is not None:
        return make
    if api_key == ApiKey.DESCRIBE_LOG_DIRS:
        # Versions 1 and 2 have no code for the whole, and Kafka answers no directories.
        return lambda _asked, _code: build(response)
    if api_key == ApiKey.ALTER_REPLICA_LOG_DIRS:
        # Its topics are within directories, which the response does not have.
        return lambda asked, code: build(response, results=_results_of_topics(asked.dirs, code))
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        # Below version 4 the code of a partition has a name of its own.
        return lambda asked, code: build(response, results_by_topic_v3_and_below=_added_partitions(asked, code))
    raise NoErrorResponse(f"{response.__name__} v{version} has no place for an error code that the request names")


def _results_of_topics(dirs: Any, code: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "topic_name": topic.name,
            "partitions": [{"partition_index": index, "error_code": code} for index in topic.partitions],
        }
        for found in dirs
        for topic in found.topics
    ]


def _added_partitions(asked: Any, code: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code} for index in topic.partitions
            ],
        }
        for topic in asked.v3_and_below_topics
    ]


def _has_items_beside_the_code(api_key: int, version: int) -> bool:
    """Whether Kafka also returns the items if a response has a top-level error code."""
    return api_key == ApiKey.ELECT_LEADERS or (api_key == ApiKey.FETCH and version < _FETCH_BY_IDS_VERSION)


def _struct_maker(
    response: MessageClass, request: MessageClass, carried: Mapping[str, str], has_items_beside_the_code: bool = False
) -> Make | None:
    """Creates a structure of the response from one of the request, with the common fields in `carried`."""
    names = {field.name for field in fields(response)}
    unknown = {name: value for name, value in _UNKNOWN.items() if name in names}
    arrays: dict[str, Make] = {}
    if _CODE not in names or has_items_beside_the_code:
        made = ((field.name, _array_maker(field, request)) for field in fields(response))
        arrays = {name: make for name, make in made if make is not None}
    if _CODE not in names and not arrays:
        return None
    return lambda asked, code: build(
        response,
        **unknown,
        **{ours: getattr(asked, theirs) for ours, theirs in carried.items()},
        **{name: make(asked, code) for name, make in arrays.items()},
        **({_CODE: code} if _CODE in names else {}),
    )


def _array_maker(field: Field[Any], request: MessageClass) -> Make | None:
    """Makes an array of the response, an item for each of the first array of the request that can name them."""
    item = item_of(field.type)
    if not is_dataclass(item) or not _is_array(field):
        return None
    for source in fields(request):
        if _is_array(source) and (make := _item_maker(item, source)) is not None:
            return _each(source.name, make)
    return None


def _each(name: str, make: Make) -> Make:
    return lambda asked, code: [make(item, code) for item in getattr(asked, name) or ()]


def _item_maker(item: Any, source: Field[Any]) -> Make | None:
    """Makes an item of the response from an item of the request, which may be a structure or a plain value."""
    asked = item_of(source.type)
    named = [field for field in fields(item) if _names_its_item(field)]
    if is_dataclass(asked):
        there = {field.name for field in fields(asked)}
        sources = {field.name: (field.name, _NAMED_OTHERWISE.get(field.name)) for field in named}
        carried = {ours: theirs for ours, names in sources.items() for theirs in names if theirs in there}
        carried |= {name: name for name, parts in _arrays_of(item).items() if parts == _arrays_of(asked).get(name)}
        return _struct_maker(item, asked, carried) if carried else None
    kind = source.metadata["kafka_type"]
    key = next((field.name for field in named if field.metadata["kafka_type"] == kind), None)
    if key is None or all(field.name != _CODE for field in fields(item)):
        return None
    unknown = {field.name: _UNKNOWN[field.name] for field in fields(item) if field.name in _UNKNOWN}
    return lambda value, code: build(item, **unknown, **{key: value}, error_code=code)


def _names_its_item(field: Field[Any]) -> bool:
    """Whether a field says which item this is: results have defaults in the schema."""
    is_plain = not _is_array(field) and not is_dataclass(item_of(field.type))
    return is_plain and field.default is MISSING and not field.name.startswith("error_")


def _arrays_of(structure: MessageClass) -> dict[str, frozenset[str]]:
    """The arrays of structures, which may name an item as well: the fields of their items by the array's name."""
    arrays = ((field.name, item_of(field.type)) for field in fields(structure) if _is_array(field))
    return {name: frozenset(field.name for field in fields(item)) for name, item in arrays if is_dataclass(item)}


def _is_array(field: Field[Any]) -> bool:
    return get_origin(without_null(field.type)) is tuple and bool(get_args(without_null(field.type)))
