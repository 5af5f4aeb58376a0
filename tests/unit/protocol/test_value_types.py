"""Our request and response types agree with Kafka's schemas, by name, in every version that kio has."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from kio.index import KioIndexError

from klamm.protocol.features import METADATA_VERSION, SUPPORTED_FEATURES
from klamm.protocol.messages import (
    cluster,
    configs,
    coordinators,
    feature_updates,
    group_messages,
    metadata,
    partitions,
    quorum_messages,
    registration,
    streams_messages,
    topics,
)
from klamm.protocol.metadata_levels import METADATA_LEVELS
from klamm.protocol.wire.codec import (
    build,
    encode,
    from_entity,
    read,
    to_entity,
    write,
)
from klamm.protocol.wire.kio_classes import request_class, response_class

MODULES = (
    topics,
    configs,
    coordinators,
    cluster,
    registration,
    feature_updates,
    group_messages,
    metadata,
    partitions,
    quorum_messages,
    streams_messages,
)
EXTRA_FIELDS = {
    "AlterConfigsRequest": {"AlterableConfig: config_operation"},  # one type for both; legacy versions only set
    "OffsetFetchRequest": {"FetchTopic: topic_id"},  # one type for the topics of several groups and of a single one
    "OffsetFetchResponse": {"FetchedTopic: topic_id"},
}


def messages() -> list[Any]:
    found = [
        cls
        for module in MODULES
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and hasattr(cls, "API_KEY")
    ]
    assert len(found) >= 24
    return found


def versions(cls: Any) -> Iterator[Any]:
    find = request_class if cls.__name__.endswith("Request") else response_class
    for version in range(20):
        try:
            yield version, find(cls.API_KEY, version)
        except KioIndexError:
            continue


def element(annotation: Any) -> Any:
    """The dataclass within a field's annotation, or None."""
    if is_dataclass(annotation):
        return annotation
    return next((found for arg in get_args(annotation) if (found := element(arg)) is not None), None)


def unknown_fields(ours: Any, theirs: list[Any]) -> Iterator[str]:
    """Our fields that no version has, and fields of some version that we lack; recursively."""
    known = {field.name: field for cls in theirs for field in fields(cls)}
    hints = get_type_hints(ours)
    plain = {name.removesuffix("_ms") if name not in known else name for name in hints if name != "API_KEY"}
    yield from (f"{ours.__name__}: {name}" for name in plain ^ known.keys())
    for name, annotation in hints.items():
        if (inner := element(annotation)) is not None:
            nested = [element(field.type) for cls in theirs for field in fields(cls) if field.name == name]
            yield from unknown_fields(inner, nested)


@pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)
def test_fields_are_those_of_the_schemas(cls: Any) -> None:
    assert set(unknown_fields(cls, [theirs for _, theirs in versions(cls)])) == EXTRA_FIELDS.get(cls.__name__, set())


@pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)
def test_every_version_is_read_and_written(cls: Any) -> None:
    for version, theirs in versions(cls):
        ours = from_entity(cls, build(theirs))
        if cls.__name__.endswith("Request"):
            assert read(cls, version, encode(build(theirs))) == ours
        else:
            assert from_entity(cls, to_entity(theirs, ours)) == ours
            assert write(ours, version) == encode(build(theirs))


def test_defaults_are_the_schemas_own_where_they_have_one() -> None:
    for cls in messages():
        *_, (_, newest) = versions(cls)
        theirs = {field.name: field.default for field in fields(newest)}
        for field in fields(cls):
            default = theirs.get(field.name, MISSING)
            if is_dataclass(default):
                default = from_entity(type(field.default), default)
            if MISSING not in (default, field.default):
                assert field.default == default, (cls.__name__, field.name)


def test_metadata_levels_are_without_gap_up_to_what_is_supported() -> None:
    assert [each.level for each in METADATA_LEVELS] == list(
        range(1, SUPPORTED_FEATURES[METADATA_VERSION].max_version + 1)
    )
    assert {each.level for each in METADATA_LEVELS if each.changes_metadata} == {
        *(1, 3, 5, 6, 7, 8, 11, 13, 14, 15, 17, 23, 30),
    }
