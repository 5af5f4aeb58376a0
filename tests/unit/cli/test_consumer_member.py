"""The member of the consumer protocol, event by event (KIP-848)."""

from __future__ import annotations

import pytest

from klamm.cli.membership.consumer_member import (
    NEXT_CONSUMER_PHASES,
    ConsumerMember,
    ConsumerPhase,
)
from klamm.cli.membership.effects import (
    Assign,
    Effect,
    Fail,
    FindCoordinator,
    NameTopics,
    Revoke,
    SendConsumerHeartbeat,
)
from klamm.cli.membership.member import Timeouts
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    OwnedTopic,
)
from klamm.protocol.topic_partition import TopicPartition

ID = b"1" * 16
OTHER_ID = b"2" * 16
INTERVAL_MS = 5_000
RETRY_MS = Timeouts().retry


def answer(epoch: int, *partitions: int, topic_id: bytes = ID) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat's response with an assignment."""
    topics = (OwnedTopic(topic_id, partitions),) if partitions else ()
    return ConsumerGroupHeartbeatResponse(
        member_id="me", member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=HeartbeatAssignment(topics)
    )


def unchanged(epoch: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS)


def refusal(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


def sent(effects: list[Effect]) -> ConsumerGroupHeartbeatRequest:
    """The last heartbeat in the effects."""
    assert isinstance(effects[-1], SendConsumerHeartbeat)
    return effects[-1].request


def of(*partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("work", at) for at in partitions)


@pytest.fixture
def member() -> ConsumerMember:
    """A member that has found its coordinator and sent its first heartbeat."""
    one = ConsumerMember("group", frozenset({"work"}), "me")
    assert one.start() == [FindCoordinator()]
    first = sent(one.on_coordinator_found(0))
    assert first == ConsumerGroupHeartbeatRequest(
        "group", "me", 0, None, None, Timeouts().rebalance, ("work",), topic_partitions=()
    )
    return one


def joined(member: ConsumerMember, *partitions: int) -> None:
    assert member.on_consumer_heartbeat(0, answer(2, *partitions)) == [NameTopics(frozenset({"work"}))]
    member.on_named(0, {ID: "work"})
    assert member.assigned == frozenset(of(*partitions))


def test_partitions_are_owned_once_their_topic_is_resolved_and_reported_at_once(member: ConsumerMember) -> None:
    assert member.on_consumer_heartbeat(0, answer(2, 0, 1)) == [NameTopics(frozenset({"work"}))]
    effects = member.on_named(0, {ID: "work"})
    assert effects[:1] == [Assign(of(0, 1))]
    report = sent(effects)
    assert (report.member_epoch, report.topic_partitions) == (2, (OwnedTopic(ID, (0, 1)),))
    assert (report.rebalance_timeout_ms, report.subscribed_topic_names) == (-1, None), "only what changed"
    assert member.on_consumer_heartbeat(1, unchanged(2)) == []
    assert member.is_stable


def test_only_partitions_missing_in_the_assignment_are_revoked(member: ConsumerMember) -> None:
    joined(member, 0, 1, 2)
    effects = member.on_consumer_heartbeat(1, answer(2, 1, 3))
    assert effects[:2] == [Revoke(of(0, 2), is_lost=False), Assign(of(3))]
    assert sent(effects).topic_partitions == (OwnedTopic(ID, (1, 3)),)
    assert member.on_consumer_heartbeat(2, answer(3, 1, 3)) == [], "nothing to do, nothing to report"
    assert member.generation == 3


def test_a_heartbeat_is_sent_at_the_coordinators_interval_with_changes(member: ConsumerMember) -> None:
    joined(member, 0)
    member.on_consumer_heartbeat(10, unchanged(2))
    assert member.on_timer(10 + INTERVAL_MS - 1) == []
    assert sent(member.on_timer(10 + INTERVAL_MS)) == ConsumerGroupHeartbeatRequest("group", "me", 2)


def test_an_unresolved_topic_is_looked_up_until_it_is_known(member: ConsumerMember) -> None:
    member.on_consumer_heartbeat(0, answer(2, 0, topic_id=OTHER_ID))
    assert member.on_named(0, {ID: "work"}) == []
    assert member.on_consumer_heartbeat(INTERVAL_MS, unchanged(2)) == [NameTopics(frozenset({"work"}))]
    assert member.on_named(INTERVAL_MS, {OTHER_ID: "work"})[:1] == [Assign(of(0))]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_member_that_was_removed_loses_its_partitions_and_joins_again(
    member: ConsumerMember, code: ErrorCode, is_commit: bool
) -> None:
    joined(member, 0)
    lost = member.on_committed(1, code) if is_commit else member.on_consumer_heartbeat(1, refusal(code))
    assert lost == [Revoke(of(0), is_lost=True)]
    assert not member.is_stable
    request = sent(member.on_timer(1 + RETRY_MS))
    assert (request.member_id, request.member_epoch, request.is_full) == ("me", 0, True)


@pytest.mark.parametrize("is_moved", [True, False])
def test_partitions_are_kept_while_the_coordinator_moves(member: ConsumerMember, is_moved: bool) -> None:
    joined(member, 0)
    code = ErrorCode.NOT_COORDINATOR if is_moved else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert member.on_consumer_heartbeat(1, refusal(code)) == []
    due = member.on_timer(1 + RETRY_MS)
    if is_moved:
        assert due == [FindCoordinator()]
        due = member.on_coordinator_found(1 + RETRY_MS)
    request = sent(due)
    assert (request.member_epoch, request.is_full, request.topic_partitions) == (2, True, (OwnedTopic(ID, (0,)),))


def test_after_a_lost_response_everything_is_sent_again(member: ConsumerMember) -> None:
    joined(member, 0)
    member.on_coordinator_lost(5, is_reading=True)
    assert member.on_timer(5 + RETRY_MS) == [FindCoordinator()]
    request = sent(member.on_coordinator_found(200))
    assert (request.member_epoch, request.is_full, request.topic_partitions) == (2, True, (OwnedTopic(ID, (0,)),))


def test_an_assignment_that_could_not_be_applied_is_requested_again(member: ConsumerMember) -> None:
    joined(member, 0)
    member.on_coordinator_lost(5, is_reading=False)
    member.on_timer(5 + RETRY_MS)
    request = sent(member.on_coordinator_found(200))
    assert (request.member_epoch, request.is_full, request.topic_partitions) == (2, True, ())
    assert member.on_consumer_heartbeat(201, answer(2, 0))[:1] == [Assign(of(0))]


def test_a_commit_with_an_old_epoch_causes_a_heartbeat(member: ConsumerMember) -> None:
    joined(member, 0)
    assert member.on_committed(7, ErrorCode.STALE_MEMBER_EPOCH) == []
    assert sent(member.on_timer(7 + RETRY_MS)).member_epoch == 2


@pytest.mark.parametrize("code", [ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED])
def test_a_permanent_error_ends_the_member(member: ConsumerMember, code: ErrorCode) -> None:
    assert member.on_consumer_heartbeat(0, refusal(code)) == [Fail(code)]
    assert member.deadline_ms is None
    assert member.leave() is None


def test_a_dynamic_member_leaves_and_a_static_one_keeps_its_place() -> None:
    for instance_id, epoch in ((None, -1), ("i", -2)):
        member = ConsumerMember("group", frozenset({"work"}), "me", instance_id=instance_id)
        assert member.leave() is None
        member.on_coordinator_found(0)
        member.on_consumer_heartbeat(0, unchanged(1))
        assert member.leave() == ConsumerGroupHeartbeatRequest("group", "me", epoch, instance_id)


def test_every_phase_has_its_successors() -> None:
    assert NEXT_CONSUMER_PHASES.keys() == set(ConsumerPhase)
