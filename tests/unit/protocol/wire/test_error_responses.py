"""The response for a top-level error, for each API and version that Python serves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.messages import codes, request_with_items

from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.error_responses import NoErrorResponse, error_response
from klamm.protocol.wire.kio_classes import request_class

FAILED = ErrorCode.UNKNOWN_SERVER_ERROR
WITHOUT_A_CODE = {(35, 1), (35, 2)}
"""DescribeLogDirs: requests name no directories, and only later versions have a top-level error code."""
EACH = [
    (key, version)
    for key, api in APIS.items()
    if "python" in (api.on_broker, api.on_controller)
    for version in range(api.versions[0], api.versions[1] + 1)
]


@pytest.mark.parametrize(("api_key", "version"), [each for each in EACH if each not in WITHOUT_A_CODE])
def test_each_response_has_the_error(api_key: int, version: int) -> None:
    body = encode(request_with_items(request_class(api_key, version)))
    found = decode_response(api_key, version, error_response(api_key, version, body, FAILED))
    assert set(map(int, codes(found))) == {int(FAILED)}


@pytest.mark.parametrize(("api_key", "version"), sorted(WITHOUT_A_CODE))
def test_directories_without_an_error_field_are_an_empty_list(api_key: int, version: int) -> None:
    """`DescribeLogDirsRequest.getErrorResponse` of Apache Kafka: its admin client treats an empty list as an error."""
    body = encode(request_with_items(request_class(api_key, version)))
    assert decode_response(api_key, version, error_response(api_key, version, body, FAILED)).results == ()


def test_a_response_without_an_error_field_is_not_created() -> None:
    """CreateAcls, which klamm does not serve yet."""
    body = encode(request_with_items(request_class(30, 3)))
    with pytest.raises(NoErrorResponse):
        error_response(30, 3, body, FAILED)


def test_a_malformed_request_has_none() -> None:
    with pytest.raises(MalformedRequest):
        error_response(19, 7, b"\xff", FAILED)


def answer_to(api_key: int, version: int, **values: object) -> Any:
    body = encode(build(request_class(api_key, version), **values))
    return decode_response(api_key, version, error_response(api_key, version, body, FAILED))


def test_items_are_named_as_in_the_request() -> None:
    topics = [{"name": "a", "num_partitions": 3}, {"name": "b", "num_partitions": 4}]
    found = answer_to(19, 7, topics=topics)
    assert [(topic.name, int(topic.error_code), topic.error_message) for topic in found.topics] == [
        ("a", -1, None),
        ("b", -1, None),
    ]
    found = answer_to(42, 2, groups_names=["g", "h"])
    assert [(result.group_id, int(result.error_code)) for result in found.results] == [("g", -1), ("h", -1)]
    found = answer_to(32, 4, resources=[{"resource_type": 4, "resource_name": "1"}])
    [resource] = found.results
    assert (resource.resource_type, resource.resource_name, int(resource.error_code)) == (4, "1", -1)


def test_partitions_are_named_as_in_the_request() -> None:
    found = answer_to(61, 0, topics=[{"name": "t", "partition_indexes": [2, 5]}])
    [topic] = found.topics
    assert topic.name == "t"
    assert [(each.partition_index, int(each.error_code)) for each in topic.partitions] == [(2, -1), (5, -1)]
    found = answer_to(9, 1, group_id="g", topics=[{"name": "t", "partition_indexes": [2]}])
    [partition] = found.topics[0].partitions
    assert (partition.partition_index, partition.committed_offset, int(partition.error_code)) == (2, -1, -1)


def test_a_top_level_error_has_no_items() -> None:
    found = answer_to(13, 5, group_id="g", members=[{"member_id": "m"}])
    assert (int(found.error_code), found.members) == (-1, ())
    found = answer_to(9, 8, groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [2]}]}])
    assert [(each.group_id, int(each.error_code), each.topics) for each in found.groups] == [("g", -1, ())]


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_by_names_has_it_in_every_partition(version: int) -> None:
    """`FetchRequest.getErrorResponse` of Apache Kafka: old clients know no top-level error code."""
    found = answer_to(1, version, topics=[{"topic": "t", "partitions": [{"partition": 3}, {"partition": 5}]}])
    [topic] = found.responses
    assert topic.topic == "t"
    assert [(each.partition_index, int(each.error_code)) for each in topic.partitions] == [(3, -1), (5, -1)]
    assert {(each.high_watermark, each.last_stable_offset, each.records) for each in topic.partitions} == {
        (-1, -1, b"")
    }
    if version >= 7:
        assert int(found.error_code) == -1


def test_a_fetch_by_ids_has_it_once() -> None:
    found = answer_to(1, 13, topics=[{"topic_id": bytes(15) + b"x", "partitions": [{"partition": 3}]}])
    assert (int(found.error_code), found.responses) == (-1, ())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_has_it_in_every_partition(version: int) -> None:
    """`ElectLeadersRequest.getErrorResponse` of Apache Kafka."""
    found = answer_to(43, version, topic_partitions=[{"topic": "t", "partitions": [2, 5]}])
    [topic] = found.replica_election_results
    assert topic.topic == "t"
    assert [(each.partition_id, int(each.error_code)) for each in topic.partition_result] == [(2, -1), (5, -1)]
    if version >= 1:
        assert int(found.error_code) == -1
    assert answer_to(43, version, topic_partitions=None).replica_election_results == ()


def test_items_of_plain_arrays_are_named() -> None:
    entity = [{"entity_type": "user", "entity_name": "a"}, {"entity_type": "client-id", "entity_name": None}]
    found = answer_to(49, 1, entries=[{"entity": entity, "ops": []}])
    [entry] = found.entries
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", "a"), ("client-id", None)]
    assert int(entry.error_code) == -1
