"""Streams groups together with groups of other kinds: reuse of ids, offsets, listing, deletion (KIP-1071)."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.groups.fold import assert_same
from tests.unit.coordinator.groups.streams.harness import GROUP, STATEFUL, Metadata, StreamsRoom

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
    Caller,
    DeletePartition,
    DeleteTopic,
    FetchGroup,
    FetchTopic,
    JoinGroupRequest,
    JoinProtocol,
    ListedGroup,
    ListGroupsRequest,
    OffsetDeleteRequest,
)

NONE = ErrorCode.NONE


def commit(
    room: StreamsRoom, *places: tuple[str, int], version: int = 9, member: str = "", epoch: int = -1
) -> ErrorCode:
    """Commit offset 7 of partitions."""
    topics = [(topic, ZERO_ID, [(partition, 7, -1, "")]) for topic, partition in places]
    request = CommitRequest(GROUP, topics, version=version, member_id=member, generation_id_or_member_epoch=epoch)
    ticket = room.ticket()
    room.take(room.shard.on_offset_commit(room.now_ms, ticket, request))
    answer = room.answers[ticket]
    return ErrorCode(answer[0] if isinstance(answer, list) else answer)


def fetch(room: StreamsRoom, member: str | None = None, epoch: int = -1) -> tuple[int, list[int]]:
    """The error of the group, and the offsets of partitions 0 and 1 of "input"."""
    request = FetchGroup(GROUP, (FetchTopic("input", ZERO_ID, (0, 1)),), member, epoch)
    ticket = room.ticket()
    room.take(room.shard.on_offset_fetch(room.now_ms, ticket, request, require_stable=True))
    group = room.answers[ticket]
    return group.error_code, [one.committed_offset for topic in group.topics for one in topic.partitions]


def join_classic(room: StreamsRoom, member: str = "") -> ErrorCode:
    request = JoinGroupRequest(GROUP, 10_000, member, "consumer", (JoinProtocol("range", b""),), 10_000)
    ticket = room.ticket()
    room.take(room.shard.on_join(room.now_ms, ticket, Caller(9, "c", "/h"), request))
    error: ErrorCode = room.answers[ticket].error_code if ticket in room.answers else NONE
    return error


def delete(room: StreamsRoom) -> ErrorCode:
    ticket = room.ticket()
    room.take(room.shard.on_delete_groups(room.now_ms, ticket, (GROUP,)))
    error: ErrorCode = room.answers[ticket][0].error_code
    return error


def empty_group() -> StreamsRoom:
    """A streams group whose member has left."""
    room = StreamsRoom()
    room.beat("m", 0)
    room.beat("m", -1)
    return room


def types(room: StreamsRoom, start: int) -> list[int]:
    """The types of the records from an offset on."""
    return [int.from_bytes(key[:2], "big") for key, _ in room.log[start:]]


def test_the_id_of_a_live_group_cannot_be_reused() -> None:
    room = StreamsRoom()
    room.beat("m", 0)
    assert join_classic(room) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert delete(room) is ErrorCode.NON_EMPTY_GROUP
    assert room.shard.describe(6, GROUP).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_consumer_group_takes_no_streams_id() -> None:
    for room in (StreamsRoom(), empty_group()):
        room.beat("m", 0)
        ticket = room.ticket()
        request = ConsumerGroupHeartbeatRequest(
            GROUP, "c", 0, rebalance_timeout_ms=1, subscribed_topic_names=("input",), topic_partitions=()
        )
        room.take(room.shard.on_consumer_heartbeat(room.now_ms, ticket, Caller(1, "c", "/h"), request))
        assert room.answers[ticket].error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_becomes_classic() -> None:
    room = empty_group()
    assert commit(room, ("input", 0)) is NONE
    before = len(room.log)
    assert join_classic(room) is ErrorCode.MEMBER_ID_REQUIRED
    assert types(room, before) == [20, 17, 23, 2]
    assert not room.shard.modern_groups
    assert fetch(room) == (NONE, [7, -1])
    again = room.reloaded()
    assert list(again.shard.groups) == [GROUP]
    assert_same(room, again)


def test_a_failed_conversion_to_classic_is_rolled_back() -> None:
    room = empty_group()
    room.holds_appends = True
    join_classic(room)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not room.shard.groups
    assert room.streams_group.state == "Empty"
    assert room.streams_group.topology is not None


def test_a_simple_group_becomes_a_streams_group() -> None:
    room = StreamsRoom()
    assert commit(room, ("input", 0)) is NONE
    before = len(room.log)
    assert room.error("m", 0) is NONE
    assert types(room, before) == [2, 19, 23, 17, 21, 20, 22]
    assert not room.shard.groups
    assert fetch(room) == (NONE, [7, -1])
    assert room.reloaded().streams_group.members.keys() == {"m"}


def test_a_live_classic_group_stays() -> None:
    room = StreamsRoom()
    join_classic(room)
    member = "c-0001"
    room.pass_time(1)
    assert join_classic(room, member) is NONE
    room.pass_time(3_000)
    assert room.shard.groups[GROUP].state is not GroupState.EMPTY
    assert room.error("m", 0) is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_offset_before_the_group_makes_no_simple_group() -> None:
    """Compaction may leave the records in this order (KAFKA-20254)."""
    room = StreamsRoom()
    commit(room, ("input", 0))
    offset = room.log[-1]
    room.beat("m", 0)
    room.beat("m", -1)
    room.log = [offset, *(entry for entry in room.log if entry[0][:2] != b"\0\2" and entry != offset)]
    again = room.reloaded()
    assert not again.shard.groups
    assert fetch(again) == (NONE, [7, -1])


class TestOffsets:
    """Commits and fetches of members (KIP-1251)."""

    def test_the_epoch_of_the_member(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        assert commit(room, ("input", 0), member="m", epoch=epoch) is NONE
        assert commit(room, ("input", 0), member="m", epoch=epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(room, ("input", 0), member="n", epoch=epoch) is ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(room, ("input", 0)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(room, ("input", 0), member="m", epoch=epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
        assert fetch(room, "m", epoch) == (NONE, [7, -1])
        assert fetch(room, "m", epoch - 1)[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert fetch(room, "n", epoch)[0] == ErrorCode.UNKNOWN_MEMBER_ID
        assert fetch(room) == (NONE, [7, -1])

    def test_an_older_epoch_needs_the_task_since_then(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0)
        room.beat("n", 0)
        room.beat("m", 2)
        room.owning("m", 2, 0, 1)
        assert room.streams_group.members["m"].member_epoch == 3
        assert commit(room, ("input", 0), member="m", epoch=2) is NONE
        assert commit(room, ("input", 0), ("input", 2), member="m", epoch=2) is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(room, ("other", 0), member="m", epoch=2) is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(room, ("input", 0), member="m", epoch=1) is ErrorCode.STALE_MEMBER_EPOCH

    def test_a_task_that_waits_for_its_revocation_still_commits(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0)
        room.beat("n", 0)
        room.beat("m", 2)
        room.beat("o", 0)
        room.owning("m", 2, 0, 1)
        held = room.streams_group.members["m"]
        for partition in range(4):
            is_held = any(partition in tasks.active.get("0", {}) for tasks in (held.assigned, held.pending_revocation))
            expected = NONE if is_held else ErrorCode.STALE_MEMBER_EPOCH
            assert commit(room, ("input", partition), member="m", epoch=2) is expected

    def test_offsets_of_topics_that_are_read_are_not_deleted(self) -> None:
        room = StreamsRoom(metadata=Metadata(input=4, store_changelog=4))
        room.beat("m", 0, topology=STATEFUL)

        def removed(topic: str) -> ErrorCode:
            ticket = room.ticket()
            request = OffsetDeleteRequest(GROUP, (DeleteTopic(topic, (DeletePartition(0),)),))
            room.take(room.shard.on_offset_delete(room.now_ms, ticket, request))
            error: ErrorCode = room.answers[ticket].topics[0].partitions[0].error_code
            return error

        assert removed("input") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert removed("store-changelog") is NONE
        room.beat("m", -1)
        assert removed("input") is NONE

    def test_offsets_of_an_empty_group_expire_with_it(self) -> None:
        room = empty_group()
        commit(room, ("input", 0))
        room.pass_time(room.config.offsets_retention_ms + room.config.offsets_retention_check_interval_ms)
        assert not room.shard.modern_groups
        assert not room.shard.offsets_of(GROUP)
        assert not room.reloaded().shard.modern_groups


def test_groups_are_listed_in_their_committed_state() -> None:
    room = StreamsRoom()
    room.holds_appends = True
    room.beat_later("m", 0)
    assert room.shard.list_groups(ListGroupsRequest()) == []
    room.commit_all()
    listed = [ListedGroup(GROUP, "streams", "Stable", "streams")]
    assert room.shard.list_groups(ListGroupsRequest()) == listed
    assert room.shard.list_groups(ListGroupsRequest(("stable",), ("STREAMS",))) == listed
    assert room.shard.list_groups(ListGroupsRequest((), ("consumer",))) == []


def test_a_deleted_group_forgets_its_topology() -> None:
    room = empty_group()
    before = len(room.log)
    assert delete(room) is NONE
    assert types(room, before) == [20, 17, 23]
    assert delete(room) is ErrorCode.GROUP_ID_NOT_FOUND
    assert room.describe().error_code is ErrorCode.GROUP_ID_NOT_FOUND
    room.create(store_changelog=4)
    assert room.error("m", 0, topology=STATEFUL) is NONE
    assert room.reloaded().streams_group.topology == STATEFUL


@pytest.mark.parametrize("kind", ["classic", "absent"])
def test_a_description_of_another_group(kind: str) -> None:
    room = StreamsRoom()
    if kind == "classic":
        join_classic(room)
    assert room.describe().error_code is ErrorCode.GROUP_ID_NOT_FOUND
