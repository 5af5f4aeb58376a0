"""Versions whose encoding differs from the newest one's."""

from __future__ import annotations

from typing import Any

import pytest

from klamm._engine.groups import CommitRequest
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.group_messages import (
    FetchedGroup,
    FetchedPartition,
    FetchedTopic,
    FetchGroup,
    FetchTopic,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupResponse,
    LeaveMemberResponse,
    LeavingMember,
    OffsetFetchRequest,
)
from klamm.protocol.messages.groups import (
    read_join_group,
    read_leave_group,
    write_join_group,
    write_leave_group,
    write_offset_fetch,
)
from klamm.protocol.topic_info import TopicInfo
from klamm.protocol.wire.codec import (
    build,
    decode_response,
    encode,
    read,
)
from klamm.protocol.wire.kio_classes import request_class

from .images import image_of


def request_body(api_key: int, version: int, **fields: Any) -> bytes:
    """The body of a client's request."""
    return encode(build(request_class(api_key, version), **fields))


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_requests(version: int) -> None:
    partition = {"partition_index": 1, "committed_offset": 2, "committed_leader_epoch": 3, "committed_metadata": "m"}
    topics = [{"name": "t", "topic_id": b"i" * 16, "partitions": [partition]}]
    fields = {"group_id": "g", "generation_id_or_member_epoch": 4, "member_id": "me", "group_instance_id": "i"}
    body = request_body(ApiKey.OFFSET_COMMIT, version, retention_time_ms=5, topics=topics, **fields)
    image = image_of(TopicInfo("t", b"i" * 16, 2))
    request = CommitRequest.read(version, body, image)
    assert request.version == version
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 4, "me")
    assert request.group_instance_id == ("i" if version >= 7 else None)
    assert request.retention_time_ms == (5 if version <= 4 else -1)
    assert request.offsets() == [("t", b"i" * 16, 1, 2, 3 if version >= 6 else -1, "m")]
    assert request.offset_count == 1
    for length in range(len(body)):
        with pytest.raises(ValueError, match=r"\w"):
            CommitRequest.read(version, body[:length], image)
    with pytest.raises(ValueError, match="2 codes for 1 offsets"):
        request.answer([0, 0])


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_requests_name_their_groups(version: int) -> None:
    topics = [{"name": "t", "topic_id": b"i" * 16, "partition_indexes": [1, 2]}]
    group = {"group_id": "g", "member_id": "me", "member_epoch": 7, "topics": topics}
    fields = {"groups": [group]} if version >= 8 else group
    body = request_body(ApiKey.OFFSET_FETCH, version, require_stable=True, **fields)
    request = read(OffsetFetchRequest, version, body)
    assert request.require_stable == (version >= 7)
    topic = FetchTopic("", b"i" * 16, (1, 2)) if version >= 10 else FetchTopic("t", bytes(16), (1, 2))
    member = ("me", 7) if version >= 9 else (None, -1)
    assert request.all_groups(version) == (FetchGroup("g", (topic,), *member),)


@pytest.mark.parametrize("version", range(1, 11))
def test_a_fetch_of_everything(version: int) -> None:
    group = {"group_id": "g", "topics": None}
    if version == 1:
        with pytest.raises(MalformedRequest):
            read(OffsetFetchRequest, 1, b"\x00\x01g\xff\xff\xff\xff")
        return
    fields: dict[str, Any] = {"groups": [group]} if version >= 8 else group
    request = read(OffsetFetchRequest, version, request_body(ApiKey.OFFSET_FETCH, version, **fields))
    assert request.all_groups(version) == (FetchGroup("g", None),)


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_answers(version: int) -> None:
    partition = FetchedPartition(3, 42, 5, "m")
    groups = [FetchedGroup("g", (FetchedTopic("t", b"i" * 16, (partition,)),))]
    answer = decode_response(ApiKey.OFFSET_FETCH, version, write_offset_fetch(version, groups))
    (topic,) = (answer.groups[0] if version >= 8 else answer).topics
    assert (topic.topic_id.bytes if version >= 10 else topic.name) == (b"i" * 16 if version >= 10 else "t")
    found = topic.partitions[0]
    assert (found.partition_index, found.committed_offset, found.metadata, found.error_code) == (3, 42, "m", 0)
    assert version < 5 or found.committed_leader_epoch == 5


@pytest.mark.parametrize("version", range(1, 11))
def test_a_groups_error_is_in_the_field_of_the_version(version: int) -> None:
    code = int(ErrorCode.NOT_COORDINATOR)
    topics = (FetchedTopic("t", b"i" * 16, (FetchedPartition(0, error_code=code),)),)
    answer = decode_response(
        ApiKey.OFFSET_FETCH, version, write_offset_fetch(version, [FetchedGroup("g", topics, code)])
    )
    if version == 1:
        assert answer.topics[0].partitions[0].error_code == code
        return
    group = answer.groups[0] if version >= 8 else answer
    assert (group.error_code, group.topics) == (code, ())


@pytest.mark.parametrize("version", range(10))
def test_join_requests(version: int) -> None:
    protocols = [{"name": name, "metadata": data} for name, data in (("a", b"1"), ("b", b"2"), ("a", b"3"))]
    fields = {"group_id": "g", "session_timeout_ms": 6_000, "rebalance_timeout_ms": 9_000, "member_id": "m"}
    fields |= {"group_instance_id": "i", "protocol_type": "consumer", "protocols": protocols, "reason": "why"}
    request = read_join_group(version, request_body(ApiKey.JOIN_GROUP, version, **fields))
    assert (request.group_id, request.session_timeout_ms, request.member_id) == ("g", 6_000, "m")
    assert request.rebalance_timeout_ms == (9_000 if version >= 1 else 6_000)
    assert request.group_instance_id == ("i" if version >= 5 else None)
    assert request.reason == ("why" if version >= 8 else None)
    assert request.protocols == (JoinProtocol("a", b"1"), JoinProtocol("b", b"2"))


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("name", [None, "", "range"])
def test_a_missing_protocol_is_null_from_version_7_on(version: int, name: str | None) -> None:
    body = write_join_group(version, JoinGroupResponse(ErrorCode.NONE, "m", 3, "consumer", name, "l", True))
    answer = decode_response(ApiKey.JOIN_GROUP, version, body)
    assert answer.protocol_name == (name or (None if version >= 7 else ""))
    assert (answer.member_id, answer.leader, answer.generation_id) == ("m", "l", 3)
    assert version < 9 or answer.skip_assignment


def test_strings_that_no_record_could_hold_are_malformed() -> None:
    """Kafka rejects them too, although the compact encoding allows such lengths."""
    head = b"\x80\x80\x02" + b"g" * 32_767  # a compact string of 32,767 bytes
    rest = bytes(8) + b"\x01\x00\x02c\x01\x00\x00"
    assert read_join_group(9, head + rest).group_id == "g" * 32_767
    with pytest.raises(MalformedRequest):
        read_join_group(9, b"\x81\x80\x02" + b"g" * 32_768 + rest)


@pytest.mark.parametrize("version", range(6))
def test_leaving(version: int) -> None:
    members = [{"member_id": "m", "group_instance_id": "i", "reason": "r"}]
    fields: dict[str, Any] = {"member_id": "m"} if version < 3 else {"members": members}
    request = read_leave_group(version, request_body(ApiKey.LEAVE_GROUP, version, group_id="g", **fields))
    expected = LeavingMember("m", "i" if version >= 3 else None, "r" if version >= 5 else None)
    assert request.members == (expected,)
    response = LeaveGroupResponse(ErrorCode.NONE, (LeaveMemberResponse("m", None, ErrorCode.UNKNOWN_MEMBER_ID),))
    answer = decode_response(ApiKey.LEAVE_GROUP, version, write_leave_group(version, response))
    if version < 3:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert answer.error_code == ErrorCode.NONE
        assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    top = LeaveGroupResponse(ErrorCode.NOT_COORDINATOR)
    answer = decode_response(ApiKey.LEAVE_GROUP, version, write_leave_group(version, top))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
