"""One member of a consumer group in the classic protocol: when it joins, what it sends, what it reads.

It rebalances eagerly, as Apache Kafka's consumer with its default assignors: it revokes its partitions before it joins
again. One request is in flight at a time. The driver carries out the effects in order, reports each response, and calls
`on_timer` at `deadline_ms`.
"""

from __future__ import annotations

import enum
from typing import Final

from klamm.cli.membership.assignors import ASSIGNORS, Subscriber
from klamm.cli.membership.effects import (
    Assign,
    CountPartitions,
    Counts,
    Effect,
    Fail,
    FindCoordinator,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendSync,
)
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from klamm.protocol.messages.group_messages import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    SyncAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from klamm.protocol.topic_partition import TopicPartition
from klamm.protocol.value import Value

PROTOCOL_TYPE: Final = "consumer"


class Timeouts(Value):
    """In ms, with Apache Kafka's consumer's values; `join_slack` is added to the rebalance timeout for JoinGroup."""

    session: int = 45_000
    rebalance: int = 300_000
    heartbeat: int = 3_000
    retry: int = 100
    metadata: int = 300_000
    join_slack: int = 5_000


class Phase(enum.Enum):
    """The state of a member."""

    UNJOINED = enum.auto()
    JOINING = enum.auto()
    SYNCING = enum.auto()
    STABLE = enum.auto()


NEXT_PHASES: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.UNJOINED: frozenset({Phase.JOINING}),
    Phase.JOINING: frozenset({Phase.UNJOINED, Phase.SYNCING}),
    Phase.SYNCING: frozenset({Phase.UNJOINED, Phase.STABLE}),
    Phase.STABLE: frozenset({Phase.UNJOINED}),
}

_COORDINATOR_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_NOT_NOW: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS})
_FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class Member:
    """See the module's docstring.

    1. `assigned` is empty unless the phase is STABLE.
    2. A member with a generation has a member id.
    """

    def __init__(
        self,
        group_id: str,
        topics: frozenset[str],
        timeouts: Timeouts | None = None,
        *,
        instance_id: str | None = None,
    ) -> None:
        """A member of `group_id` that reads `topics`; with `instance_id` a static one, which may restart (KIP-345)."""
        self.group_id = group_id
        self.instance_id = instance_id
        self.topics = topics
        self.phase = Phase.UNJOINED
        self.member_id = UNKNOWN_MEMBER_ID
        self.generation = NO_GENERATION
        self.assigned: tuple[TopicPartition, ...] = ()
        self.deadline_ms: int | None = None
        self._timeouts = timeouts or Timeouts()
        self._has_coordinator = False
        self._is_leader = False
        self._is_assigned_already = False
        self._protocol_name: str | None = None
        self._members: tuple[JoinGroupMember, ...] = ()
        self._counts: Counts = {}
        self._counts_due_ms = 0

    @property
    def is_stable(self) -> bool:
        """Whether the member has its assignment."""
        return self.phase is Phase.STABLE

    # Joining

    def start(self) -> list[Effect]:
        """The first effects."""
        return [FindCoordinator()]

    def on_coordinator_found(self, now_ms: int) -> list[Effect]:
        """Join, or continue as a member."""
        self._has_coordinator = True
        if self.phase is Phase.STABLE:
            return [self._send_heartbeat(now_ms)]
        return [self._join()]

    def on_joined(self, now_ms: int, response: JoinGroupResponse) -> list[Effect]:
        """The group has a new generation, or refused the join."""
        match response.error_code:
            case ErrorCode.NONE:
                return self._on_generation(response)
            case ErrorCode.MEMBER_ID_REQUIRED:
                # The coordinator assigns the id first, so that a repeated join adds no second member (KIP-394).
                self._enter(Phase.UNJOINED)
                self.member_id = response.member_id
                return [self._join()]
            case code:
                return self._on_refused(now_ms, code)

    def on_counted(self, now_ms: int, counts: Counts) -> list[Effect]:
        """As leader, assign the existing partitions; if their number changes later, join again."""
        is_changed, self._counts = counts != self._counts, counts
        self._counts_due_ms = now_ms + self._timeouts.metadata
        match self.phase:
            case Phase.SYNCING:
                return [self._sync(() if self._is_assigned_already else self._assignments())]
            case Phase.STABLE if is_changed:
                return self._rejoin()
            case _:
                return []

    def on_synced(self, now_ms: int, response: SyncGroupResponse) -> list[Effect]:
        """The assignment was received."""
        if response.error_code is not ErrorCode.NONE:
            return self._on_refused(now_ms, response.error_code)
        self._enter(Phase.STABLE)
        self.deadline_ms = now_ms + self._timeouts.heartbeat
        assignment = decode_assignment(response.assignment)
        self.assigned = tuple(sorted(_partitions(assignment.assigned_partitions)))
        return [Assign(self.assigned)]

    # Membership

    def on_timer(self, now_ms: int) -> list[Effect]:
        """Run what is due: repeat a failed request, send a heartbeat, check the topics."""
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        self.deadline_ms = None
        if not self._has_coordinator:
            return [FindCoordinator()]
        if self.phase is not Phase.STABLE:
            return [self._join()]
        effects: list[Effect] = [self._send_heartbeat(now_ms)]
        if self._is_leader and now_ms >= self._counts_due_ms:
            effects.append(CountPartitions(frozenset(self._counts)))
        return effects

    def on_heartbeat(self, now_ms: int, response: HeartbeatResponse) -> list[Effect]:
        """Continue, or join again if the group rebalances."""
        return self._on_member_answer(now_ms, response.error_code)

    def on_committed(self, now_ms: int, code: ErrorCode) -> list[Effect]:
        """The response to a commit shows the state of the group as well as a heartbeat's."""
        return self._on_member_answer(now_ms, code)

    def on_coordinator_lost(self, now_ms: int, *, is_reading: bool) -> None:
        """No response arrived: find the coordinator again.

        A member that does not read its assignment yet joins again.
        """
        if not is_reading:
            self.assigned = ()
            if self.phase is not Phase.UNJOINED:
                self._enter(Phase.UNJOINED)
        self._has_coordinator = False
        self.deadline_ms = now_ms + self._timeouts.retry

    def leave(self) -> LeaveGroupRequest | None:
        """The LeaveGroup to send at the end; None if the group does not know this member, or for a static member."""
        if not self.member_id or self.instance_id is not None:
            return None
        return LeaveGroupRequest(self.group_id, (LeavingMember(self.member_id),), self.member_id)

    def _on_member_answer(self, now_ms: int, code: ErrorCode) -> list[Effect]:
        if code is ErrorCode.NONE or self.phase is not Phase.STABLE:
            return []
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return self._rejoin()
        if code in _COORDINATOR_MOVED or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return self._retry(now_ms, code)
        return self._on_refused(now_ms, code)

    # Shared

    def _on_generation(self, response: JoinGroupResponse) -> list[Effect]:
        self._enter(Phase.SYNCING)
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._protocol_name = response.protocol_name
        self._is_leader = response.leader == response.member_id
        self._is_assigned_already = response.skip_assignment
        self._members = response.members
        if not self._is_leader:
            return [self._sync(())]
        wanted = self.topics.union(*(decode_subscription(one.metadata).topics for one in self._members))
        return [CountPartitions(wanted)]

    def _on_refused(self, now_ms: int, code: ErrorCode) -> list[Effect]:
        """Handle an error: retry later, join again, or fail."""
        lost = self._give_up(is_lost=True)
        if self.phase is not Phase.UNJOINED:
            self._enter(Phase.UNJOINED)
        if code in _FORGOTTEN:
            self.generation = NO_GENERATION
            # With an old generation the member id remains valid.
            self.member_id = UNKNOWN_MEMBER_ID if code is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
            return [*lost, *self._retry(now_ms, code)]
        if code in _COORDINATOR_MOVED or code in _NOT_NOW:
            return [*lost, *self._retry(now_ms, code)]
        self.deadline_ms = None
        return [*lost, Fail(code)]

    def _retry(self, now_ms: int, code: ErrorCode) -> list[Effect]:
        self._has_coordinator &= code not in _COORDINATOR_MOVED
        self.deadline_ms = now_ms + self._timeouts.retry
        return []

    def _rejoin(self) -> list[Effect]:
        effects = self._give_up(is_lost=False)
        self._enter(Phase.UNJOINED)
        return [*effects, self._join()]

    def _give_up(self, *, is_lost: bool) -> list[Effect]:
        partitions, self.assigned = self.assigned, ()
        return [Revoke(partitions, is_lost)] if partitions else []

    def _join(self) -> SendJoin:
        self._enter(Phase.JOINING)
        self.deadline_ms = None
        subscription = encode_subscription(Subscription(tuple(sorted(self.topics)), generation_id=self.generation))
        request = JoinGroupRequest(
            self.group_id,
            self._timeouts.session,
            self.member_id,
            PROTOCOL_TYPE,
            tuple(JoinProtocol(name, subscription) for name in ASSIGNORS),
            self._timeouts.rebalance,
            self.instance_id,
        )
        return SendJoin(request, self._timeouts.rebalance + self._timeouts.join_slack)

    def _sync(self, assignments: tuple[SyncAssignment, ...]) -> SendSync:
        return SendSync(
            SyncGroupRequest(
                self.group_id,
                self.generation,
                self.member_id,
                assignments,
                self.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self._protocol_name,
            )
        )

    def _send_heartbeat(self, now_ms: int) -> SendHeartbeat:
        self.deadline_ms = now_ms + self._timeouts.heartbeat
        return SendHeartbeat(HeartbeatRequest(self.group_id, self.generation, self.member_id, self.instance_id))

    def _assignments(self) -> tuple[SyncAssignment, ...]:
        assign = ASSIGNORS[self._protocol_name or ""]
        assigned = assign([_subscriber(one) for one in self._members], self._counts)
        return tuple(
            SyncAssignment(member_id, encode_assignment(Assignment(_by_topic(partitions))))
            for member_id, partitions in assigned.items()
        )

    def _enter(self, phase: Phase) -> None:
        assert phase in NEXT_PHASES[self.phase], (self.phase, phase)
        self.phase = phase


def _subscriber(member: JoinGroupMember) -> Subscriber:
    subscription = decode_subscription(member.metadata)
    return Subscriber(
        member.member_id,
        frozenset(subscription.topics),
        member.group_instance_id,
        tuple(_partitions(subscription.owned_partitions)),
        _generation(subscription),
    )


def _generation(subscription: Subscription) -> int:
    """Before version 2 the cooperative-sticky assignor stored the generation in its user data, as an int32."""
    if (
        subscription.generation_id == NO_GENERATION
        and subscription.user_data is not None
        and len(subscription.user_data) == 4
    ):
        return int.from_bytes(subscription.user_data, "big", signed=True)
    return subscription.generation_id


def _partitions(topics: tuple[TopicPartitions, ...]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, index) for one in topics for index in one.partitions]


def _by_topic(partitions: list[TopicPartition]) -> tuple[TopicPartitions, ...]:
    topics = sorted({topic for topic, _ in partitions})
    return tuple(TopicPartitions(name, tuple(i for topic, i in partitions if topic == name)) for name in topics)
