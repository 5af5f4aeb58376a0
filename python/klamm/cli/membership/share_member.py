"""One member of a share group (KIP-932): what it sends to the coordinator, and which partitions it reads.

The coordinator assigns in its responses to heartbeats. Members read partitions together, so none has to give one up
before another one may read it. One request is in flight at a time. The driver carries out the effects in order, reports
each response, and calls `on_timer` at `deadline_ms`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.cli.membership.consumer_member import NEXT_CONSUMER_PHASES, ConsumerPhase
from klamm.cli.membership.effects import Fail, FindCoordinator, SendShareHeartbeat, ShareEffect
from klamm.cli.membership.member import Timeouts
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

_COORDINATOR_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_FORGOTTEN: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)


class SharePlace(NamedTuple):
    """A partition, by the id of its topic (16 bytes)."""

    topic_id: bytes
    partition: int


class ShareMember:
    """See the module's docstring.

    1. `assigned` is empty unless the phase is JOINED.
    2. `generation` is the member epoch; it is 0 unless the phase is JOINED.
    """

    def __init__(self, group_id: str, topics: frozenset[str], member_id: str, timeouts: Timeouts | None = None) -> None:
        """A member of `group_id` that reads `topics`; its id is random."""
        self.group_id = group_id
        self.topics = topics
        self.member_id = member_id
        self.phase = ConsumerPhase.UNJOINED
        self.generation = JOIN_EPOCH
        self.assigned: frozenset[SharePlace] = frozenset()
        self.deadline_ms: int | None = None
        self._timeouts = timeouts or Timeouts()
        self._has_coordinator = False

    @property
    def is_stable(self) -> bool:
        """Whether the member is in the group."""
        return self.phase is ConsumerPhase.JOINED

    def start(self) -> list[ShareEffect]:
        """The first effects."""
        return [FindCoordinator()]

    def on_coordinator_found(self, now_ms: int) -> list[ShareEffect]:
        """Join, or continue as a member."""
        self._has_coordinator = True
        return [self._heartbeat(now_ms)]

    def on_timer(self, now_ms: int) -> list[ShareEffect]:
        """Run what is due: repeat a failed request, or send a heartbeat."""
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        self.deadline_ms = None
        return [self._heartbeat(now_ms)] if self._has_coordinator else [FindCoordinator()]

    def on_share_heartbeat(self, now_ms: int, response: ShareGroupHeartbeatResponse) -> list[ShareEffect]:
        """Take a new assignment, if the response has one; or join again if the group does not know this member."""
        if response.error_code is not ErrorCode.NONE:
            return self._on_refused(now_ms, response.error_code)
        self._enter(ConsumerPhase.JOINED)
        self.generation = response.member_epoch
        self.deadline_ms = now_ms + response.heartbeat_interval_ms
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            self.assigned = frozenset(SharePlace(one.topic_id, at) for one in topics for at in one.partitions)
        return []

    def on_coordinator_lost(self, now_ms: int) -> None:
        """No response arrived: find the coordinator again. The member reads on."""
        self._has_coordinator = False
        self.deadline_ms = now_ms + self._timeouts.retry

    def leave(self) -> ShareGroupHeartbeatRequest | None:
        """The heartbeat to send at the end; None if the member is not in the group."""
        return ShareGroupHeartbeatRequest(self.group_id, self.member_id, LEAVE_EPOCH) if self.is_stable else None

    def _on_refused(self, now_ms: int, code: ErrorCode) -> list[ShareEffect]:
        if code in _COORDINATOR_MOVED or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._has_coordinator &= code not in _COORDINATOR_MOVED
            self.deadline_ms = now_ms + self._timeouts.retry
            return []
        self.assigned, self.generation = frozenset(), JOIN_EPOCH
        if code in _FORGOTTEN:
            if self.is_stable:
                self._enter(ConsumerPhase.UNJOINED)
            self.deadline_ms = now_ms + self._timeouts.retry
            return []
        self._enter(ConsumerPhase.FAILED)
        self.deadline_ms = None
        return [Fail(code)]

    def _heartbeat(self, now_ms: int) -> SendShareHeartbeat:
        """The subscription is part of every heartbeat, so the coordinator knows it whatever response was lost."""
        self.deadline_ms = now_ms + self._timeouts.heartbeat
        topics = tuple(sorted(self.topics))
        request = ShareGroupHeartbeatRequest(
            self.group_id, self.member_id, self.generation, subscribed_topic_names=topics
        )
        return SendShareHeartbeat(request)

    def _enter(self, phase: ConsumerPhase) -> None:
        assert phase is self.phase or phase in NEXT_CONSUMER_PHASES[self.phase], (self.phase, phase)
        self.phase = phase
