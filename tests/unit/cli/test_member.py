"""The member's core with the coordinator's core: two cores and no network."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.coordinator.groups.harness import GROUP, Room

from klamm.cli.membership.effects import (
    Assign,
    CountPartitions,
    Effect,
    Fail,
    FindCoordinator,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendSync,
)
from klamm.cli.membership.member import NEXT_PHASES, Member, Phase, Timeouts
from klamm.coordinator.groups.subscription import subscribed_topics
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages import consumer_protocol as protocol
from klamm.protocol.messages.group_messages import (
    Caller,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupResponse,
    JoinProtocol,
    SyncGroupResponse,
)
from klamm.protocol.topic_partition import TopicPartition

TIMEOUTS = Timeouts(session=10_000, rebalance=60_000)
TOPICS = frozenset({"work"})


class Consumer:
    """A member, and the coordinator of its group."""

    def __init__(self, room: Room, counts: dict[str, int]) -> None:
        self.room = room
        self.counts = counts
        self.member = Member(GROUP, TOPICS, TIMEOUTS)
        self.reads: set[TopicPartition] = set()
        self.effects: list[Effect] = []
        self._waiting: deque[Effect] = deque(self.member.start())
        self._ticket: Any = None
        self._asked: Effect | None = None

    def go_on(self) -> bool:
        """Process the received response and due timers; False when there was nothing to do."""
        if self._asked is not None and self._ticket in self.room.answers:
            asked, self._asked = self._asked, None
            self._waiting += self._take(asked, self.room.answers[self._ticket])
        elif self._asked is None and not self._waiting:
            self._waiting += self.member.on_timer(self.room.now_ms)
            return bool(self._waiting)
        elif self._asked is None:
            self._waiting += self._do(self._waiting.popleft())
        else:
            return False
        return True

    def _do(self, effect: Effect) -> Sequence[Effect]:
        self.effects.append(effect)
        shard, now_ms = self.room.shard, self.room.now_ms
        match effect:
            case FindCoordinator():
                return self.member.on_coordinator_found(now_ms)
            case CountPartitions():
                return self.member.on_counted(now_ms, dict(self.counts))
            case Assign():
                self.reads = set(effect.partitions)
            case Revoke():
                self.reads -= set(effect.partitions)
            case Fail():
                pass
            case SendJoin() | SendSync() | SendHeartbeat():
                self._asked, self._ticket = effect, self.room.ticket()
                if isinstance(effect, SendJoin):
                    caller = Caller(9, "client", "/127.0.0.1")
                    self.room.take(shard.on_join(now_ms, self._ticket, caller, effect.request))
                elif isinstance(effect, SendSync):
                    self.room.take(shard.on_sync(now_ms, self._ticket, effect.request))
                else:
                    self.room.take(shard.on_heartbeat(now_ms, self._ticket, effect.request))
        return ()

    def _take(self, asked: Effect, answer: Any) -> Sequence[Effect]:
        now_ms = self.room.now_ms
        if isinstance(asked, SendJoin):
            return self.member.on_joined(now_ms, answer)
        if isinstance(asked, SendSync):
            return self.member.on_synced(now_ms, answer)
        return self.member.on_heartbeat(now_ms, HeartbeatResponse(ErrorCode(answer)))


def live(room: Room, consumers: Sequence[Consumer], for_ms: int = 10_000) -> None:
    """Let time pass; all members and the coordinator do what is due."""
    end_ms = room.now_ms + for_ms
    while room.now_ms < end_ms:
        while sum(one.go_on() for one in consumers):
            pass
        room.pass_time(100)


def check_shared(consumers: Sequence[Consumer], count: int) -> None:
    assert all(one.member.phase is Phase.STABLE for one in consumers)
    assert sorted(index for one in consumers for _, index in one.reads) == list(range(count))


def test_members_share_partitions_and_take_over_those_of_a_leaver() -> None:
    room, counts = Room(), {"work": 4}
    consumers = [Consumer(room, counts)]
    live(room, consumers)
    check_shared(consumers, 4)
    consumers += [Consumer(room, counts), Consumer(room, counts)]
    live(room, consumers)
    check_shared(consumers, 4)
    assert sorted(len(one.reads) for one in consumers) == [1, 1, 2]
    request = consumers.pop(0).member.leave()
    assert request is not None
    room.leave(*request.members)
    live(room, consumers)
    check_shared(consumers, 4)
    assert [len(one.reads) for one in consumers] == [2, 2]


def test_partitions_are_revoked_before_a_rejoin() -> None:
    room, counts = Room(), {"work": 2}
    consumers = [Consumer(room, counts)]
    live(room, consumers)
    del consumers[0].effects[:]
    consumers.append(Consumer(room, counts))
    live(room, consumers)
    kinds = [type(effect) for effect in consumers[0].effects if not isinstance(effect, SendHeartbeat)]
    assert kinds == [Revoke, SendJoin, CountPartitions, SendSync, Assign]
    assert not any(effect.is_lost for effect in consumers[0].effects if isinstance(effect, Revoke))


def test_an_unknown_member_loses_its_partitions_and_joins_with_a_new_id() -> None:
    room = Room()
    (gone,) = consumers = [Consumer(room, {"work": 2})]
    live(room, consumers)
    former = gone.member.member_id
    room.pass_time(TIMEOUTS.session + 1)
    del gone.effects[:]
    live(room, consumers)
    check_shared(consumers, 2)
    assert gone.member.member_id != former
    assert gone.effects[1] == Revoke((("work", 0), ("work", 1)), is_lost=True)


def test_the_leader_joins_again_when_its_topic_has_grown() -> None:
    room, counts = Room(), {"work": 2}
    consumers = [Consumer(room, counts), Consumer(room, counts)]
    live(room, consumers)
    counts["work"] = 6
    live(room, consumers)
    check_shared(consumers, 2)
    live(room, consumers, TIMEOUTS.metadata + 10_000)
    check_shared(consumers, 6)


def test_a_group_of_another_kind_refuses_it() -> None:
    room = Room()
    room.begin(protocol_type="connect", protocols=(JoinProtocol("compatible", b""),))
    other = Consumer(room, {"work": 2})
    live(room, [other])
    assert other.effects[-1] == Fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert other.member.deadline_ms is None


def stable() -> Member:
    member = Member(GROUP, TOPICS, TIMEOUTS)
    member.on_coordinator_found(0)
    member.on_joined(0, JoinGroupResponse(member_id="me", generation_id=1, leader="other", protocol_name="range"))
    part = protocol.Assignment((protocol.TopicPartitions("work", (0,)),))
    member.on_synced(0, SyncGroupResponse(assignment=protocol.encode_assignment(part)))
    assert member.phase is Phase.STABLE
    return member


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_is_looked_up_without_a_rebalance(code: ErrorCode) -> None:
    member = stable()
    assert member.on_heartbeat(3_000, HeartbeatResponse(code)) == []
    assert member.on_timer(3_099) == []
    assert member.on_timer(3_100) == [FindCoordinator()]
    (beat,) = member.on_coordinator_found(3_200)
    assert isinstance(beat, SendHeartbeat)
    assert member.assigned == (("work", 0),)


def test_a_commit_detects_a_rebalance_like_a_heartbeat() -> None:
    revoke, join = stable().on_committed(1_000, ErrorCode.REBALANCE_IN_PROGRESS)
    assert revoke == Revoke((("work", 0),), is_lost=False)
    assert isinstance(join, SendJoin)
    assert join.request.member_id == "me"
    (lost,) = stable().on_committed(1_000, ErrorCode.ILLEGAL_GENERATION)
    assert lost == Revoke((("work", 0),), is_lost=True)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_a_retriable_join_error_is_retried(code: ErrorCode) -> None:
    member = Member(GROUP, TOPICS, TIMEOUTS)
    member.on_coordinator_found(0)
    assert member.on_joined(0, JoinGroupResponse(code)) == []
    (again,) = member.on_timer(100)
    assert isinstance(again, FindCoordinator if code is ErrorCode.NOT_COORDINATOR else SendJoin)


def test_a_stable_member_keeps_reading_without_its_coordinator() -> None:
    member = stable()
    member.on_coordinator_lost(1_000, is_reading=True)
    assert member.on_timer(1_100) == [FindCoordinator()]
    assert isinstance(*member.on_coordinator_found(1_100), SendHeartbeat)
    assert member.assigned == (("work", 0),)


def test_a_joining_member_without_its_coordinator_joins_again() -> None:
    for steps in range(3):
        member = Member(GROUP, TOPICS, TIMEOUTS)
        if steps > 0:
            member.on_coordinator_found(0)
        if steps > 1:
            joined = JoinGroupResponse(member_id="me", generation_id=1, leader="other", protocol_name="range")
            member.on_joined(0, joined)
        member.on_coordinator_lost(1_000, is_reading=False)
        assert member.on_timer(1_100) == [FindCoordinator()]
        assert isinstance(*member.on_coordinator_found(1_100), SendJoin)
    assigned = stable()
    assigned.on_coordinator_lost(1_000, is_reading=False)
    assert assigned.assigned == ()


def test_a_static_member_sends_its_instance_id_and_does_not_leave() -> None:
    member = Member(GROUP, TOPICS, TIMEOUTS, instance_id="one")
    (join,) = member.on_coordinator_found(0)
    assert isinstance(join, SendJoin)
    assert join.request.group_instance_id == "one"
    subscription = protocol.encode_subscription(protocol.Subscription(("work",)))
    me = JoinGroupMember("me", "one", subscription)
    # It is the leader and rejoined in time, so the current assignment is kept.
    joined = JoinGroupResponse(
        member_id="me", generation_id=4, leader="me", protocol_name="range", skip_assignment=True, members=(me,)
    )
    assert isinstance(*member.on_joined(0, joined), CountPartitions)
    (sync,) = member.on_counted(0, {"work": 3})
    assert isinstance(sync, SendSync)
    assert (sync.request.group_instance_id, sync.request.assignments) == ("one", ())
    part = protocol.Assignment((protocol.TopicPartitions("work", (0,)),))
    member.on_synced(0, SyncGroupResponse(assignment=protocol.encode_assignment(part)))
    (beat, *_) = member.on_timer(3_000)
    assert isinstance(beat, SendHeartbeat)
    assert beat.request.group_instance_id == "one"
    assert member.on_heartbeat(3_000, HeartbeatResponse(ErrorCode.FENCED_INSTANCE_ID))[-1] == Fail(
        ErrorCode.FENCED_INSTANCE_ID
    )
    assert member.leave() is None


def test_a_client_that_was_never_a_member_does_not_leave() -> None:
    assert Member(GROUP, TOPICS).leave() is None


def test_every_phase_has_a_successor() -> None:
    assert set(NEXT_PHASES) == set(Phase)
    assert set().union(*NEXT_PHASES.values()) == set(Phase)


class TestConsumerProtocol:
    def test_a_subscription_round_trips_and_the_coordinator_reads_its_topics(self) -> None:
        owned = (protocol.TopicPartitions("a", (0, 2)),)
        subscription = protocol.Subscription(("a", "b"), b"own", owned, 7, "rack")
        data = protocol.encode_subscription(subscription)
        assert protocol.decode_subscription(data) == subscription
        assert subscribed_topics(data) == {"a", "b"}

    def test_older_versions_are_read(self) -> None:
        old = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01a" + b"\xff\xff\xff\xff"
        assert protocol.decode_subscription(old) == protocol.Subscription(("a",))
        older = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x05" + b"\xff\xff\xff\xff"
        assert protocol.decode_assignment(older) == protocol.Assignment((protocol.TopicPartitions("a", (5,)),))
        assert protocol.decode_assignment(b"") == protocol.Assignment()

    @pytest.mark.parametrize("data", [b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff"])
    def test_invalid_bytes_are_rejected(self, data: bytes) -> None:
        with pytest.raises(MalformedRequest):
            protocol.decode_subscription(data)
