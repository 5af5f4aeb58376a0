"""Share groups in the group coordinator (KIP-932)."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.share.heartbeats import check_heartbeat
from klamm.coordinator.groups.share.offsets import Alteration, Deletion
from klamm.coordinator.groups.share.records import (
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import ListGroupsRequest
from klamm.protocol.messages.share_groups import AlteredPartitionResult, ShareGroupHeartbeatRequest
from klamm.protocol.topic_info import TopicInfo

from .consumer_room import INTERVAL_MS, SESSION_MS
from .share_room import GROUP, ShareRoom

NONE = ErrorCode.NONE
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
T = TopicInfo("t", b"t" * 16, 3)
U = TopicInfo("u", b"u" * 16, 1)


@pytest.fixture
def room() -> ShareRoom:
    return ShareRoom(T, U)


def code_of(found: object) -> ErrorCode:
    assert isinstance(found, KafkaError), found
    return found.code


class TestFirstHeartbeats:
    def test_a_new_group_gets_its_partitions_with_a_later_heartbeat(self, room: ShareRoom) -> None:
        answer = room.join("a")
        assert (answer.error_code, answer.member_epoch) == (NONE, 2)
        assert answer.assignment is not None
        assert not answer.assignment.topic_partitions
        assert room.types() == [10, 11, 12, 14, 15] or room.types() == [10, 11, 13, 12, 14, 15]
        assert room.states() == {"initializing": {"t": [0, 1, 2]}, "initialized": {}, "deleting": []}
        assert room.create_states() == [(0, 2, -1), (1, 2, -1), (2, 2, -1)]
        assert room.states() == {"initializing": {}, "initialized": {"t": [0, 1, 2]}, "deleting": []}
        early = room.beat("a", 2)
        assert (early.member_epoch, early.assignment) == (2, None), "the interval has not passed"
        room.pass_time(INTERVAL_MS)
        answer = room.beat("a", 2)
        assert answer.member_epoch == 3
        assert room.assigned("a") == {"t": (0, 1, 2)}
        assert answer.assignment is not None
        assert [one.partitions for one in answer.assignment.topic_partitions] == [(0, 1, 2)]
        assert room.beat("a", 3).assignment is None

    def test_states_are_created_after_the_commit_of_the_heartbeat(self, room: ShareRoom) -> None:
        room.holds_appends = True
        room.beat_later("a", 0, subscribed_topic_names=("t",))
        assert not room.effects
        room.commit()
        assert len(room.effects) == 1

    def test_nothing_is_created_for_a_heartbeat_that_failed(self, room: ShareRoom) -> None:
        room.holds_appends = True
        ticket = room.beat_later("a", 0, subscribed_topic_names=("t",))
        room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert room.answers[ticket].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not room.effects
        assert not room.shard.modern_groups

    def test_states_that_cannot_be_created_are_tried_again(self, room: ShareRoom) -> None:
        room.join("a")
        room.create_states(is_done=False)
        assert room.states()["initializing"] == {}
        room.beat("a", 2)
        assert room.states()["initializing"] == {"t": [0, 1, 2]}
        assert len(room.create_states()) == 3

    def test_a_lost_call_is_repeated_after_the_retry_interval(self, room: ShareRoom) -> None:
        """KAFKA-19204."""
        room.join("a")
        room.effects.clear()
        retry_ms = GroupConfig().group_share_initialize_retry_interval_ms
        room.pass_time(retry_ms - 1)
        room.beat("a", 2)
        assert not room.effects
        room.pass_time(1)
        room.beat("a", 2)
        assert len(room.create_states()) == 3

    def test_partitions_are_shared(self) -> None:
        alone = ShareRoom(T._replace(partition_count=1))
        for member_id in "abc":
            alone.join(member_id)
        assert alone.settle(*"abc") == {member_id: {"t": (0,)} for member_id in "abc"}
        room = ShareRoom(T)
        room.join("a")
        room.join("b")
        found = room.settle("a", "b")
        assert sorted(len(one["t"]) for one in found.values()) == [1, 2]


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"member_id": "m" * 37}, None),
            ({"member_id": ""}, None),
            ({"member_id": " "}, "MemberId can't be empty."),
            ({"group_id": " "}, "GroupId can't be empty."),
            ({"rack_id": ""}, "RackId can't be empty."),
            ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
            ({"subscribed_topic_names": ()}, "SubscribedTopicNames must be set in first request."),
            ({"member_epoch": -2}, "MemberEpoch is invalid."),
        ],
    )
    def test_invalid_requests(self, fields: dict[str, object], message: str | None) -> None:
        valid = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ("t",)}
        check_heartbeat(ShareGroupHeartbeatRequest(**valid))  # type: ignore[arg-type]
        with pytest.raises(KafkaError) as raised:
            check_heartbeat(ShareGroupHeartbeatRequest(**(valid | fields)))  # type: ignore[arg-type]
        assert (raised.value.code, raised.value.message) == (ErrorCode.INVALID_REQUEST, message)

    def test_unknown_groups_and_members(self, room: ShareRoom) -> None:
        assert room.beat("a", 2).error_code is NOT_FOUND
        assert room.beat("a", -1).error_code is NOT_FOUND
        room.join("a")
        assert room.beat("b", 2).error_code is ErrorCode.UNKNOWN_MEMBER_ID
        assert room.beat("b", -1).error_code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_epochs(self, room: ShareRoom) -> None:
        room.join("a")
        room.settle("a")
        assert room.share.members["a"].member_epoch == 3
        assert room.beat("a", 4).error_code is ErrorCode.FENCED_MEMBER_EPOCH
        assert room.beat("a", 1).error_code is ErrorCode.FENCED_MEMBER_EPOCH
        assert room.beat("a", 2).member_epoch == 3, "the answer with the new epoch may be lost"
        again = room.join("a")
        assert (again.error_code, again.member_epoch) == (NONE, 3)
        assert again.assignment is not None

    def test_a_full_group(self) -> None:
        room = ShareRoom(T, config=GroupConfig(group_share_max_size=1))
        room.join("a")
        assert room.join("b").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert room.join("a").error_code is NONE

    def test_ids_of_other_groups(self, room: ShareRoom) -> None:
        """Which kinds of groups may reuse an id."""
        room.joined("m")
        assert room.beat("a", 0, group_id="consumers", subscribed_topic_names=("t",)).error_code is NOT_FOUND
        room.commit_offset(5)
        assert room.beat("a", 0, group_id="orders", subscribed_topic_names=("t",)).error_code is NOT_FOUND
        room.join("a")
        assert room.heartbeat_of("m", 0, group_id=GROUP, subscribed_topic_names=("t",)).error_code is not NONE
        room.beat("a", -1)
        assert room.described_share().group_state == "Empty"
        refused = room.heartbeat_of(
            "m", 0, group_id=GROUP, subscribed_topic_names=("t",), rebalance_timeout_ms=5, topic_partitions=()
        )
        assert refused.error_code is NOT_FOUND


class TestChanges:
    def test_another_subscription(self, room: ShareRoom) -> None:
        room.join("a")
        room.settle("a")
        answer = room.beat("a", 3, subscribed_topic_names=("u",))
        assert room.assigned("a") == {}, "topics that are not subscribed go at once"
        assert answer.assignment is not None
        room.create_states()
        assert room.states()["initialized"] == {"t": [0, 1, 2], "u": [0]}, "what was initialized stays"
        assert room.settle("a") == {"a": {"u": (0,)}}

    def test_a_member_leaves(self, room: ShareRoom) -> None:
        room.join("a")
        room.join("b")
        room.settle("a", "b")
        since = len(room.log)
        epoch = room.share.group_epoch
        answer = room.beat("b", -1)
        assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (NONE, -1, 0)
        assert room.types(since) == [-14, -13, -10, 11]
        assert room.share.group_epoch == epoch + 1
        assert room.settle("a") == {"a": {"t": (0, 1, 2)}}

    def test_a_session_ends(self, room: ShareRoom) -> None:
        room.join("a")
        room.pass_time(SESSION_MS - 1)
        room.beat("a", 2)
        room.pass_time(SESSION_MS - 1)
        assert room.share.members
        room.pass_time(1)
        assert not room.share.members
        assert room.share.state == "Empty"

    def test_added_partitions(self, room: ShareRoom) -> None:
        room.join("a")
        room.settle("a")
        room.add_partitions(T, 2)
        assert room.settle("a") == {"a": {"t": (0, 1, 2, 3, 4)}}
        assert room.states()["initialized"] == {"t": [0, 1, 2, 3, 4]}

    def test_a_deleted_topic(self, room: ShareRoom) -> None:
        room.join("a", "t", "u")
        room.settle("a")
        room.delete_topic(T)
        room.take(room.shard.on_topics_deleted(room.now_ms, [("t", T.topic_id)]))
        assert room.states()["initialized"] == {"u": [0]}
        assert room.settle("a") == {"a": {"u": (0,)}}

    def test_a_group_without_members_never_expires(self, room: ShareRoom) -> None:
        room.join("a")
        room.beat("a", -1)
        room.pass_time(30 * 24 * 3_600_000)
        assert room.share.is_empty


class TestOffsets:
    def test_altered_on_a_free_id(self, room: ShareRoom) -> None:
        begun = room.alter("t", p0=7, p1=9, p5=1)
        assert isinstance(begun, Alteration)
        assert [(key.partition, asked.state_epoch, asked.start_offset) for key, asked in begun.created] == [
            (0, 1, 7),
            (1, 1, 9),
        ]
        [topic] = begun.results
        assert topic.partitions[:2] == (AlteredPartitionResult(0), AlteredPartitionResult(1))
        assert topic.partitions[2].error_code is UNKNOWN
        assert room.types() == [15]
        assert room.states()["initializing"] == {"t": [0, 1]}
        assert room.reloaded().states() == room.states()

    def test_altered_with_members(self, room: ShareRoom) -> None:
        room.join("a")
        assert code_of(room.alter("t", p0=7)) is ErrorCode.NON_EMPTY_GROUP

    def test_altered_in_an_unknown_topic(self, room: ShareRoom) -> None:
        begun = room.alter("absent", p0=7)
        assert isinstance(begun, Alteration)
        assert not begun.created
        assert begun.results[0].partitions[0].error_code is UNKNOWN
        assert not room.log

    def test_deleted(self, room: ShareRoom) -> None:
        assert code_of(room.delete_offsets("t")) is NOT_FOUND
        room.join("a")
        assert code_of(room.delete_offsets("t")) is ErrorCode.NON_EMPTY_GROUP
        room.create_states()
        room.beat("a", -1)
        begun = room.delete_offsets("t", "u", "absent")
        assert isinstance(begun, Deletion)
        assert [key.partition for key in begun.deleted] == [0, 1, 2]
        assert [(one.topic_name, one.error_code) for one in begun.refused] == [("u", UNKNOWN), ("absent", UNKNOWN)]
        assert room.states() == {"initializing": {}, "initialized": {}, "deleting": ["t"]}
        repeated = room.delete_offsets("t")
        assert isinstance(repeated, Deletion)
        assert len(repeated.deleted) == 3
        ticket = room.ticket()
        room.take(room.shard.on_share_states_deleted(room.now_ms, ticket, GROUP, [T.topic_id]))
        assert room.answers[ticket] is None
        assert room.states()["deleting"] == []

    def test_a_topic_that_is_deleted_can_begin_again(self, room: ShareRoom) -> None:
        room.join("a")
        room.create_states()
        room.beat("a", -1)
        room.delete_offsets("t")
        room.join("a")
        assert room.states() == {"initializing": {"t": [0, 1, 2]}, "initialized": {}, "deleting": []}

    def test_the_group_is_deleted_after_its_states(self, room: ShareRoom) -> None:
        room.join("a", "t", "u")
        room.create_states()
        assert code_of(room.delete_states()) is ErrorCode.NON_EMPTY_GROUP
        room.beat("a", -1)
        begun = room.delete_states()
        assert isinstance(begun, Deletion)
        assert len(begun.deleted) == 4
        assert room.states() == {"initializing": {}, "initialized": {}, "deleting": ["t", "u"]}
        again = room.delete_states()
        assert isinstance(again, Deletion)
        assert len(again.deleted) == 4, "a deletion that failed is repeated"
        since = len(room.log)
        assert room.delete_group() is NONE
        assert room.types(since) == [-12, -15, -11]
        assert not room.shard.modern_groups
        assert not room.reloaded().shard.modern_groups

    def test_another_group_has_no_states(self, room: ShareRoom) -> None:
        assert room.delete_states("absent") == Deletion()


class TestReads:
    def test_describe(self, room: ShareRoom) -> None:
        room.join("a")
        room.settle("a")
        found = room.described_share()
        assert (found.error_code, found.group_state, found.group_epoch) == (NONE, "Stable", 3)
        assert (found.assignment_epoch, found.assignor_name) == (3, "simple")
        [member] = found.members
        assert (member.member_id, member.member_epoch, member.client_host) == ("a", 3, "/127.0.0.1")
        [topic] = member.assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("t", (0, 1, 2))
        assert room.described_share("absent").error_code is NOT_FOUND
        room.joined("m")
        assert room.described_share("consumers").error_message == "Group consumers is not a share group."

    def test_list(self, room: ShareRoom) -> None:
        room.join("a")
        [listed] = room.shard.list_groups(ListGroupsRequest(types_filter=("SHARE",)))
        assert (listed.group_id, listed.protocol_type, listed.group_state) == (GROUP, "share", "Stable")


def test_a_reload_keeps_all_but_sessions(room: ShareRoom) -> None:
    room.join("a", "t", "u")
    room.join("b")
    room.settle("a", "b")
    again = room.reloaded()
    for name in ("members", "targets", "names", "group_epoch", "assignment_epoch", "metadata_hash", "states"):
        assert getattr(again.share, name) == getattr(room.share, name), name
    assert again.share.must_check_hash
    again.pass_time(SESSION_MS - 1)
    assert len(again.share.members) == 2
    assert again.beat("a", again.share.members["a"].member_epoch).error_code is NONE


def test_a_member_whose_removal_was_not_written_is_removed_later() -> None:
    room = ShareRoom()
    room.join("m")
    room.holds_appends = True
    room.pass_time(SESSION_MS)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert "m" in room.share.members
    room.holds_appends = False
    room.pass_time(500)
    assert not room.share.members


def test_tombstones_of_an_absent_group_have_no_effect() -> None:
    """KAFKA-19453: a compaction may leave them alone in the log."""
    records = (
        ShareCurrentRecord(GROUP, "a", None),
        ShareTargetRecord(GROUP, "a", None),
        ShareTargetEpochRecord(GROUP, None),
        ShareMemberRecord(GROUP, "a", None),
        StatePartitionsRecord(GROUP, None),
        ShareGroupEpochRecord(GROUP, None),
    )
    room = ShareRoom(log=[record.encoded() for record in records])
    assert not room.shard.modern_groups
    assert room.described_share().error_code is NOT_FOUND
    assert room.join("a").error_code is ErrorCode.NONE
