"""A member of a consumer group in the simulation: it does what clients of the consumer protocol do (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klamm.coordinator.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import (
    UNCHANGED_MS,
    ConsumerGroupHeartbeatRequest,
    OwnedTopic,
)
from klamm.protocol.messages.group_messages import Caller
from klamm.testing.simulator.brokers.group_settings import HEARTBEAT_MS
from klamm.testing.simulator.brokers.member_process import (
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

HEARTBEAT_VERSION: Final = 1
FENCED: Final = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
"""The group may have become a classic one after the member was removed; a Java client then ends, and starts again."""
OF_ANOTHER: Final = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID}
"""Another process has the instance id."""
CALLER: Final = Caller(HEARTBEAT_VERSION, "simulated", "/127.0.0.1")


class GroupMember(MemberProcess):
    """One member: a process with a member id of its own."""

    def __init__(self, scene: Scene, group: Group, process: str, wanted: Subscription, instance_id: str | None) -> None:
        """See `MemberProcess`; the process is the member id."""
        super().__init__(scene, group, process, wanted, instance_id)
        self._target: AbstractSet[Key] | None = None
        self._sent_wanted: Subscription | None = None
        self._sent_owned: AbstractSet[Key] | None = None
        """What was reported last; None: the next heartbeat is a full one."""
        self._reconciling: AbstractSet[Key] | None = None
        """The target that it is about to have."""

    def work(self) -> None:
        """Send a heartbeat if one is due."""
        if self.is_gone or self._is_busy or self.is_silent:
            return
        has_news = self._sent_owned is not None and self._sent_owned != self._reported
        if self._scene.now_us >= self._next_us or has_news or self._sent_wanted not in (None, self.wanted):
            self._send()

    def leave(self, *, will_return: bool = False) -> None:
        """Give up everything, and tell the coordinator once. `will_return`: its partitions are kept for a while."""
        self._abandon()
        self.is_gone = True
        request = self._departure(will_return=will_return)
        self._ask(lambda coordinators: self._handled(coordinators, request), lambda answer, is_newest: None)

    # Heartbeats

    @property
    def _reported(self) -> AbstractSet[Key]:
        """All partitions that it may use before the response comes: the coordinator takes others for given up.

        A known weakness of the Java client: after a failure it reports only what it uses, also during a reconciliation.
        """
        return self.owned if self._reconciling is None else self.owned | self._reconciling

    def _send(self) -> None:
        is_full = self._sent_owned is None
        wanted, owned = self.wanted, self._reported
        says_wanted = is_full or wanted != self._sent_wanted
        says_owned = is_full or owned != self._sent_owned
        request = self._heartbeat(says_wanted=says_wanted, says_owned=says_owned, is_full=is_full)

        def answered(answer: Any, is_newest: bool) -> None:
            self._sent_wanted, self._sent_owned = wanted, owned if says_owned else self._sent_owned
            self._on_answer(answer, is_newest)

        self._next_us = self._scene.now_us + 1000 * HEARTBEAT_MS
        self._ask(lambda coordinators: self._handled(coordinators, request), answered)

    # What members of streams groups do otherwise

    def _heartbeat(self, *, says_wanted: bool, says_owned: bool, is_full: bool) -> Any:
        return ConsumerGroupHeartbeatRequest(
            self._group.group_id,
            self.id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else UNCHANGED_MS,
            subscribed_topic_names=self.wanted.names if says_wanted else None,
            subscribed_topic_regex=self.wanted.pattern if says_wanted else None,
            topic_partitions=_topics(self._reported) if says_owned else None,
        )

    def _departure(self, *, will_return: bool) -> Any:
        epoch = STATIC_LEAVE_EPOCH if will_return else LEAVE_EPOCH
        return ConsumerGroupHeartbeatRequest(self._group.group_id, self.id, epoch, self.instance_id)

    async def _handled(self, coordinators: Coordinators, request: Any) -> Any:
        return await coordinators.heartbeat(CALLER, request)

    def _assigned(self, answer: Any) -> AbstractSet[Key] | None:
        """The assignment in an answer, if there is one."""
        if answer.assignment is None:
            return None
        topics = answer.assignment.topic_partitions
        return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)

    # Answers

    def _retry(self) -> None:
        """An error that passes: the next heartbeat is a full one."""
        self._is_busy = False
        self._sent_owned = None
        self._disturb(0)
        self._next_us = self._scene.now_us + PAUSE_US

    def _on_answer(self, answer: Any, is_newest: bool) -> None:
        code = answer.error_code
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise InvariantViolatedError(f"a coordinator fails on a heartbeat of {self.id}: {answer.error_message}")
        if code in OF_ANOTHER:
            self._group.on_refused(self, code)
            self._retry()
        elif code in FENCED:
            self._abandon()
        elif code is not ErrorCode.NONE:
            self._retry()
        else:
            self._adopt(answer, is_newest)

    def _adopt(self, answer: Any, is_newest: bool) -> None:
        self.epoch, self.life = answer.member_epoch, self._answered_life
        if not is_newest:
            self.is_misled = True
        assigned = self._assigned(answer)
        if assigned is not None:
            self.is_misled = not is_newest
            self._target = assigned
            if self.owned <= self._target:  # it has nothing to give up any more
                self._reconciling = None
        self._group.on_owned(self)
        self._reconcile()

    def _abandon(self) -> None:
        """It is not a member any more: it uses no partition, and joins again."""
        self.owned, self._target = frozenset(), None
        self.epoch, self._sent_owned, self._next_us = JOIN_EPOCH, None, 0
        self.is_misled, self._reconciling = False, None
        self._disturb(0)

    def _reconcile(self) -> None:
        """Give up what is not in the target, then begin with what is new there."""
        target = self._target
        if self._reconciling is not None or target is None or target == self.owned:
            return
        self._reconciling = target

        def end() -> None:
            if self._reconciling is target:
                self._reconciling, self.owned = None, target
                self._group.on_owned(self)
                self._reconcile()
                self.work()

        self._revoke_then(self.owned - target, end)


def _topics(owned: AbstractSet[Key]) -> tuple[OwnedTopic, ...]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(owned):
        found.setdefault(topic_id, []).append(index)
    return tuple(OwnedTopic(topic_id, tuple(indexes)) for topic_id, indexes in found.items())
