"""One member of a consumer group in the consumer protocol (KIP-848): what it sends, and what it reads.

The coordinator assigns. The response to a heartbeat names the partitions that the member may have. The member revokes
what it has no longer, takes what is new, and reports what it owns in the next heartbeat, which it sends at once. One
request is in flight at a time. The driver carries out the effects in order, reports each response, and calls `on_timer`
at `deadline_ms`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

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
    UNCHANGED_MS,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopic,
)
from klamm.protocol.topic_partition import TopicPartition

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member leaves with this epoch, and the group keeps its partitions until its session ends."""


class ConsumerPhase(enum.Enum):
    """The state of a member."""

    UNJOINED = enum.auto()
    JOINED = enum.auto()
    FAILED = enum.auto()


NEXT_CONSUMER_PHASES: Final[dict[ConsumerPhase, frozenset[ConsumerPhase]]] = {
    ConsumerPhase.UNJOINED: frozenset({ConsumerPhase.JOINED, ConsumerPhase.FAILED}),
    ConsumerPhase.JOINED: frozenset({ConsumerPhase.UNJOINED, ConsumerPhase.FAILED}),
    ConsumerPhase.FAILED: frozenset(),
}

_COORDINATOR_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_FORGOTTEN: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)


class ConsumerMember:
    """See the module's docstring.

    1. `assigned` is empty unless the phase is JOINED.
    2. `generation` is the member epoch; it is 0 unless the phase is JOINED.
    """

    def __init__(
        self,
        group_id: str,
        topics: frozenset[str],
        member_id: str,
        timeouts: Timeouts | None = None,
        *,
        instance_id: str | None = None,
    ) -> None:
        """A member of `group_id` that reads `topics`; its id is random. With `instance_id` it is a static member."""
        self.group_id = group_id
        self.topics = topics
        self.member_id = member_id
        self.instance_id = instance_id
        self.phase = ConsumerPhase.UNJOINED
        self.generation = JOIN_EPOCH
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.deadline_ms: int | None = None
        self._timeouts = timeouts or Timeouts()
        self._has_coordinator = False
        self._is_full = True
        self._target: Mapping[bytes, tuple[int, ...]] = {}
        self._names: Mapping[bytes, str] = {}

    @property
    def is_stable(self) -> bool:
        """Whether the member is in the group."""
        return self.phase is ConsumerPhase.JOINED

    def start(self) -> list[Effect]:
        """The first effects."""
        return [FindCoordinator()]

    def on_coordinator_found(self, now_ms: int) -> list[Effect]:
        """Join, or continue as a member."""
        self._has_coordinator = True
        return [self._heartbeat(now_ms)]

    def on_timer(self, now_ms: int) -> list[Effect]:
        """Run what is due: repeat a failed request, or send a heartbeat."""
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        self.deadline_ms = None
        return [self._heartbeat(now_ms)] if self._has_coordinator else [FindCoordinator()]

    def on_consumer_heartbeat(self, now_ms: int, response: ConsumerGroupHeartbeatResponse) -> list[Effect]:
        """Take a new assignment, if the response has one; or join again if the group does not know this member."""
        if response.error_code is not ErrorCode.NONE:
            return self._on_refused(now_ms, response.error_code)
        self._is_full = False
        self._enter(ConsumerPhase.JOINED)
        self.generation = response.member_epoch
        self.deadline_ms = now_ms + response.heartbeat_interval_ms
        if response.assignment is None:
            unnamed = self._target.keys() - self._names.keys()
            return [NameTopics(self.topics)] if unnamed else []
        self._target = {one.topic_id: one.partitions for one in response.assignment.topic_partitions}
        if self._target.keys() - self._names.keys():
            return [NameTopics(self.topics)]
        return self._reconcile(now_ms)

    def on_named(self, now_ms: int, names: Mapping[bytes, str]) -> list[Effect]:
        """The names of the subscribed topics. A topic that has none yet is asked about with the next heartbeat."""
        self._names = names
        return self._reconcile(now_ms) if self.is_stable else []

    def on_committed(self, now_ms: int, code: ErrorCode) -> list[Effect]:
        """The response to a commit shows whether the member is still in the group."""
        if code in _FORGOTTEN and self.is_stable:
            return self._on_refused(now_ms, code)
        if code in _COORDINATOR_MOVED:
            self._has_coordinator = False
        # After any other error the next heartbeat brings the member up to date, and the offsets are committed later.
        self.deadline_ms = now_ms + self._timeouts.retry
        return []

    def on_coordinator_lost(self, now_ms: int, *, is_reading: bool) -> None:
        """No response arrived: find the coordinator again.

        A member that reads nothing of its assignment yet reports that it owns nothing, and gets it once more.
        """
        if not is_reading:
            self.assigned, self._target = frozenset(), {}
        self._has_coordinator = False
        self._is_full = True
        self.deadline_ms = now_ms + self._timeouts.retry

    def leave(self) -> ConsumerGroupHeartbeatRequest | None:
        """The heartbeat to send at the end; None if the member is not in the group."""
        if not self.is_stable:
            return None
        epoch = LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH
        return ConsumerGroupHeartbeatRequest(self.group_id, self.member_id, epoch, self.instance_id)

    def _reconcile(self, now_ms: int) -> list[Effect]:
        """Revoke, then take; what is owned afterwards is reported at once."""
        named = ((self._names.get(topic_id), partitions) for topic_id, partitions in self._target.items())
        wanted = frozenset(TopicPartition(name, at) for name, partitions in named if name for at in partitions)
        lost, new = self.assigned - wanted, wanted - self.assigned
        self.assigned = wanted
        effects: list[Effect] = []
        if lost:
            effects.append(Revoke(tuple(sorted(lost)), is_lost=False))
        if new:
            effects.append(Assign(tuple(sorted(new))))
        return [*effects, self._heartbeat(now_ms, reports_owned=True)] if effects else []

    def _on_refused(self, now_ms: int, code: ErrorCode) -> list[Effect]:
        if code in _COORDINATOR_MOVED or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._has_coordinator &= code not in _COORDINATOR_MOVED
            self._is_full = True
            self.deadline_ms = now_ms + self._timeouts.retry
            return []
        lost = tuple(sorted(self.assigned))
        revoked: list[Effect] = [Revoke(lost, is_lost=True)] if lost else []
        self._forget()
        if code in _FORGOTTEN:
            self.deadline_ms = now_ms + self._timeouts.retry
            return revoked
        self._enter(ConsumerPhase.FAILED)
        self.deadline_ms = None
        return [*revoked, Fail(code)]

    def _forget(self) -> None:
        self.assigned, self._target = frozenset(), {}
        self.generation, self._is_full = JOIN_EPOCH, True
        if self.is_stable:
            self._enter(ConsumerPhase.UNJOINED)

    def _heartbeat(self, now_ms: int, *, reports_owned: bool = False) -> SendConsumerHeartbeat:
        """A full heartbeat, after which the coordinator repeats the assignment, or one with what changed."""
        self.deadline_ms = now_ms + self._timeouts.heartbeat
        return SendConsumerHeartbeat(
            ConsumerGroupHeartbeatRequest(
                self.group_id,
                self.member_id,
                self.generation,
                self.instance_id,
                rebalance_timeout_ms=self._timeouts.rebalance if self._is_full else UNCHANGED_MS,
                subscribed_topic_names=tuple(sorted(self.topics)) if self._is_full else None,
                topic_partitions=self._owned() if self._is_full or reports_owned else None,
            )
        )

    def _owned(self) -> tuple[OwnedTopic, ...]:
        return tuple(
            OwnedTopic(topic_id, tuple(partitions))
            for topic_id, name in sorted(self._names.items())
            if (partitions := _of_topic(self.assigned, name))
        )

    def _enter(self, phase: ConsumerPhase) -> None:
        assert phase is self.phase or phase in NEXT_CONSUMER_PHASES[self.phase], (self.phase, phase)
        self.phase = phase


def _of_topic(partitions: Iterable[TopicPartition], name: str) -> list[int]:
    return sorted(index for topic, index in partitions if topic == name)
