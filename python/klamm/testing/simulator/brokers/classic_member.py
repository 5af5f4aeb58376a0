"""A member of a consumer group in the simulation that does what clients of the classic protocol do.

With the eager protocol it gives up everything before it joins again. With the cooperative one (KIP-429) it goes on with
what it has, gives up what is not in its assignment, and joins again for others to get that.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from klamm.coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import consumer_protocol
from klamm.protocol.messages.consumer_protocol import decode_assignment, encode_subscription
from klamm.protocol.messages.group_messages import (
    UNKNOWN_MEMBER_ID,
    Caller,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from klamm.testing.simulator.brokers.classic_assignor import COOPERATIVE, EAGER, assign, named
from klamm.testing.simulator.brokers.group_settings import HEARTBEAT_MS, SESSION_MS
from klamm.testing.simulator.brokers.member_process import (
    NO_EPOCH,
    PAUSE_US,
    REBALANCE_MS,
    Group,
    MemberProcess,
    Subscription,
)
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from klamm.testing.simulator.brokers.coordinators import Coordinators
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene

JOIN_VERSION: Final = 9
JOIN_TIMEOUT_US: Final = 2_000 * REBALANCE_MS
"""The coordinator answers when all have joined, or their rebalance timeout is over."""
CALLER: Final = Caller(JOIN_VERSION, "simulated", "/127.0.0.1")


class ClassicGroupMember(MemberProcess):
    """One member: the coordinator gives it its id."""

    def __init__(
        self,
        scene: Scene,
        group: Group,
        process: str,
        wanted: Subscription,
        instance_id: str | None,
        *,
        is_cooperative: bool,
    ) -> None:
        """See `MemberProcess`."""
        super().__init__(scene, group, process, wanted, instance_id)
        self.id = UNKNOWN_MEMBER_ID
        self._is_cooperative = is_cooperative
        self._must_join = True
        self._joined: Subscription = wanted
        self._revoking: AbstractSet[Key] | None = None
        """What it is about to give up."""
        self._was_removed = False
        """When it joined last."""

    def work(self) -> None:
        """Join, or send a heartbeat if one is due."""
        if self.is_gone or self._is_busy or self.is_silent:
            return
        if not self._must_join and self.wanted != self._joined:
            self._rejoin()
        if self._scene.now_us < self._next_us:
            return
        if self._must_join and self._revoking is None:
            self._join()
        elif self.epoch != NO_EPOCH:
            self._send_heartbeat()

    def leave(self, *, will_return: bool = False) -> None:
        """See `MemberProcess.leave`. A static member ends without a word, as the clients do."""
        member_id = self.id
        self._abandon()
        self.is_gone = True
        if member_id != UNKNOWN_MEMBER_ID and self.instance_id is None:
            request = LeaveGroupRequest(self._group.group_id, (LeavingMember(member_id),))
            self._ask(lambda coordinators: coordinators.leave(request), lambda answer, is_newest: None)

    @property
    def may_commit(self) -> bool:
        """Not while it joins: then it does not know its next generation."""
        return super().may_commit and not self._must_join

    def _abandon(self) -> None:
        self._lose()
        self.id = UNKNOWN_MEMBER_ID

    def _lose(self) -> None:
        """Its generation is over: it uses no partition any more, and joins again."""
        self.owned, self.epoch, self._revoking = frozenset(), NO_EPOCH, None
        self._must_join, self._next_us, self.is_misled = True, 0, False
        self._disturb(0)

    def _retry(self) -> None:
        self._is_busy = False
        self._disturb(0)
        self._next_us = self._scene.now_us + PAUSE_US

    def _on_error(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.UNKNOWN_SERVER_ERROR:
                raise InvariantViolatedError(f"a coordinator fails on a request of {self.process}")
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._abandon()
            case ErrorCode.ILLEGAL_GENERATION:
                self._lose()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._group.on_refused(self, code)
                self._retry()
            case _:
                self._retry()

    # Heartbeats

    def _send_heartbeat(self) -> None:
        request = HeartbeatRequest(self._group.group_id, self.epoch, self.id, self.instance_id)

        def answered(code: ErrorCode, is_newest: bool) -> None:
            if code is not ErrorCode.NONE:
                self._on_error(code)

        self._next_us = self._scene.now_us + 1000 * HEARTBEAT_MS
        self._ask(lambda coordinators: coordinators.classic_heartbeat(request), answered)

    # Rebalances

    def _rejoin(self) -> None:
        """Join again, with the eager protocol without any partition."""
        self._next_us = 0
        if self._must_join:
            return
        self._must_join = True
        if self._is_cooperative:
            ids = {self._group.topic_id(name) for name in self.wanted.names}
            revoked: AbstractSet[Key] = frozenset(key for key in self.owned if key[0] not in ids)
        else:
            revoked = self.owned
        # The coordinator removes a dynamic member that does not join in time.
        self._revoke(revoked, may_stick=self.instance_id is None)

    def _revoke(self, revoked: AbstractSet[Key], *, may_stick: bool) -> None:
        if not revoked:
            return
        self._revoking = revoked

        def end() -> None:
            if self._revoking is revoked:
                self.owned -= revoked
                self._revoking = None
                self._group.on_owned(self)
                self.work()

        self._revoke_then(revoked, end, may_stick=may_stick)

    def _join(self) -> None:
        self._joined = self.wanted
        subscription = consumer_protocol.Subscription(
            self.wanted.names, owned_partitions=named(self._group, self.owned), generation_id=self.epoch or -1
        )
        names = (COOPERATIVE,) if self._is_cooperative else (COOPERATIVE, EAGER)
        request = JoinGroupRequest(
            self._group.group_id,
            SESSION_MS,
            self.id,
            CONSUMER_PROTOCOL_TYPE,
            tuple(JoinProtocol(name, encode_subscription(subscription)) for name in names),
            REBALANCE_MS,
            self.instance_id,
        )
        self._next_us = self._scene.now_us + PAUSE_US

        def join(coordinators: Coordinators) -> Coroutine[Any, Any, JoinGroupResponse]:
            self._was_removed = not self._group.knows(request.member_id)
            return coordinators.join(CALLER, request)

        self._ask(join, self._on_joined, JOIN_TIMEOUT_US)

    def _on_joined(self, answer: JoinGroupResponse, is_newest: bool) -> None:
        if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.id, self._next_us = answer.member_id, 0
        elif answer.error_code is not ErrorCode.NONE:
            self._on_error(answer.error_code)
        else:
            self.id = answer.member_id
            self._sync(answer)

    def _sync(self, joined: JoinGroupResponse) -> None:
        leads = joined.leader == self.id and not joined.skip_assignment
        request = SyncGroupRequest(
            self._group.group_id,
            joined.generation_id,
            self.id,
            assign(self._group, joined.members) if leads else (),
            self.instance_id,
            joined.protocol_type,
            joined.protocol_name,
        )

        def answered(answer: Any, is_newest: bool) -> None:
            if answer.error_code is ErrorCode.NONE:
                self._adopt(joined.generation_id, answer, is_newest)
            else:
                self._on_error(answer.error_code)

        self._ask(lambda coordinators: coordinators.sync(request), answered)

    def _adopt(self, generation_id: int, answer: SyncGroupResponse, is_newest: bool) -> None:
        self.epoch, self.life = generation_id, self._answered_life
        self.is_misled, self._must_join = not is_newest, False
        self._next_us = self._scene.now_us + 1000 * HEARTBEAT_MS
        named_ids = (
            (self._group.topic_id(one.topic), one.partitions)
            for one in decode_assignment(answer.assignment).assigned_partitions
        )
        target = frozenset((topic_id, index) for topic_id, found in named_ids if topic_id for index in found)
        if self._was_removed:
            # A known weakness, as in Apache Kafka: a consumer group takes a member of the classic protocol again that
            # it has removed, and does not tell it. So what it used before counts for nothing.
            self.owned = frozenset()
        revoked = self.owned - target
        self.owned |= target
        self._group.on_owned(self)
        if revoked:
            self._must_join = True
            self._revoke(revoked, may_stick=False)  # no member waits for it
