"""Reads as a member of a group: runs the core of `membership` with a clock and connections."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, assert_never

from klamm.admin import groups as group_admin
from klamm.admin.client import Client, check, is_outage
from klamm.admin.groups import OFFSET_COMMIT_VERSION_MAX
from klamm.admin.membership import membership
from klamm.admin.topics import topics
from klamm.cli.membership.consumer_member import ConsumerMember
from klamm.cli.membership.effects import (
    Assign,
    CountPartitions,
    Effect,
    Fail,
    FindCoordinator,
    NameTopics,
    Revoke,
    SendConsumerHeartbeat,
    SendHeartbeat,
    SendJoin,
    SendSync,
)
from klamm.cli.membership.member import Member
from klamm.cli.records.reader import Reader
from klamm.cli.terminal.output import is_terminal, say
from klamm.client import BrokerError, ClientError
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from klamm.protocol.messages.group_messages import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from klamm.protocol.topic_partition import TopicPartition
from klamm.protocol.uuids import parse_uuid

JOIN_VERSION: Final = 9
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 5
SYNC_VERSION: Final = 5
CONSUMER_HEARTBEAT_VERSION: Final = 1
CONSUMER_COMMIT_VERSION: Final = 9
"""The first version in which members of the consumer protocol may commit."""
COMMIT_EVERY_MS: Final = 5_000
"""Apache Kafka's consumer's default."""
_PAUSE_S: Final = 0.1


class GroupSession:
    """A member of a group that reads its assigned partitions, commits what was read, and leaves at the end.

    `keep_up` sends heartbeats. If it is not called within the session timeout of 45 s, for example because the reader
    of stdout is slow, the member is removed from the group and joins again.
    """

    def __init__(self, client: Client, reader: Reader, member: Member | ConsumerMember) -> None:
        """Sends nothing yet: `keep_up` joins."""
        self._client = client
        self._group = member.group_id
        self._reader = reader
        self._member = member
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due_ms = 0
        self._is_started = False
        self._connection: Connection | None = None

    @property
    def is_done(self) -> bool:
        """Whether all records of the assigned partitions were read, and the group has no more for this member."""
        return self._member.is_stable and self._reader.is_done and self._has_its_share()

    def keep_up(self) -> None:
        """Join or send a heartbeat, and commit when due. Raises ClientError."""
        if not self._is_started:
            self._is_started = True
            self._carry_out(self._member.start())
        self._carry_out(self._member.on_timer(_now_ms()))
        if self._member.is_stable and _now_ms() >= self._commit_due_ms:
            self._carry_out(self._commit())
        if not self._reader.positions and not self.is_done:
            # More members than partitions, or the group is not ready: there is no fetch that would wait.
            time.sleep(_PAUSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error that was printed, a second one is not shown.
        with contextlib.suppress(*((ClientError,) if kind else ())):
            if kind is None or not issubclass(kind, BrokenPipeError):
                self._commit()
            self._leave()

    def _leave(self) -> None:
        match self._member.leave():
            case None:
                return
            case ConsumerGroupHeartbeatRequest() as request:
                code = (
                    self._coordinator()
                    .ask(request, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT_VERSION)
                    .error_code
                )
            case request:
                code = self._coordinator().ask(request, LeaveGroupResponse, LEAVE_VERSION).error_code
        if code is not ErrorCode.UNKNOWN_MEMBER_ID:
            check(code, f"group {self._group}")

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            try:
                waiting.extend(self._do(effect))
            except MalformedRequest as error:
                raise ClientError(f"group {self._group}: a member uses another protocol: {error}") from None
            except ClientError as error:
                if is_outage(error):
                    self._on_lost(effect)
                raise

    def _do(self, effect: Effect) -> Sequence[Effect]:
        """Carry out one effect, and report its result to the member."""
        match effect:
            case FindCoordinator():
                self._connection = self._client.coordinator(self._group)
                return self._member.on_coordinator_found(_now_ms())
            case Assign():
                self._assign(effect.partitions)
            case Revoke():
                self._revoke(effect)
            case Fail():
                check(effect.error_code, f"group {self._group}")
            case SendConsumerHeartbeat() | NameTopics():
                assert isinstance(self._member, ConsumerMember)
                return self._ask_for_consumer(self._member, effect)
            case _:
                assert isinstance(self._member, Member)
                return self._ask_for_classic(self._member, effect)
        return ()

    def _ask_for_classic(
        self, member: Member, effect: SendJoin | CountPartitions | SendSync | SendHeartbeat
    ) -> Sequence[Effect]:
        match effect:
            case SendJoin():
                timeout_s = effect.timeout_ms / 1000
                joined = self._coordinator().ask(effect.request, JoinGroupResponse, JOIN_VERSION, timeout_s)
                return member.on_joined(_now_ms(), joined)
            case CountPartitions():
                found = topics(self._client, sorted(effect.topics))
                return member.on_counted(_now_ms(), {one.name: len(one.partitions) for one in found})
            case SendSync():
                synced = self._coordinator().ask(effect.request, SyncGroupResponse, SYNC_VERSION)
                return member.on_synced(_now_ms(), synced)
            case SendHeartbeat():
                answer = self._coordinator().ask(effect.request, HeartbeatResponse, HEARTBEAT_VERSION)
                return member.on_heartbeat(_now_ms(), answer)
            case _:
                assert_never(effect)

    def _ask_for_consumer(self, member: ConsumerMember, effect: SendConsumerHeartbeat | NameTopics) -> Sequence[Effect]:
        if isinstance(effect, NameTopics):
            found = topics(self._client, sorted(effect.topics))
            ids = {parse_uuid(one.topic_id): one.name for one in found if one.topic_id is not None}
            return member.on_named(_now_ms(), ids)
        answer = self._coordinator().ask(effect.request, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT_VERSION)
        return member.on_consumer_heartbeat(_now_ms(), answer)

    def _has_its_share(self) -> bool:
        """Whether a member of the consumer protocol has its target: partitions that others still own come later."""
        if not isinstance(self._member, ConsumerMember):
            return True
        found = membership(self._client, self._group)
        own = [one for one in found.members if one.member_id == self._member.member_id]
        return all(set(one.target) == set(one.assigned) == set(self._member.assigned) for one in own)

    def _on_lost(self, effect: Effect) -> None:
        """`effect` got no response: skip the effects after it; the next `keep_up` continues or joins again."""
        is_reading = self._member.is_stable and not isinstance(effect, Assign | Revoke)
        if not is_reading:
            self._reader.drop(tuple(self._reader.positions))
        self._member.on_coordinator_lost(_now_ms(), is_reading=is_reading)

    def _assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        committed = group_admin.committed_offsets(self._client, self._group)
        self._reader.assign(partitions, committed)
        self._committed |= {one: committed[one] for one in partitions if one in committed}
        self._commit_due_ms = _now_ms() + COMMIT_EVERY_MS
        if is_terminal(sys.stderr):
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(self._reader.positions))
            say(f"group {self._group}: reading {names or 'nothing, it has as many members as partitions'}")

    def _revoke(self, effect: Revoke) -> None:
        if not effect.is_lost:
            # The request that follows shows whether the group has removed this member.
            self._commit_positions()
        self._reader.drop(effect.partitions)
        for one in effect.partitions:
            self._committed.pop(one, None)

    def _commit(self) -> Sequence[Effect]:
        """Commit new positions. The response shows a member whether the group has removed it."""
        code = self._commit_positions()
        return () if code is ErrorCode.NONE else self._member.on_committed(_now_ms(), code)

    def _commit_positions(self) -> ErrorCode:
        self._commit_due_ms = _now_ms() + COMMIT_EVERY_MS
        moved = {one: at for one, at in self._reader.positions.items() if self._committed.get(one) != at}
        if not moved:
            return ErrorCode.NONE
        member = self._member
        try:
            group_admin.commit(
                self._client,
                self._group,
                moved,
                member_id=member.member_id,
                generation=member.generation,
                instance_id=member.instance_id,
                version=CONSUMER_COMMIT_VERSION if isinstance(member, ConsumerMember) else OFFSET_COMMIT_VERSION_MAX,
            )
        except BrokerError as error:
            return ErrorCode(error.error_code)
        self._committed |= moved
        return ErrorCode.NONE

    def _coordinator(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._client.coordinator(self._group)
        return self._connection


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
