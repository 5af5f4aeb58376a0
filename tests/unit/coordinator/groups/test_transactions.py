"""Transactional offsets in a shard: pending, committed and aborted."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.log import LoadedRecord, Producer
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import DeletePartition, DeleteTopic, OffsetDeleteRequest

from .fold import assert_same
from .harness import GROUP, RANGE, STICKY, Room

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
P = Producer(77, 3)
Q = Producer(78, 0)
PLACE = ("topic", 0)


def stable(room: Room, partition: int = 0) -> tuple[int, ErrorCode]:
    """The offsets that a stable fetch returns."""
    answer = room.answers[room.fetch_later({"topic": (partition,)}, stable=True)]
    found = answer.topics[0].partitions[0]
    return found.committed_offset, ErrorCode(found.error_code)


def plain(room: Room) -> int:
    return room.fetch({"topic": (0,)})[PLACE]


@pytest.mark.parametrize("commits", [True, False])
def test_a_pending_offset_is_unstable_until_the_marker(commits: bool) -> None:
    room = Room()
    room.commit_offset(1)
    assert room.commit_in_transaction(5, P) is NONE
    assert stable(room) == (-1, UNSTABLE)
    assert plain(room) == 1
    assert room.end(P, commits=commits) is NONE
    after = 5 if commits else 1
    assert stable(room) == (after, NONE)
    assert plain(room) == after
    assert_same(room, room.reloaded())


def test_a_partition_that_is_only_pending_is_not_listed() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    assert room.fetch(None, stable=True) == {}
    room.end(P, commits=True)
    assert room.fetch(None, stable=True) == {PLACE: 5}


def test_a_plain_commit_between_stays() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.commit_offset(2)
    assert stable(room) == (-1, UNSTABLE)
    assert plain(room) == 2
    room.end(P, commits=True)
    assert stable(room) == (2, NONE)
    assert_same(room, room.reloaded())


def test_a_plain_commit_before_is_replaced() -> None:
    room = Room()
    room.commit_offset(2)
    room.commit_in_transaction(5, P)
    room.end(P, commits=True)
    assert stable(room) == (5, NONE)


def test_the_last_offset_of_a_transaction_counts() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.commit_in_transaction(3, P)
    room.end(P, commits=True)
    assert stable(room) == (3, NONE)


def test_the_member_is_checked() -> None:
    room = Room()
    (joined,) = room.make_stable()
    member = joined.member_id
    assert room.commit_in_transaction(1, P, member_id="who", generation_id=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.commit_in_transaction(1, P, member_id=member, generation_id=2) is ErrorCode.ILLEGAL_GENERATION
    assert room.commit_in_transaction(1, P, member_id=member) is ErrorCode.ILLEGAL_GENERATION
    assert room.commit_in_transaction(1, P, member_id=member, generation_id=1) is NONE
    assert room.commit_in_transaction(1, P) is NONE
    instance = {"group_instance_id": "i", "generation_id": 1}
    assert room.commit_in_transaction(1, P, member_id=member, **instance) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_commit_during_a_rebalance() -> None:
    room = Room()
    first, second = room.begin(count=2)
    assert room.group.state is GroupState.COMPLETING_REBALANCE
    assert room.commit_in_transaction(1, P) is NONE
    assert room.commit_in_transaction(1, P, member_id=second.member_id, generation_id=1) is NONE
    room.join_later(first.member_id, protocols=(STICKY, RANGE))
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert room.commit_in_transaction(1, P) is NONE
    assert room.commit_in_transaction(1, P, member_id=second.member_id, generation_id=1) is NONE


def test_a_commit_renews_no_session() -> None:
    room = Room()
    (joined,) = room.make_stable()
    room.pass_time(9_000)
    assert room.commit_in_transaction(1, P, member_id=joined.member_id, generation_id=1) is NONE
    room.pass_time(1_500)
    assert room.group.state is GroupState.EMPTY


def test_without_a_group_only_a_generation_is_refused() -> None:
    room = Room()
    assert room.commit_in_transaction(1, P, generation_id=1, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    assert GROUP not in room.shard.groups
    assert room.commit_in_transaction(1, P, member_id="m") is NONE
    assert room.shard.groups[GROUP].is_empty


def test_two_producers_are_pending_on_one_partition() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.commit_in_transaction(6, Q)
    room.end(P, commits=True)
    assert stable(room) == (-1, UNSTABLE)
    assert plain(room) == 5
    room.end(Q, commits=False)
    assert stable(room) == (5, NONE)


def test_the_later_written_of_two_transactions_wins() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.commit_in_transaction(6, Q)
    room.end(Q, commits=True)
    room.end(P, commits=True)
    assert stable(room) == (6, NONE)
    assert_same(room, room.reloaded())


def delete_group(room: Room) -> ErrorCode:
    ticket = room.ticket()
    room.take(room.shard.on_delete_groups(room.now_ms, ticket, (GROUP,)))
    (deleted,) = room.answers[ticket]
    return ErrorCode(deleted.error_code)


def test_a_deleted_group_is_not_created_again() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    assert delete_group(room) is NONE
    assert room.end(P, commits=True) is NONE
    assert GROUP not in room.shard.groups
    assert stable(room) == (-1, NONE)
    assert_same(room, room.reloaded())


def test_a_deleted_offset_is_not_created_again() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    ticket = room.ticket()
    topics = (DeleteTopic("topic", (DeletePartition(0),)),)
    room.take(room.shard.on_offset_delete(room.now_ms, ticket, OffsetDeleteRequest(GROUP, topics)))
    assert stable(room) == (-1, NONE)
    room.end(P, commits=True)
    assert stable(room) == (-1, NONE)
    assert_same(room, room.reloaded())


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.take(room.shard.on_topics_deleted(room.now_ms, [("topic", b"t" * 16)]))
    room.end(P, commits=True)
    assert stable(room) == (-1, NONE)


def test_pending_offsets_survive_a_restart() -> None:
    room = Room()
    room.commit_offset(1)
    room.commit_in_transaction(5, P)
    room = room.reloaded()
    assert stable(room) == (-1, UNSTABLE)
    assert plain(room) == 1
    room.end(P, commits=True)
    assert stable(room.reloaded()) == (5, NONE)


def test_long_metadata_is_refused_for_its_partition() -> None:
    room = Room()
    assert room.commit_in_transaction(5, P, metadata="m" * 5_000) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert GROUP not in room.shard.groups
    assert not room.log


def test_a_batch_that_is_too_large_changes_nothing() -> None:
    room = Room(GroupConfig(batch_bytes_max=200))
    assert room.commit_in_transaction(5, P, metadata="m" * 200) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not room.shard.groups


EXPIRING = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)


@pytest.mark.parametrize("with_offset", [True, False])
def test_a_pending_offset_prevents_expiry(with_offset: bool) -> None:
    room = Room(EXPIRING)
    if with_offset:
        room.commit_offset(1)
    room.commit_in_transaction(5, P)
    room.pass_time(600_000)
    assert GROUP in room.shard.groups
    assert room.fetch() == ({PLACE: 1} if with_offset else {})
    room.end(P, commits=False)
    room.pass_time(600_000)
    assert GROUP not in room.shard.groups


def test_a_marker_of_an_unknown_producer_is_written() -> None:
    room = Room()
    assert room.end(P, commits=True) is NONE
    [marker] = room.log
    assert isinstance(marker, LoadedRecord)
    assert (marker.producer_id, marker.is_control) == (P.producer_id, True)


def test_control_records_of_other_types_end_nothing() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.log.append(LoadedRecord(-1, b"\0\2", b"", P.producer_id, is_control=True))
    assert stable(room.reloaded()) == (-1, UNSTABLE)


# The order of the log, and appends that fail


def test_a_transactional_batch_and_a_marker_are_appended_separately_and_in_order() -> None:
    room = Room()
    room.holds_appends = True
    room.commit_later({("topic", 1): 1})
    tickets = [
        room.commit_later({("topic", 2): 1}),
        room.commit_later({("topic", 3): 1}),
        room.commit_in_transaction_later({PLACE: 5}, P),
        room.commit_in_transaction_later({PLACE: 6}, Q),
        room.commit_later({("topic", 4): 1}),
        room.end_later(P, commits=True),
        room.commit_later({("topic", 5): 1}),
    ]
    sizes = []
    while room.appending is not None:
        sizes.append(len(room.appending))
        room.commit()
    assert sizes == [1, 2, 1, 1, 1, 1, 1]
    assert all(room.answers[ticket] == NONE for ticket in tickets)
    assert_same(room, room.reloaded())


def test_a_marker_is_answered_and_visible_once_it_is_committed() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.holds_appends = True
    ticket = room.end_later(P, commits=True)
    assert ticket not in room.answers
    assert plain(room) == -1
    fetching = room.fetch_later({"topic": (0,)}, stable=True)
    assert fetching not in room.answers
    room.commit()
    assert room.answers[ticket] is NONE
    assert room.answers[fetching].topics[0].partitions[0].committed_offset == 5
    assert plain(room) == 5


def test_a_marker_waits_no_longer_than_the_commit_timeout() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.holds_appends = True
    ticket = room.end_later(P, commits=True)
    room.pass_time(5_000)
    assert room.answers[ticket] is ErrorCode.REQUEST_TIMED_OUT
    room.commit()
    assert plain(room) == 5


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("commits", [True, False])
def test_a_failed_marker_leaves_the_transaction_open(error: ErrorCode, commits: bool) -> None:
    room = Room()
    room.commit_offset(1)
    room.commit_in_transaction(5, P)
    room.holds_appends = True
    ticket = room.end_later(P, commits=commits)
    room.fail(error)
    assert room.answers[ticket] is error
    assert stable(room) == (-1, UNSTABLE)
    assert plain(room) == 1
    assert_same(room, room.reloaded())
    room.holds_appends = False
    room.end(P, commits=True)
    assert stable(room) == (5, NONE)


@pytest.mark.parametrize("before", [None, 4])
def test_a_failed_commit_keeps_earlier_pending_offsets(before: int | None) -> None:
    room = Room()
    if before is not None:
        room.commit_in_transaction(before, P)
    room.holds_appends = True
    ticket = room.commit_in_transaction_later({PLACE: 5}, P)
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert room.answers[ticket] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.holds_appends = False
    assert_same(room, room.reloaded())
    assert (GROUP in room.shard.groups) == (before is not None)
    room.end(P, commits=True)
    assert plain(room) == (before or -1)


def test_a_rejected_producer_fails_others_only_temporarily() -> None:
    """Requests whose writes were queued after the rejected batch get a retriable error."""
    room = Room()
    room.commit_offset(1)
    room.holds_appends = True
    zombie = room.commit_in_transaction_later({PLACE: 5}, P)
    fetching = room.fetch_later({"topic": (0,)}, stable=True)
    other = room.commit_in_transaction_later({PLACE: 6}, Q)
    commit = room.commit_later({PLACE: 7})
    marker = room.end_later(Q, commits=True)
    room.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert room.answers[zombie] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert room.answers[fetching].error_code == ErrorCode.NOT_COORDINATOR
    for ticket in (other, commit, marker):
        assert room.answers[ticket] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stable(room) == (1, NONE)
    assert_same(room, room.reloaded())


def test_failed_deletions_restore_pending_offsets() -> None:
    room = Room()
    room.commit_offset(1)
    room.commit_in_transaction(5, P)
    room.commit_in_transaction(6, Q)
    room.holds_appends = True
    room.take(room.shard.on_delete_groups(room.now_ms, room.ticket(), (GROUP,)))
    room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert_same(room, room.reloaded())
    room.holds_appends = False
    assert stable(room) == (-1, UNSTABLE)
    room.end(Q, commits=True)
    room.end(P, commits=True)
    assert plain(room) == 6


# Verification


@pytest.mark.parametrize(
    ("is_adding", "marker_epoch", "error"),
    [
        (False, 3, ErrorCode.INVALID_TXN_STATE),
        (False, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (True, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (True, 3, NONE),
    ],
)
def test_a_marker_during_the_verification(is_adding: bool, marker_epoch: int, error: ErrorCode) -> None:
    """Only a commit of the next transaction succeeds, whose epoch the marker has (transaction version 2)."""
    room = Room()
    verification = room.shard.begin_verification(P, is_adding=is_adding)
    room.end(Producer(P.producer_id, marker_epoch), commits=False)
    assert room.commit_in_transaction(5, P, verification=verification) is error
    assert stable(room)[1] is (UNSTABLE if error is NONE else NONE)
    assert room.shard.verification_count == 0


def test_a_marker_of_another_producer_is_ignored() -> None:
    room = Room()
    verification = room.shard.begin_verification(P, is_adding=False)
    room.end(Q, commits=False)
    assert room.commit_in_transaction(5, P, verification=verification) is NONE


def test_a_verification_that_failed_is_forgotten() -> None:
    room = Room()
    one = room.shard.begin_verification(P, is_adding=False)
    two = room.shard.begin_verification(P, is_adding=False)
    room.shard.end_verification(one)
    room.shard.end_verification(one)
    assert room.shard.verification_count == 1
    room.shard.end_verification(two)
    assert room.shard.verification_count == 0
