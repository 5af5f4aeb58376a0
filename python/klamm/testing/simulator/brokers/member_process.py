"""A process that is a member of a consumer group in the simulation, with either protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from klamm._engine.groups import CommitRequest
from klamm.protocol.errors import ErrorCode
from klamm.testing.simulator.brokers.network import Node, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.coordinators import Coordinators
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.transactional_producer import Work

NO_EPOCH: Final = 0
"""That of a process which is not a member."""
REBALANCE_MS: Final = 800
TIMEOUT_US: Final = 500_000
PAUSE_US: Final = 30_000
SLOW_REVOCATION_CHANCE: Final = 0.2
REVOCATION_US_MAX: Final = 1_200_000
"""A slow member may take longer than its rebalance timeout."""
STUCK_CHANCE: Final = 0.3
"""Of a slow member: it does not give up anything until it is removed."""
COMMIT_VERSION: Final = 9
LATE_US: Final = 100_000


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

    def watched(self, work: Work) -> Work:
        """The request, with a look at the group before and after it is handled."""

    def knows(self, member_id: str) -> bool:
        """Whether the newest coordinator has this member, as far as can be seen."""

    @property
    def life(self) -> int:
        """How often the group has begun, with epochs of its own."""

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic."""

    def partitions_of(self, name: str) -> list[int]:
        """The partitions of a topic."""

    def on_owned(self, member: MemberProcess) -> None:
        """The member uses other partitions, or uses them in another epoch."""

    def on_committed(self, member_id: str, key: Key, when: tuple[int, int], sent_us: int) -> None:
        """The coordinator has accepted an offset that the member sent then, in that life and epoch."""

    def on_refused(self, member: MemberProcess, code: ErrorCode) -> None:
        """Another process has the member's instance id."""


class MemberProcess(ABC):
    """What members of both protocols have in common."""

    def __init__(self, scene: Scene, group: Group, process: str, wanted: Subscription, instance_id: str | None) -> None:
        """`instance_id`: of a static member (KIP-345)."""
        self._scene, self._group = scene, group
        self.process, self.wanted, self.instance_id = process, wanted, instance_id
        self.id = process
        self.epoch = NO_EPOCH
        self.life = 0
        """That of the group, of which the epoch is."""
        self.owned: AbstractSet[Key] = frozenset()
        self.is_misled = False
        """Its assignment comes from a coordinator that was replaced already, and did not know."""
        self.is_gone = False
        self.calm_since_us = scene.now_us
        """Since then each heartbeat was answered at once, and partitions were given up in time."""
        self._attempt = 0
        self._answered_life = 0
        """That of the group, of which the last answer is."""
        self._is_busy = False
        self._next_us = 0
        self._silent_until_us = 0

    @property
    def name(self) -> str:
        """What a process that replaces this one has, too."""
        return self.process if self.instance_id is None else self.instance_id

    @property
    def when(self) -> tuple[int, int]:
        """The epoch, which counts within a life of the group."""
        return self.life, self.epoch

    # Life

    @abstractmethod
    def work(self) -> None:
        """Send what is due."""

    @abstractmethod
    def leave(self, *, will_return: bool = False) -> None:
        """Give up everything, and tell the coordinator once. `will_return`: its partitions are kept for a while."""

    @abstractmethod
    def _abandon(self) -> None:
        """It is not a member any more: it uses no partition, and joins again."""

    @abstractmethod
    def _retry(self) -> None:
        """An error that passes."""

    def crash(self) -> None:
        """The process ends without a word."""
        self._abandon()
        self.is_gone = True
        self._attempt += 1

    def silence(self, for_us: int, offset: int) -> None:
        """The process does not run for a while. Then it commits first, without knowing what happened meanwhile."""
        self._silent_until_us = self._scene.now_us + for_us
        self._disturb(for_us)
        self._scene.at(for_us, lambda: self.commit(offset))

    @property
    def is_silent(self) -> bool:
        """Whether it does not run at the moment."""
        return self._scene.now_us < self._silent_until_us

    def _when_it_runs(self, act: Callable[[], None]) -> Callable[[], None]:
        def happen() -> None:
            if self.is_silent:
                self._scene.at(self._silent_until_us - self._scene.now_us, happen)
            else:
                act()

        return happen

    def _disturb(self, for_us: int) -> None:
        self.calm_since_us = max(self.calm_since_us, self._scene.now_us + for_us)

    def _revoke_then(self, revoked: AbstractSet[Key], end: Callable[[], None], *, may_stick: bool = True) -> None:
        """Give up partitions, which takes a while, or longer than allowed; or for ever, if `may_stick`."""
        rng = self._scene.rng
        is_slow = bool(revoked) and rng.random() < SLOW_REVOCATION_CHANCE
        if is_slow:
            self._disturb(REVOCATION_US_MAX)
        if may_stick and is_slow and rng.random() < STUCK_CHANCE:
            return
        self._scene.at(1 + rng.randrange(REVOCATION_US_MAX if is_slow else PAUSE_US), self._when_it_runs(end))

    # Requests

    def _ask(self, work: Work, answered: Callable[[Any, bool], None], timeout_us: int = TIMEOUT_US) -> None:
        self._attempt += 1
        attempt, sent_us = self._attempt, self._scene.now_us
        self._is_busy = True

        def failed() -> None:
            if attempt == self._attempt:
                self._retry()

        def take(answer: tuple[Any, bool, int]) -> None:
            *given, life = answer
            if not answer[1] or self._scene.now_us - sent_us > LATE_US:
                self._disturb(0)

            def act() -> None:
                if attempt == self._attempt:
                    self._is_busy = False
                    self._answered_life = life
                    answered(*given)

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
                coordinators.do(
                    self._group.watched(work),
                    lambda answer: reply((answer, self._group.is_newest(coordinators), self._group.life)),
                )

        self._scene.network.call(self._group, broker, Request(handle, take, self._when_it_runs(failed), timeout_us))

    # Offsets

    @property
    def may_commit(self) -> bool:
        """Whether it uses partitions in an epoch that it knows."""
        return bool(self.owned) and not self.is_gone and self.epoch != NO_EPOCH and not self.is_silent

    def _topic_of(self, key: Key) -> tuple[str, bytes] | None:
        """The topic of a partition, with its id."""
        name = self._group.name_of(key[0])
        return None if name is None else (name, key[0])

    def commit(self, offset: int) -> None:
        """Commit the offset of a partition that it uses."""
        if not self.may_commit:
            return
        key = self._scene.rng.choice(sorted(self.owned))
        topic, broker = self._topic_of(key), self._group.coordinator()
        if topic is None or broker is None:
            return
        member_id, when, sent_us = self.id, self.when, self._scene.now_us
        request = CommitRequest(
            self._group.group_id,
            [(*topic, [(key[1], offset, -1, None)])],
            version=COMMIT_VERSION,
            generation_id_or_member_epoch=self.epoch,
            member_id=member_id,
            group_instance_id=self.instance_id,
        )

        def handle(reply: Reply) -> None:
            if broker.coordinators is not None:
                broker.coordinators.do(lambda coordinators: coordinators.commit(request), reply)

        def take(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._group.on_committed(member_id, key, when, sent_us)

        self._scene.network.call(self._group, broker, Request(handle, take, lambda: None, TIMEOUT_US))
