"""Offsets, listing, deletion and loading of consumer groups (KIP-848)."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.consumer.member import MemberState
from klamm.coordinator.groups.consumer.records import CurrentAssignment, CurrentAssignmentRecord, MemberRecord
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.groups.streams.records import StreamsMetadata, StreamsRecord
from klamm.coordinator.runtime.log import LoadedRecord, LogRecord, Producer, RecordError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import DeletePartition, DeleteTopic, ListGroupsRequest, OffsetDeleteRequest

from .consumer_room import GROUP, INTERVAL_MS, REBALANCE_MS, ConsumerRoom, T, U
from .test_consumer_changes import settle
from .test_consumer_heartbeats import halved

NONE = ErrorCode.NONE
STALE = ErrorCode.STALE_MEMBER_EPOCH


def commit(room: ConsumerRoom, member_id: str, epoch: int, *partitions: int, version: int = 9) -> ErrorCode:
    """The result of a commit for some partitions of t, which is the same for all."""
    offsets = {("t", partition): 7 for partition in partitions or (0,)}
    ticket = room.commit_later(
        offsets, version=version, generation_id=epoch, member_id=member_id, group_id=GROUP, topic_id=T.topic_id
    )
    return ErrorCode(room.answers[ticket])


def test_a_commit_at_the_epoch_of_the_member() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    assert commit(room, "m1", first.epoch) is NONE
    assert commit(room, "m1", first.epoch + 1) is STALE
    assert commit(room, "m1", first.epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(room, "stranger", first.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_at_an_older_epoch_in_which_the_member_had_the_partition() -> None:
    room = ConsumerRoom()
    first, second = halved(room)
    assert (first.epoch, second.epoch) == (3, 3)
    assert commit(room, "m1", 2, 0, 1, 2) is NONE
    assert commit(room, "m1", 2, 0, 3) is STALE, "3 is not its own"
    assert commit(room, "m2", 2, 3) is STALE, "it has 3 since epoch 3"
    assert commit(room, "m2", 3, 3) is NONE


def test_a_partition_pending_revocation_may_be_committed() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    room.pass_time(1_000)
    room.joined("m2")
    first.beat()
    assert first.owned == {"t": (0, 1, 2)}
    assert commit(room, "m1", 2, 5) is NONE


def test_a_fetch_at_a_stale_epoch() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    commit(room, "m1", first.epoch)
    fetch = room.fetch_later({"t": (0,)}, group_id=GROUP, member_id="m1", member_epoch=first.epoch)
    assert room.answers[fetch].topics[0].partitions[0].committed_offset == 7
    for member_id, epoch, error in (
        ("m1", first.epoch - 1, STALE),
        ("m1", first.epoch + 1, STALE),
        ("m2", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        stale = room.fetch_later({"t": (0,)}, group_id=GROUP, member_id=member_id, member_epoch=epoch)
        assert room.answers[stale].error_code == error
    anonymous = room.fetch_later({"t": (0,)}, group_id=GROUP)
    assert room.answers[anonymous].error_code == NONE


def join_later(room: ConsumerRoom, member_id: str) -> None:
    """A member joins; its record has not been committed yet."""
    room.heartbeat_of_later(
        member_id, 0, subscribed_topic_names=("t",), rebalance_timeout_ms=REBALANCE_MS, topic_partitions=()
    )


def test_a_fetch_compares_the_epoch_that_is_committed() -> None:
    """Like offsets, the member is read below the high watermark; a stable fetch uses and awaits the newest state."""
    room = ConsumerRoom()
    first = room.joined("m1")
    committed = first.epoch
    room.pass_time(INTERVAL_MS)
    room.joined("m2")
    room.holds_appends = True
    room.heartbeat_of_later("m1", committed)
    kept = room.owned_topics({"t": (0, 1, 2)})
    room.heartbeat_of_later("m1", committed, topic_partitions=kept)
    newest = room.consumers.members["m1"].member_epoch
    assert newest > committed

    def fetch(member_id: str, epoch: int, *, require_stable: bool = False) -> int:
        return room.fetch_later(
            {"t": (0,)}, group_id=GROUP, member_id=member_id, member_epoch=epoch, stable=require_stable
        )

    def error(ticket: int) -> ErrorCode:
        return ErrorCode(room.answers[ticket].error_code)

    assert error(fetch("m1", committed)) is NONE
    assert error(fetch("m1", newest)) is STALE
    assert error(fetch("m1", committed, require_stable=True)) is STALE
    stable = fetch("m1", newest, require_stable=True)
    assert stable not in room.answers
    join_later(room, "m3")
    assert error(fetch("m3", room.consumers.members["m3"].member_epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    room.commit_all()
    assert error(stable) is NONE
    assert error(fetch("m1", newest)) is NONE
    assert error(fetch("m1", committed)) is STALE
    assert error(fetch("m3", room.consumers.members["m3"].member_epoch)) is NONE


def test_a_fetch_of_a_group_that_is_not_committed_yet_has_no_offsets() -> None:
    room = ConsumerRoom()
    room.holds_appends = True
    join_later(room, "m1")
    fetch = room.fetch_later({"t": (0,)}, group_id=GROUP, member_id="m1", member_epoch=7)
    assert room.answers[fetch].error_code == NONE
    assert room.answers[fetch].topics[0].partitions[0].committed_offset == -1


def test_a_recreated_topic_has_no_offset() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    commit(room, "m1", first.epoch)
    fetch = room.fetch_later({"t": (0,)}, group_id=GROUP, topic_id=b"x" * 16)
    assert room.answers[fetch].topics[0].partitions[0].committed_offset == -1


def test_a_commit_without_a_member() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    assert commit(room, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    first.leave()
    assert commit(room, "", -1) is NONE


def test_transactional_commits_of_members() -> None:
    room = ConsumerRoom()
    first, _ = halved(room)
    producer = Producer(7, 0)

    def in_transaction(epoch: int, member_id: str, topic: str = "t") -> ErrorCode:
        ticket = room.commit_in_transaction_later(
            {(topic, 0): 9}, producer, generation_id=epoch, member_id=member_id, group_id=GROUP
        )
        return ErrorCode(room.answers[ticket])

    assert in_transaction(-1, "") is NONE
    assert in_transaction(first.epoch, "m1") is NONE
    assert in_transaction(2, "m1") is NONE
    assert in_transaction(first.epoch + 1, "m1") is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(2, "m2") is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(2, "m1", "missing") is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(2, "m3") is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    room = ConsumerRoom(T, U)
    first = room.joined("m1")
    commit(room, "m1", first.epoch)
    room.commit_later({("u", 0): 1}, generation_id=first.epoch, member_id="m1", group_id=GROUP)
    topics = tuple(DeleteTopic(name, (DeletePartition(0),)) for name in ("t", "u"))
    ticket = room.ticket()
    room.take(room.shard.on_offset_delete(room.now_ms, ticket, OffsetDeleteRequest(GROUP, topics)))
    errors = {topic.name: topic.partitions[0].error_code for topic in room.answers[ticket].topics}
    assert errors == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": NONE}
    assert room.fetch(group_id=GROUP) == {("t", 0): 7}


def listed(room: ConsumerRoom, *, types: tuple[str, ...] = (), states: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    groups = room.shard.list_groups(ListGroupsRequest(states, types))
    return [(group.group_id, group.group_state) for group in groups]


def test_groups_are_listed_by_type_and_state() -> None:
    room = ConsumerRoom()
    room.joined("m1")
    room.commit_offset(group_id="simple")
    assert listed(room) == [("simple", "Empty"), (GROUP, "Stable")]
    assert listed(room, types=("CONSUMER",)) == [(GROUP, "Stable")]
    assert listed(room, types=("classic",)) == [("simple", "Empty")]
    assert listed(room, types=("foo",)) == []
    assert listed(room, states=("stable",)) == [(GROUP, "Stable")]
    (group,) = room.shard.list_groups(ListGroupsRequest((), ("consumer",)))
    assert (group.protocol_type, group.group_type) == ("consumer", "consumer")


def test_a_list_shows_the_committed_state() -> None:
    room = ConsumerRoom()
    room.holds_appends = True
    joining = room.heartbeat_of_later(
        "m1", 0, subscribed_topic_names=("t",), rebalance_timeout_ms=1, topic_partitions=()
    )
    assert listed(room) == []
    assert joining not in room.answers
    room.commit()
    assert listed(room) == [(GROUP, "Stable")]
    assert joining in room.answers
    room.heartbeat_of_later("m1", -1)
    assert listed(room) == [(GROUP, "Stable")]
    room.commit()
    assert listed(room) == [(GROUP, "Empty")]


def test_a_reload_keeps_ids_epochs_and_targets() -> None:
    room = ConsumerRoom()
    first, second = halved(room)
    again = room.reloaded()
    assert again.described() == room.described()
    first.room = second.room = again
    again.pass_time(44_000)
    written = len(again.log)
    assert first.beat().member_epoch == 3
    assert len(again.log) == written
    again.pass_time(1_000)
    assert list(again.consumers.members) == ["m1"], "the session of m2 began with the load"


def test_the_first_heartbeat_after_a_load_checks_the_metadata() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    image = room.image
    room.add_partitions(T, 1)
    changed, room.image = room.image, image
    again = room.reloaded()
    again.image = changed
    again.pass_time(1_000)
    first.room = again
    assert first.beat().member_epoch == 3
    assert first.owned == {"t": (0, 1, 2, 3, 4, 5, 6)}


def current(member_id: str, epoch: int, *partitions: int) -> LogRecord:
    owned = {T.topic_id: dict.fromkeys(partitions, epoch)} if partitions else {}
    return CurrentAssignmentRecord(
        GROUP, member_id, CurrentAssignment(epoch, epoch, MemberState.STABLE, owned)
    ).encoded()


def load(*records: LogRecord) -> GroupShard:
    shard = ConsumerRoom().shard
    for offset, (key, value) in enumerate(records):
        shard.replay(LoadedRecord(offset, key, value))
    return shard


def test_compaction_may_hide_a_revocation() -> None:
    shard = load(current("m1", 5, 0), current("m2", 7, 0), current("m1", 8))
    group = shard.modern_groups[GROUP]
    assert {member_id: member.assigned for member_id, member in group.members.items()} == {
        "m1": {},
        "m2": {T.topic_id: {0: 7}},
    }
    with pytest.raises(RecordError, match="is assigned at epoch 7 while it is owned at 7"):
        load(current("m1", 7, 0), current("m2", 7, 0))


def test_tombstones_out_of_order_fail_the_load() -> None:
    member = MemberRecord(GROUP, "m1", None).encoded()
    with pytest.raises(RecordError, match="member m1 is removed before its assignment"):
        load(current("m1", 5, 0), member)
    assert load(current("m1", 5, 0), CurrentAssignmentRecord(GROUP, "m1", None).encoded(), member)
    assert not load(member).modern_groups, "a tombstone of something absent has no effect"


def test_ids_of_other_kinds_are_rejected() -> None:
    streams = StreamsRecord(RecordType.STREAMS_GROUP_METADATA, GROUP, StreamsMetadata(1))
    room = ConsumerRoom(log=[streams.encoded()])
    for epoch in (0, 1, -1):
        answer = room.heartbeat_of("m", epoch, subscribed_topic_names=(), rebalance_timeout_ms=1, topic_partitions=())
        assert answer.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert room.described().error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_simple_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    room = ConsumerRoom()
    room.commit_offset(5, topic="t", group_id=GROUP)
    written = len(room.log)
    room.joined("m1")
    assert room.types(written) == [-2, 5, 3, 7, 6, 8]
    assert not room.shard.groups
    for one in (room, room.reloaded()):
        assert one.fetch(group_id=GROUP) == {("t", 0): 5}
        assert list(one.shard.modern_groups) == [GROUP]


def test_an_empty_consumer_group_becomes_a_classic_one() -> None:
    room = ConsumerRoom()
    room.joined("m1").leave()
    written = len(room.log)
    assert room.join(group_id=GROUP).error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert room.types(written) == [-6, -4, -3, 2]
    for one in (room, room.reloaded()):
        assert not one.shard.modern_groups
        assert list(one.shard.groups) == [GROUP]


def test_an_empty_group_is_deleted_and_one_with_members_is_not() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    commit(room, "m1", first.epoch)

    def delete() -> ErrorCode:
        ticket = room.ticket()
        room.take(room.shard.on_delete_groups(room.now_ms, ticket, (GROUP,)))
        return ErrorCode(room.answers[ticket][0].error_code)

    assert delete() is ErrorCode.NON_EMPTY_GROUP
    first.leave()
    written = len(room.log)
    assert delete() is NONE
    assert room.types(written) == [-1, -6, -4, -3]
    assert not room.reloaded().shard.modern_groups
    assert delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_describe_shows_targets_and_partitions_pending_revocation() -> None:
    room = ConsumerRoom()
    first = room.joined("m1", rack_id="r", instance_id="i")
    room.pass_time(1_000)
    second = room.joined("m2")
    first.beat()
    described = room.described()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    one, other = described.members
    assert (one.member_id, one.instance_id, one.rack_id, one.member_epoch, one.member_type) == ("m1", "i", "r", 2, 1)
    assert one.assignment.topic_partitions[0].partitions == (0, 1, 2, 3, 4, 5)
    assert one.target_assignment.topic_partitions[0].partitions == (0, 1, 2)
    assert (other.assignment.topic_partitions, other.subscribed_topic_names) == ((), ("t",))
    settle(room, first, second)
    assert room.described().group_state == "Stable"
    assert room.shard.describe(6, GROUP).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert room.shard.describe(5, GROUP).group_state == "Dead"


def test_a_failed_append_rolls_back_a_heartbeat() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    before = room.described()
    room.pass_time(1_000)
    room.holds_appends = True
    joining = room.heartbeat_of_later(
        "m2", 0, subscribed_topic_names=("t",), rebalance_timeout_ms=1, topic_partitions=()
    )
    beating = room.heartbeat_of_later("m1", first.epoch)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert {room.answers[one].error_code for one in (joining, beating)} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert room.described() == before
    room.holds_appends = False
    assert room.reloaded().described() == before
    settle(room, first, room.joined("m2"))


def test_a_heartbeat_that_awaits_its_commit_fails_when_the_partition_moves() -> None:
    room = ConsumerRoom()
    room.holds_appends = True
    joining = room.heartbeat_of_later(
        "m1", 0, subscribed_topic_names=("t",), rebalance_timeout_ms=1, topic_partitions=()
    )
    room.in_flight.clear()
    room.take(room.hosted.on_unloaded(room.now_ms))
    assert room.answers[joining].error_code is ErrorCode.NOT_COORDINATOR
