"""The member of a share group, and its session at a leader, event by event (KIP-932)."""

from __future__ import annotations

import pytest

from klamm.cli.membership.consumer_member import ConsumerPhase
from klamm.cli.membership.effects import Fail, FindCoordinator, SendShareHeartbeat, ShareEffect
from klamm.cli.membership.member import Timeouts
from klamm.cli.membership.share_member import ShareMember, SharePlace
from klamm.cli.membership.share_session import ShareSession
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_groups import (
    AssignedTopic,
    ShareAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from klamm.protocol.messages.share_sessions import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquireMode,
    ForgottenShareTopic,
    ShareFetchRequest,
    SharePartition,
    ShareTopic,
)

ID = b"1" * 16
INTERVAL_MS = 5_000
RETRY_MS = Timeouts().retry


def answer(epoch: int, *partitions: int) -> ShareGroupHeartbeatResponse:
    topics = (AssignedTopic(ID, partitions),) if partitions else ()
    return ShareGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=ShareAssignment(topics)
    )


def heartbeat(epoch: int) -> list[ShareEffect]:
    return [SendShareHeartbeat(ShareGroupHeartbeatRequest("group", "me", epoch, subscribed_topic_names=("work",)))]


def of(*partitions: int) -> frozenset[SharePlace]:
    return frozenset(SharePlace(ID, at) for at in partitions)


@pytest.fixture
def member() -> ShareMember:
    """A member that has found its coordinator and sent its first heartbeat."""
    one = ShareMember("group", frozenset({"work"}), "me")
    assert one.start() == [FindCoordinator()]
    assert one.on_coordinator_found(0) == heartbeat(0)
    return one


def test_heartbeat_responses_contain_assignments(member: ShareMember) -> None:
    assert member.on_share_heartbeat(10, answer(3, 0, 1)) == []
    assert (member.is_stable, member.generation, member.assigned) == (True, 3, of(0, 1))
    assert member.on_timer(10 + INTERVAL_MS - 1) == []
    assert member.on_timer(10 + INTERVAL_MS) == heartbeat(3)
    unchanged = ShareGroupHeartbeatResponse(member_epoch=4, heartbeat_interval_ms=INTERVAL_MS)
    assert member.on_share_heartbeat(20_000, unchanged) == []
    assert (member.generation, member.assigned) == (4, of(0, 1))
    member.on_share_heartbeat(30_000, answer(5))
    assert member.assigned == of()
    assert member.leave() == ShareGroupHeartbeatRequest("group", "me", -1)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_an_unknown_member_joins_again(member: ShareMember, code: ErrorCode) -> None:
    member.on_share_heartbeat(0, answer(3, 0))
    assert member.on_share_heartbeat(100, ShareGroupHeartbeatResponse(error_code=code)) == []
    assert (member.phase, member.assigned, member.leave()) == (ConsumerPhase.UNJOINED, of(), None)
    assert member.on_timer(100 + RETRY_MS) == heartbeat(0)


def test_a_member_keeps_reading_while_its_coordinator_moves(member: ShareMember) -> None:
    member.on_share_heartbeat(0, answer(3, 0))
    moved = ShareGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert member.on_share_heartbeat(100, moved) == []
    assert member.assigned == of(0)
    assert member.on_timer(100 + RETRY_MS) == [FindCoordinator()]
    assert member.on_coordinator_found(300) == heartbeat(3)
    member.on_coordinator_lost(400)
    assert member.assigned == of(0)
    assert member.on_timer(400 + RETRY_MS) == [FindCoordinator()]


def test_a_permanent_error_ends_the_member(member: ShareMember) -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert member.on_share_heartbeat(0, ShareGroupHeartbeatResponse(error_code=code)) == [Fail(code)]
    assert member.phase is ConsumerPhase.FAILED
    assert member.on_timer(1 << 40) == []


def fetched(session: ShareSession, *partitions: int) -> ShareFetchRequest:
    return session.fetch(of(*partitions), wait_ms=1, bytes_max=2, records_max=3, mode=AcquireMode.BATCH_OPTIMIZED)


def test_a_session_sends_changed_partitions_and_acknowledgements() -> None:
    session = ShareSession("group", "me")
    first = fetched(session, 0, 1)
    assert (first.share_session_epoch, first.forgotten_topics_data) == (0, ())
    assert first.topics == (ShareTopic(ID, (SharePartition(0), SharePartition(1))),)
    session.on_answered()
    place = SharePlace(ID, 1)
    for offset in (5, 6, 8, 4):
        session.on_processed(place, offset, AcknowledgeType.ACCEPT)
    session.on_processed(place, 7, AcknowledgeType.GAP)
    second = fetched(session, 1, 2)
    batches = (
        AcknowledgementBatch(4, 6, (AcknowledgeType.ACCEPT,)),
        AcknowledgementBatch(7, 7, (AcknowledgeType.GAP,)),
        AcknowledgementBatch(8, 8, (AcknowledgeType.ACCEPT,)),
    )
    assert second.share_session_epoch == 1
    assert second.topics == (ShareTopic(ID, (SharePartition(1, batches), SharePartition(2))),)
    assert second.forgotten_topics_data == (ForgottenShareTopic(ID, (0,)),)
    session.on_answered()
    third = fetched(session, 1, 2)
    assert (third.share_session_epoch, third.topics, third.forgotten_topics_data) == (2, (), ())


def test_a_closed_session_acknowledges_processed_records() -> None:
    session = ShareSession("group", "me")
    assert session.close() is None
    fetched(session, 0)
    session.on_answered()
    session.on_processed(SharePlace(ID, 0), 5, AcknowledgeType.REJECT)
    closed = session.close()
    assert closed is not None
    batch = AcknowledgementBatch(5, 5, (AcknowledgeType.REJECT,))
    assert (closed.share_session_epoch, closed.topics) == (-1, (ShareTopic(ID, (SharePartition(0, (batch,)),)),))
    assert session.close() is None


def test_a_lost_session_opens_again_and_acknowledges_nothing() -> None:
    session = ShareSession("group", "me")
    fetched(session, 0)
    session.on_answered()
    session.on_processed(SharePlace(ID, 0), 5, AcknowledgeType.ACCEPT)
    session.restart()
    session.on_processed(SharePlace(ID, 0), 6, AcknowledgeType.ACCEPT)
    again = fetched(session, 0)
    assert again.share_session_epoch == 0
    assert again.topics == (ShareTopic(ID, (SharePartition(0),)),)
