"""The codec: every kio message round-trips through plain values, and hostile bytes exhaust no memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import KioIndexError
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from klamm.protocol.apis import APIS
from klamm.protocol.errors import RETRIABLE, ErrorCode, KafkaError, MalformedRequest
from klamm.protocol.wire.codec import (
    build,
    decode_request,
    decode_response,
    encode,
    from_entity,
    response_schema,
    to_entity,
)
from klamm.protocol.wire.kio_classes import request_class, response_class
from klamm.protocol.wire.schemas import duration_from_wire, item_of, time_from_wire, without_null

TOPIC = {"name": "foo", "num_partitions": 3, "replication_factor": 1}


def create_topics(version: int, **values: object) -> Any:
    return build(request_class(19, version), topics=[TOPIC], timeout_ms=1500, validate_only=True, **values)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_request_round_trips(version: int) -> None:
    request = create_topics(version)
    assert decode_request(19, version, encode(request)) == request
    assert request.topics[0].name == "foo"
    assert request.timeout.total_seconds() == 1.5


def test_every_message_of_kio_round_trips_with_defaults() -> None:
    count = 0
    for key in api_key_map:
        for version in range(20):
            try:
                classes = request_class(key, version), response_class(key, version)
            except KioIndexError:
                continue
            for cls, decode in zip(classes, (decode_request, decode_response), strict=True):
                entity = build(cls)
                assert decode(key, version, encode(entity)) == entity
                count += 1
    assert count > 300


def error_codes_in(value: object) -> int:
    """The number of error codes in an entity."""
    if isinstance(value, tuple):
        return sum(error_codes_in(item) for item in value)
    if is_dataclass(value):
        return sum(error_codes_in(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, ErrorCode)


def test_every_error_code_of_a_response_is_counted() -> None:
    count = 0
    for key in api_key_map:
        for version in range(20):
            try:
                cls = response_class(key, version)
            except KioIndexError:
                continue
            entity = filled(cls)
            expected = [(ErrorCode.UNKNOWN_SERVER_ERROR, codes)] if (codes := error_codes_in(entity)) else []
            assert response_schema(key, version).error_codes(encode(entity)) == expected, cls
            count += len(expected)
    assert count > 200
    assert response_schema(19, 7).error_codes(b"\x00\x00") == [], "malformed"


@pytest.mark.parametrize("key", [api for api in APIS if APIS[api].on_broker == "python"])
def test_the_responses_of_every_api_of_pythons_have_a_schema(key: int) -> None:
    low, high = APIS[key].versions
    for version in range(low, high + 1):
        assert response_schema(key, version).error_codes(b"") == []


def filled(cls: Any) -> Any:
    """An entity without defaults: one item in each array, no nulls, no default values."""
    return build(
        cls, **{field.name: filled_value(field.type, field.metadata.get("kafka_type")) for field in fields(cls)}
    )


def filled_value(annotation: Any, kind: str) -> object:
    if get_origin(without_null(annotation)) is tuple:
        return (filled_value(get_args(without_null(annotation))[0], kind),)
    if is_dataclass(item_of(annotation)):
        return filled(item_of(annotation))
    return {
        "bool": True,
        "bytes": b"\x00\xff",
        "datetime_i64": time_from_wire(1_700_000_000_123),
        "error_code": ErrorCode.UNKNOWN_SERVER_ERROR,
        "float64": -1.5,
        "records": bytes(200),
        "string": "a\u00e9" * 70,
        "uuid": UUID(int=7),
    }.get(kind) or (duration_from_wire(86_400_001) if kind.startswith("timedelta") else -100 if kind[0] == "i" else 200)


def all_messages() -> Iterator[Any]:
    for key in api_key_map:
        for version in range(20):
            try:
                yield from (request_class(key, version), response_class(key, version))
            except KioIndexError:
                continue


def test_the_bytes_are_those_of_kio() -> None:
    """kio's writer is independent of ours, so the same error would have to be in both."""
    for cls in all_messages():
        for entity in (build(cls), filled(cls)):
            buffer = io.BytesIO()
            entity_writer(cls)(buffer, entity)
            body = encode(entity)
            assert body == buffer.getvalue(), cls
            assert entity_reader(cls)(body, 0)[0] == entity
            decode = decode_request if cls.__name__.endswith("Request") else decode_response
            assert decode(cls.__api_key__, cls.__version__, body) == entity


def test_a_value_that_does_not_fit_names_its_attribute() -> None:
    cls = response_class(19, 7)
    with pytest.raises(TypeError, match=r"CreatableTopicResult.*num_partitions"):
        encode(build(cls, topics=[{"num_partitions": 1 << 31}]))
    with pytest.raises(TypeError, match=r"error_message.*32768 bytes"):
        encode(build(cls, topics=[{"error_message": "x" * 32768}]))


def test_fields_a_version_lacks_are_dropped_and_missing_ones_get_their_default() -> None:
    old, new = response_class(19, 2), response_class(19, 7)
    result = {"name": "foo", "topic_id": bytes(range(16)), "error_code": 36, "num_partitions": 3}
    assert not hasattr(build(old, topics=[result]).topics[0], "topic_id")
    topic = build(new, topics=[result], throttle_time_ms=5).topics[0]
    assert topic.topic_id.bytes == bytes(range(16))
    assert topic.error_code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert topic.replication_factor == -1
    assert topic.error_message is None


@dataclass(frozen=True, slots=True)
class OurTopic:
    name: str
    num_partitions: int
    assignments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OurRequest:
    topics: tuple[OurTopic, ...]
    timeout_ms: int = 0
    validate_only: bool = False
    of_no_version: int = 7


@pytest.mark.parametrize("version", range(2, 8))
def test_our_dataclasses_are_matched_by_name(version: int) -> None:
    ours = from_entity(OurRequest, create_topics(version))
    assert ours == OurRequest((OurTopic("foo", 3),), 1500, True)
    assert to_entity(request_class(19, version), ours).topics[0].num_partitions == 3


CONFIGS = [
    None,
    (),
    *(tuple({"name": name, "value": "v"} for name in names) for names in ("a", "ab", "abc", "b", "ba")),
]


@given(st.sampled_from([5, 7]), st.lists(st.sampled_from(CONFIGS), max_size=8))
def test_an_equal_array_is_read_as_the_same_object(
    version: int, configs: list[tuple[dict[str, str], ...] | None]
) -> None:
    topics = [{"name": f"t{at}", "configs": entries} for at, entries in enumerate(configs)]
    cls = response_class(19, version)
    apart = build(cls, topics=topics)
    known = {one.configs: one.configs for one in apart.topics}
    shared = replace(apart, topics=tuple(replace(one, configs=known[one.configs]) for one in apart.topics))
    body = encode(shared)
    with io.BytesIO() as buffer:
        entity_writer(cls)(buffer, apart)
        assert body == encode(apart) == buffer.getvalue()
    assert decode_response(19, version, body) == apart


@given(st.lists(st.lists(st.sampled_from([(0, (1,)), (0, (1, 2)), (1, (2,))]), max_size=3), max_size=6))
def test_nested_arrays_are_read_independently(assignments: list[list[tuple[int, tuple[int, ...]]]]) -> None:
    topics = [
        {"name": "t", "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in entries]}
        for entries in assignments
    ]
    for version in (4, 7):
        request = build(request_class(19, version), topics=topics)
        assert decode_request(19, version, encode(request)) == request


def test_a_lying_array_count_is_refused_before_memory_is_taken() -> None:
    for version, count in ((7, b"\xff\xff\xff\xff\x0f"), (4, b"\x7f\xff\xff\xff")):
        with pytest.raises(MalformedRequest, match="elements does not fit"):
            decode_request(19, version, count + encode(create_topics(version)))


def test_a_lying_count_inside_a_known_tag_is_refused() -> None:
    body = encode(build(request_class(63, 1), offline_log_dirs=[bytes(16)]))
    start = body.index(b"\x01\x00\x11\x02")  # one tag: number 0, 17 bytes, an array of one
    with pytest.raises(MalformedRequest):
        decode_request(63, 1, body[:start] + b"\x01\x00\x11\xff" + body[start + 4 :])


@pytest.mark.parametrize("version", [4, 7])
def test_every_prefix_of_a_request_is_malformed(version: int) -> None:
    body = encode(create_topics(version))
    for size in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_request(19, version, body[:size])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([(19, 4), (19, 7), (44, 1), (62, 4), (63, 1), (10, 6), (8, 9)]), st.binary(max_size=200))
def test_noise_is_decoded_or_malformed(api: tuple[int, int], body: bytes) -> None:
    try:
        entity = decode_request(*api, body)
    except MalformedRequest:
        return
    assert fields(entity)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.integers(0, 255))
def test_a_changed_byte_is_decoded_or_malformed(at: int, value: int) -> None:
    body = bytearray(encode(create_topics(7)))
    body[at % len(body)] = value
    try:
        entity = decode_request(19, 7, bytes(body))
    except MalformedRequest:
        return
    assert fields(decode_request(19, 7, encode(entity))) == fields(entity)


def test_error_codes_are_those_of_kio_with_their_retriability() -> None:
    from kio.schema.errors import ErrorCode as Kio

    ours = {code.name: (int(code), code.is_retriable) for code in ErrorCode}
    theirs = {code.name.upper(): (int(code), code.retriable) for code in Kio}
    assert set(ours) >= {"NONE", "UNKNOWN_TOPIC_ID", "SHARE_SESSION_LIMIT_REACHED"}
    by_number = dict(theirs.values())
    for number, retriable in ours.values():
        assert by_number[number] == retriable
    assert ErrorCode.NOT_CONTROLLER in RETRIABLE
    assert str(KafkaError(ErrorCode.NONE, "x")) == "NONE: x"
