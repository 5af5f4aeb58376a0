"""OffsetCommit, OffsetFetch, OffsetDelete: stored offsets, and what reads return."""

from __future__ import annotations

import pytest

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.records import OffsetCommit, decode
from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
    DeletePartition,
    DeleteTopic,
    FetchedGroup,
    FetchedPartition,
    JoinProtocol,
    ListGroupsRequest,
    OffsetDeleteRequest,
)

from .harness import GROUP, Room

ID_A, ID_B = b"a" * 16, b"b" * 16


def commit_record(room: Room) -> OffsetCommit:
    record = decode(*room.log[-1])
    assert isinstance(record, OffsetCommit)
    return record


def test_a_commit_is_stored_with_all_its_fields() -> None:
    room = Room()
    assert room.commit_offset(42, metadata="note", topic_id=ID_A) is ErrorCode.NONE
    value = commit_record(room).value
    assert value is not None
    assert (value.offset, value.leader_epoch, value.metadata, value.topic_id) == (42, 5, "note", ID_A)
    assert (value.commit_timestamp_ms, value.expire_timestamp_ms) == (room.now_ms, -1)
    ticket = room.fetch_later({"topic": (0, 1)})
    (topic,) = room.answers[ticket].topics
    assert topic.partitions == (FetchedPartition(0, 42, 5, "note"), FetchedPartition(1, -1, -1, ""))


def test_a_simple_group_has_no_record_of_its_own() -> None:
    """It exists only through its offsets; there is no GroupMetadata record."""
    room = Room()
    room.commit_offset()
    assert len(room.log) == 1
    assert (room.group.state, room.group.protocol_type, room.group.generation_id) == (GroupState.EMPTY, None, 0)


def test_a_retention_time_becomes_an_expiry() -> None:
    room = Room()
    room.commit_offset(retention_time_ms=1_000)
    value = commit_record(room).value
    assert value is not None
    assert value.expire_timestamp_ms == room.now_ms + 1_000
    assert room.commit_offset(retention_time_ms=2**63 - 1) is ErrorCode.NONE


def test_metadata_is_measured_in_utf16_units() -> None:
    room = Room(GroupConfig(offset_metadata_max_bytes=10))
    assert room.commit_offset(metadata="x" * 10) is ErrorCode.NONE
    assert room.commit_offset(metadata="ü" * 10) is ErrorCode.NONE
    assert room.commit_offset(metadata="x" * 11) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert room.commit_offset(metadata="😀" * 5) is ErrorCode.NONE
    assert room.commit_offset(metadata="😀" * 6) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_the_valid_partitions_of_a_commit_are_stored() -> None:
    room = Room()
    ticket = room.commit_later({("topic", 0): 1, ("topic", 1): 2, ("other", 0): 3}, metadata=None)
    assert room.answers[ticket] == ErrorCode.NONE
    assert room.fetch() == {("topic", 0): 1, ("topic", 1): 2, ("other", 0): 3}


def test_only_the_partition_with_too_much_metadata_is_rejected() -> None:
    room = Room(GroupConfig(offset_metadata_max_bytes=10))
    long, short = ((index, 3, 5, "x" * length) for index, length in ((0, 11), (1, 10)))
    request = CommitRequest(GROUP, [("a", ZERO_ID, [long, short]), ("b", ZERO_ID, [short])])
    room.take(room.shard.on_offset_commit(0, "t", request))
    assert room.answers["t"] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE, ErrorCode.NONE]
    assert room.fetch() == {("a", 1): 3, ("b", 1): 3}


def test_an_error_of_the_group_is_on_every_partition() -> None:
    room = Room()
    room.make_stable()
    ticket = room.commit_later({("topic", 0): 1, ("other", 5): 3})
    assert room.answers[ticket] == ErrorCode.UNKNOWN_MEMBER_ID


def test_generation_minus_one_with_a_member_is_checked() -> None:
    room = Room()
    (joined,) = room.make_stable()
    assert room.commit_offset(member_id=joined.member_id) is ErrorCode.ILLEGAL_GENERATION
    assert room.commit_offset(group_instance_id="i1") is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_accepts_commits_without_a_generation() -> None:
    room = Room()
    (joined,) = room.make_stable()
    room.leave(joined.member_id)
    assert room.commit_offset(member_id="stranger") is ErrorCode.NONE
    assert room.commit_offset(member_id="stranger", generation_id=0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_answer_waits_until_the_records_are_committed() -> None:
    room = Room()
    room.holds_appends = True
    ticket = room.commit_later({("topic", 0): 1})
    assert ticket not in room.answers
    room.commit()
    assert room.answers[ticket] == ErrorCode.NONE


def test_commits_that_come_meanwhile_share_the_next_append() -> None:
    room = Room()
    room.holds_appends = True
    tickets = [room.commit_later({("topic", index): index}) for index in range(5)]
    room.commit()
    assert list(room.answers) == tickets[:1]
    assert room.appending is not None
    assert len(room.appending) == 4
    room.commit()
    assert list(room.answers) == tickets
    assert room.appending is None


def test_a_batch_is_not_larger_than_the_topic_allows() -> None:
    room = Room(GroupConfig(batch_bytes_max=400))
    room.holds_appends = True
    for index in range(10):
        room.commit_later({("topic", index): index})
    sizes = []
    while room.appending is not None:
        sizes.append(len(room.appending))
        room.commit()
    assert sum(sizes) == 10
    assert max(sizes) < 6
    assert len(room.answers) == 10


def test_an_operation_larger_than_a_batch_is_rejected_and_changes_nothing() -> None:
    room = Room(GroupConfig(batch_bytes_max=400))
    ticket = room.commit_later({("topic", index): index for index in range(20)})
    assert room.answers[ticket] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert room.fetch() == {}
    assert GROUP not in room.shard.groups


def test_plain_reads_see_the_high_watermark_and_stable_ones_wait() -> None:
    room = Room()
    room.commit_offset(1)
    room.holds_appends = True
    room.commit_later({("topic", 0): 2})
    room.commit_later({("topic", 0): 3, ("topic", 1): 9})
    assert room.fetch({"topic": (0, 1)}) == {("topic", 0): 1, ("topic", 1): -1}
    assert room.fetch() == {("topic", 0): 1}
    stable = room.fetch_later({"topic": (0,)}, stable=True)
    room.commit()
    assert room.fetch() == {("topic", 0): 2}
    assert stable not in room.answers
    room.commit()
    assert room.fetch() == {("topic", 0): 3, ("topic", 1): 9}
    assert room.answers[stable].topics[0].partitions[0].committed_offset == 3


def test_a_new_group_is_visible_to_its_members() -> None:
    """Its first members get responses before its record is committed."""
    room = Room()
    room.holds_appends = True
    room.join_later()
    assert room.shard.describe(6, GROUP).group_state == "Empty"
    assert [group.group_id for group in room.shard.list_groups(ListGroupsRequest())] == [GROUP]


def test_a_deleted_group_is_visible_until_its_tombstone_is_committed() -> None:
    room = Room()
    room.commit_offset()
    room.holds_appends = True
    room.take(room.shard.on_delete_groups(room.now_ms, room.ticket(), (GROUP,)))
    assert room.shard.describe(6, GROUP).group_state == "Empty"
    assert len(room.shard.list_groups(ListGroupsRequest())) == 1
    room.commit()
    assert room.shard.describe(6, GROUP).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert room.shard.list_groups(ListGroupsRequest()) == []


ERRORS = [
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
]


@pytest.mark.parametrize(("error", "commit_told", "fetch_told"), ERRORS)
def test_a_failed_append_rolls_back_all_that_depends_on_it(
    error: ErrorCode, commit_told: ErrorCode, fetch_told: ErrorCode
) -> None:
    room = Room()
    room.commit_offset(1)
    room.holds_appends = True
    tickets = [room.commit_later({("topic", 0): 2}), room.commit_later({("topic", 0): 3, ("other", 0): 1})]
    stable = room.fetch_later({"topic": (0,)}, stable=True)
    room.fail(error)
    for ticket in tickets:
        assert room.answers[ticket] == commit_told
    assert room.answers[stable].error_code == fetch_told
    assert room.appending is None
    assert room.fetch() == {("topic", 0): 1}
    assert list(room.shard.offsets_of(GROUP)) == ["topic"]
    room.holds_appends = False
    assert room.commit_offset(4) is ErrorCode.NONE
    assert room.fetch() == {("topic", 0): 4}


def test_a_failed_first_commit_leaves_no_group() -> None:
    room = Room()
    room.holds_appends = True
    room.commit_later({("topic", 0): 2})
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not room.shard.groups
    assert room.shard.offsets_of(GROUP) == {}


def test_a_commit_that_times_out_may_still_be_committed() -> None:
    room = Room()
    room.holds_appends = True
    ticket = room.commit_later({("topic", 0): 2})
    room.pass_time(4_999)
    assert ticket not in room.answers
    room.pass_time(1)
    assert room.answers[ticket] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.commit()
    assert room.fetch() == {("topic", 0): 2}


def test_a_heartbeat_waits_for_earlier_records() -> None:
    room = Room()
    (joined,) = room.make_stable()
    room.holds_appends = True
    room.commit_later({("topic", 0): 1}, generation_id=1, member_id=joined.member_id)
    ticket = room.heartbeat_later(joined.member_id, 1)
    assert ticket not in room.answers
    room.commit()
    assert room.answers[ticket] is ErrorCode.NONE


def test_an_offset_of_a_recreated_topic_is_not_returned() -> None:
    room = Room()
    room.commit_offset(7, topic_id=ID_A)
    assert room.fetch({"topic": (0,)}, topic_id=ID_A) == {("topic", 0): 7}
    assert room.fetch({"topic": (0,)}) == {("topic", 0): 7}
    assert room.fetch({"topic": (0,)}, topic_id=ID_B) == {("topic", 0): -1}
    room.commit_offset(8)
    assert room.fetch({"topic": (0,)}, topic_id=ID_B) == {("topic", 0): 8}


def test_an_absent_group_has_no_offsets() -> None:
    room = Room()
    assert room.answers[room.fetch_later(None)] == FetchedGroup(GROUP)
    assert room.fetch({"topic": (3,)}) == {("topic", 3): -1}


def delete(room: Room, *topics: str) -> dict[str, ErrorCode]:
    request = OffsetDeleteRequest(GROUP, tuple(DeleteTopic(topic, (DeletePartition(0),)) for topic in topics))
    ticket = room.ticket()
    room.take(room.shard.on_offset_delete(room.now_ms, ticket, request))
    answer = room.answers[ticket]
    assert answer.error_code is ErrorCode.NONE
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


def test_offsets_are_deleted_where_nobody_is_subscribed() -> None:
    room = Room()
    (joined,) = room.make_stable()
    room.commit_later({("topic", 0): 1, ("other", 0): 2}, generation_id=1, member_id=joined.member_id)
    assert delete(room, "topic", "other", "never") == {
        "topic": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        "other": ErrorCode.NONE,
        "never": ErrorCode.NONE,
    }
    assert room.fetch() == {("topic", 0): 1}
    assert decode(*room.log[-1]) == OffsetCommit(GROUP, "other", 0, None)


def test_consumers_whose_subscription_cannot_be_read_need_everything() -> None:
    room = Room()
    room.make_stable(protocols=(JoinProtocol("range", b"\x00"),))
    assert delete(room, "any") == {"any": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
