"""A member of a consumer group in the simulation: it does what clients of the consumer protocol do (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import (
    UNCHANGED_MS,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopic,
)
from klamm.protocol.messages.group_messages import Caller
from klamm.testing.simulator.brokers.group_settings import HEARTBEAT_MS
from klamm.testing.simulator.brokers.network import Node, Reply, Request
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.coordinators import Coordinators
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.transactional_producer import Work

REBALANCE_MS: Final = 800
TIMEOUT_US: Final = 500_000
PAUSE_US: Final = 30_000
SLOW_REVOCATION_CHANCE: Final = 0.2
REVOCATION_US_MAX: Final = 1_200_000
"""A slow member may take longer than its rebalance timeout."""
STUCK_CHANCE: Final = 0.3
"""Of a slow member: it does not give up anything until it is removed."""
HEARTBEAT_VERSION: Final = 1
COMMIT_VERSION: Final = 9
FENCED: Final = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
OF_ANOTHER: Final = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID}
"""Another process has the instance id."""
LATE_US: Final = 100_000
CALLER: Final = Caller(HEARTBEAT_VERSION, "simulated", "/127.0.0.1")


class Subscription(NamedTuple):
    """The topics that a member wants."""

    names: tuple[str, ...]
    pattern: str = ""
    """A regular expression."""


class Group(Node, Protocol):
    """What a member knows of its group, and reports to."""

    group_id: str

    def coordinator(self) -> Broker | None:
        """The coordinator, as some broker knows it (FindCoordinator)."""

    def is_newest(self, coordinators: Coordinators) -> bool:
        """Whether these lead the group's partition by what is committed."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic."""

    def on_owned(self, member: GroupMember) -> None:
        """The member uses other partitions, or uses them in another epoch."""

    def on_committed(self, member_id: str, key: Key, epoch: int, sent_us: int) -> None:
        """The coordinator has accepted an offset that the member sent then, in that epoch."""

    def on_refused(self, member: GroupMember, code: ErrorCode) -> None:
        """Another process has the member's instance id."""


class GroupMember:
    """One member: a process with a member id of its own."""

    def __init__(
        self, scene: Scene, group: Group, member_id: str, wanted: Subscription, instance_id: str | None
    ) -> None:
        """`instance_id`: of a static member (KIP-345)."""
        self._scene, self._group = scene, group
        self.id, self.wanted, self.instance_id = member_id, wanted, instance_id
        self.epoch = JOIN_EPOCH
        self.owned: AbstractSet[Key] = frozenset()
        self.is_misled = False
        """Its assignment comes from a coordinator that was replaced already, and did not know."""
        self.is_gone = False
        self._target: AbstractSet[Key] | None = None
        self.calm_since_us = scene.now_us
        """Since then each heartbeat was answered at once, and partitions were given up in time."""
        self._sent_wanted: Subscription | None = None
        self._sent_owned: AbstractSet[Key] | None = None
        """What was reported last; None: the next heartbeat is a full one."""
        self._reconciling: AbstractSet[Key] | None = None
        """The target that it is about to have."""
        self._attempt = 0
        self._is_busy = False
        self._next_us = 0
        self._silent_until_us = 0

    def silence(self, for_us: int, offset: int) -> None:
        """The process does not run for a while. Then it commits first, without knowing what happened meanwhile."""
        self._silent_until_us = self._scene.now_us + for_us
        self._disturb(for_us)
        self._scene.at(for_us, lambda: self.commit(offset))

    def _when_it_runs(self, act: Callable[[], None]) -> Callable[[], None]:
        def happen() -> None:
            if self.is_silent:
                self._scene.at(self._silent_until_us - self._scene.now_us, happen)
            else:
                act()

        return happen

    def _disturb(self, for_us: int) -> None:
        self.calm_since_us = max(self.calm_since_us, self._scene.now_us + for_us)

    @property
    def is_silent(self) -> bool:
        """Whether it does not run at the moment."""
        return self._scene.now_us < self._silent_until_us

    def work(self) -> None:
        """Send a heartbeat if one is due."""
        if self.is_gone or self._is_busy or self.is_silent:
            return
        has_news = self._sent_owned is not None and self._sent_owned != self._reported
        if self._scene.now_us >= self._next_us or has_news or self._sent_wanted not in (None, self.wanted):
            self._send()

    @property
    def name(self) -> str:
        """What a process that replaces this one has, too."""
        return self.id if self.instance_id is None else self.instance_id

    def leave(self, *, will_return: bool = False) -> None:
        """Give up everything, and tell the coordinator once. `will_return`: its partitions are kept for a while."""
        self._abandon()
        self.is_gone = True
        epoch = STATIC_LEAVE_EPOCH if will_return else LEAVE_EPOCH
        request = ConsumerGroupHeartbeatRequest(self._group.group_id, self.id, epoch, self.instance_id)
        self._ask(lambda coordinators: coordinators.heartbeat(CALLER, request), lambda answer, is_newest: None)

    def crash(self) -> None:
        """The process ends without a word."""
        self._abandon()
        self.is_gone = True
        self._attempt += 1

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
        request = ConsumerGroupHeartbeatRequest(
            self._group.group_id,
            self.id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else UNCHANGED_MS,
            subscribed_topic_names=wanted.names if says_wanted else None,
            subscribed_topic_regex=wanted.pattern if says_wanted else None,
            topic_partitions=_topics(owned) if says_owned else None,
        )

        def answered(answer: Any, is_newest: bool) -> None:
            self._sent_wanted, self._sent_owned = wanted, owned if says_owned else self._sent_owned
            self._on_answer(answer, is_newest)

        self._next_us = self._scene.now_us + 1000 * HEARTBEAT_MS
        self._ask(lambda coordinators: coordinators.heartbeat(CALLER, request), answered)

    def _ask(self, work: Work, answered: Callable[[Any, bool], None]) -> None:
        self._attempt += 1
        attempt, sent_us = self._attempt, self._scene.now_us
        self._is_busy = True

        def failed() -> None:
            if attempt == self._attempt:
                self._retry()

        def take(answer: tuple[Any, bool]) -> None:
            if not answer[1] or self._scene.now_us - sent_us > LATE_US:
                self._disturb(0)

            def act() -> None:
                if attempt == self._attempt:
                    self._is_busy = False
                    answered(*answer)

            self._when_it_runs(act)()

        broker = self._group.coordinator()
        if broker is None:
            failed()
            return

        def handle(reply: Reply) -> None:
            coordinators = broker.coordinators
            # A known weakness, as in Apache Kafka: a heartbeat that an earlier connection still holds may be taken for
            # a revocation of what the member got since.
            if attempt == self._attempt and coordinators is not None:
                coordinators.do(work, lambda answer: reply((answer, self._group.is_newest(coordinators))))

        self._scene.network.call(self._group, broker, Request(handle, take, self._when_it_runs(failed), TIMEOUT_US))

    def _retry(self) -> None:
        """An error that passes: the next heartbeat is a full one."""
        self._is_busy = False
        self._sent_owned = None
        self._disturb(0)
        self._next_us = self._scene.now_us + PAUSE_US

    def _on_answer(self, answer: ConsumerGroupHeartbeatResponse, is_newest: bool) -> None:
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

    def _adopt(self, answer: ConsumerGroupHeartbeatResponse, is_newest: bool) -> None:
        self.epoch = answer.member_epoch
        if not is_newest:
            self.is_misled = True
        if answer.assignment is not None:
            self.is_misled = not is_newest
            topics = answer.assignment.topic_partitions
            self._target = frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
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
        rng = self._scene.rng
        is_slow = bool(self.owned - target) and rng.random() < SLOW_REVOCATION_CHANCE

        def end() -> None:
            if self._reconciling is target:
                self._reconciling, self.owned = None, target
                self._group.on_owned(self)
                self._reconcile()
                self.work()

        if is_slow:
            self._disturb(REVOCATION_US_MAX)
        if is_slow and rng.random() < STUCK_CHANCE:
            return
        self._scene.at(1 + rng.randrange(REVOCATION_US_MAX if is_slow else PAUSE_US), self._when_it_runs(end))

    # Offsets

    def commit(self, offset: int) -> None:
        """Commit the offset of a partition that it uses."""
        if not self.owned or self.is_gone or self.epoch == JOIN_EPOCH or self.is_silent:
            return
        key = self._scene.rng.choice(sorted(self.owned))
        name, broker = self._group.name_of(key[0]), self._group.coordinator()
        if name is None or broker is None:
            return
        epoch, sent_us = self.epoch, self._scene.now_us
        request = CommitRequest(
            self._group.group_id,
            [(name, key[0], [(key[1], offset, -1, None)])],
            version=COMMIT_VERSION,
            generation_id_or_member_epoch=epoch,
            member_id=self.id,
            group_instance_id=self.instance_id,
        )

        def handle(reply: Reply) -> None:
            if broker.coordinators is not None:
                broker.coordinators.do(lambda coordinators: coordinators.commit(request), reply)

        def take(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._group.on_committed(self.id, key, epoch, sent_us)

        self._scene.network.call(self._group, broker, Request(handle, take, lambda: None, TIMEOUT_US))


def _topics(owned: AbstractSet[Key]) -> tuple[OwnedTopic, ...]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(owned):
        found.setdefault(topic_id, []).append(index)
    return tuple(OwnedTopic(topic_id, tuple(indexes)) for topic_id, indexes in found.items())
