"""Reads as a member of a share group (KIP-932): runs the cores of `membership` with a clock and connections."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from klamm import records
from klamm.admin.client import LEADER_MOVED, Client, check, is_outage
from klamm.admin.topics import topics
from klamm.cli.membership.effects import Fail, FindCoordinator, ShareEffect
from klamm.cli.membership.share_member import ShareMember, SharePlace
from klamm.cli.membership.share_session import ShareSession
from klamm.cli.records.reader import NO_LEADER, Received
from klamm.cli.terminal.output import say
from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from klamm.protocol.messages.share_sessions import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquireMode,
    ShareAcknowledgeResponse,
    ShareFetchData,
    ShareFetchResponse,
)
from klamm.protocol.topic_partition import TopicPartition
from klamm.protocol.uuids import parse_uuid, uuid_text

SHARE_HEARTBEAT_VERSION: Final = 1
SHARE_SESSION_VERSION: Final = 2
_RECORDS: Final = 500
"""Apache Kafka's share consumer's `max.poll.records`."""
_BYTES: Final = 16 << 20
_WAIT_MS: Final = 500
_PAUSE_S: Final = 0.1
_QUIET_S: Final = 5.0
"""Without `follow` the reader is done when its partitions had no free record for so long."""
_SESSION_LOST: Final = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED}
)
_PARTITION_LOST: Final = LEADER_MOVED | {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH}
_NOT_NOW: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})
OnAcknowledged = Callable[[TopicPartition, Sequence[AcknowledgementBatch]], None]


class ShareReader:
    """A member of a share group that reads one topic, acknowledges what was processed, and leaves at the end.

    A record is acknowledged with the next fetch from its leader, or at the end. Records that were fetched and not
    processed by then are released.
    """

    def __init__(
        self,
        client: Client,
        group_id: str,
        topic: str,
        acknowledgement: AcknowledgeType,
        *,
        follow: bool,
        on_acknowledged: OnAcknowledged = lambda where, batches: None,
    ) -> None:
        """Sends nothing yet: `poll` joins. `acknowledgement`: what becomes of each processed record.

        `on_acknowledged` is called with the offsets that a leader has taken.
        """
        self._client = client
        self._topic = topic
        self._kind = acknowledgement
        self._follow = follow
        self._on_acknowledged = on_acknowledged
        self._member = ShareMember(group_id, frozenset({topic}), uuid_text(os.urandom(16)))
        self._sessions: dict[int, ShareSession] = {}
        self._leaders: dict[SharePlace, int] = {}
        self._places: dict[TopicPartition, tuple[ShareSession, SharePlace]] = {}
        self._connection: Connection | None = None
        self._is_started = False
        self._busy_at_s = time.monotonic()
        self.records_max: int | None = None
        """The number of records that the caller still wants; None if there is no limit."""

    @property
    def is_done(self) -> bool:
        """Whether the partitions had no free record for 5 s; never true when following."""
        return not self._follow and time.monotonic() - self._busy_at_s >= _QUIET_S

    def poll(self) -> Iterator[Received]:
        """The records of a fetch from each leader. Call `advance` after processing one. Raises ClientError."""
        try:
            self._keep_up()
            by_leader = self._by_leader()
            for leader in sorted(by_leader.keys() | self._sessions.keys()):
                yield from self._fetch(leader, by_leader.get(leader, frozenset()))
                self._keep_up()
        except ClientError as error:
            if not is_outage(error):
                raise
            # The connections are closed before the next attempt, and sessions end with them.
            for session in self._sessions.values():
                session.restart()
            self._leaders.clear()
            raise
        if not by_leader:
            self._wait_for_partitions()

    def advance(self, where: TopicPartition, offset: int) -> None:
        """The record at `offset` was processed."""
        session, place = self._places[where]
        session.on_processed(place, offset, self._kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error that was printed, a second one is not shown.
        with contextlib.suppress(*((ClientError,) if kind else ())):
            for leader, session in self._sessions.items():
                self._close(leader, session)
            request = self._member.leave()
            if request is not None:
                code = self._heartbeat(request).error_code
                if code is not ErrorCode.UNKNOWN_MEMBER_ID:
                    check(code, f"group {self._member.group_id}")

    def _close(self, leader: int, session: ShareSession) -> None:
        request = session.close()
        if request is None:
            return
        answer = self._client.broker(leader).ask(request, ShareAcknowledgeResponse, SHARE_SESSION_VERSION)
        if answer.error_code not in _SESSION_LOST:
            check(answer.error_code, f"acknowledgement in group {self._member.group_id}", answer.error_message)
        for one in (one for topic in answer.responses for one in topic.partitions):
            self._on_acknowledgement(one.partition_index, one.error_code)

    def _keep_up(self) -> None:
        """Join, or send a heartbeat when one is due."""
        effects = deque[ShareEffect]()
        if not self._is_started:
            self._is_started = True
            effects.extend(self._member.start())
        effects.extend(self._member.on_timer(_now_ms()))
        while effects:
            try:
                effects.extend(self._do(effects.popleft()))
            except ClientError as error:
                if is_outage(error):
                    self._member.on_coordinator_lost(_now_ms())
                raise

    def _do(self, effect: ShareEffect) -> Sequence[ShareEffect]:
        match effect:
            case FindCoordinator():
                self._connection = self._client.coordinator(self._member.group_id)
                return self._member.on_coordinator_found(_now_ms())
            case Fail():
                check(effect.error_code, f"group {self._member.group_id}")
                return ()
            case _:
                return self._member.on_share_heartbeat(_now_ms(), self._heartbeat(effect.request))

    def _heartbeat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._client.coordinator(self._member.group_id)
        return self._connection.ask(request, ShareGroupHeartbeatResponse, SHARE_HEARTBEAT_VERSION)

    def _by_leader(self) -> dict[int, frozenset[SharePlace]]:
        """The assigned partitions of each leader; those without a leader are looked up with the next call."""
        if self._member.assigned - self._leaders.keys():
            (topic,) = topics(self._client, [self._topic])
            topic_id = parse_uuid(topic.topic_id) if topic.topic_id is not None else b""
            found = {SharePlace(topic_id, one.index): one.leader for one in topic.partitions}
            self._leaders = {where: leader for where, leader in found.items() if leader != NO_LEADER}
        by_leader: dict[int, set[SharePlace]] = {}
        for where in self._member.assigned & self._leaders.keys():
            by_leader.setdefault(self._leaders[where], set()).add(where)
        return {leader: frozenset(theirs) for leader, theirs in by_leader.items()}

    def _wait_for_partitions(self) -> None:
        """The group has not assigned any, or no leader is known: there is no fetch that would wait."""
        self._busy_at_s = time.monotonic()
        time.sleep(_PAUSE_S)

    def _fetch(self, leader: int, wanted: frozenset[SharePlace]) -> Iterator[Received]:
        group_id = self._member.group_id
        session = self._sessions.setdefault(leader, ShareSession(group_id, self._member.member_id))
        if not wanted:
            self._close(leader, session)
            del self._sessions[leader]
            return
        records_max = _RECORDS if self.records_max is None else min(self.records_max, _RECORDS)
        mode = AcquireMode.BATCH_OPTIMIZED if self.records_max is None else AcquireMode.RECORD_LIMIT
        request = session.fetch(wanted, wait_ms=_WAIT_MS, bytes_max=_BYTES, records_max=records_max, mode=mode)
        answer = self._client.broker(leader).ask(request, ShareFetchResponse, SHARE_SESSION_VERSION)
        if answer.error_code in _SESSION_LOST:
            session.restart()
            time.sleep(_PAUSE_S)
            return
        check(answer.error_code, f"share fetch of group {group_id}", answer.error_message)
        session.on_answered()
        acknowledged = {
            one.partition_index: one.acknowledgement_batches for of in request.topics for one in of.partitions
        }
        for one in (one for topic in answer.responses for one in topic.partitions):
            batches = acknowledged.get(one.partition_index, ())
            self._on_acknowledgement(one.partition_index, one.acknowledge_error_code, batches)
        for topic in answer.responses:
            for one in topic.partitions:
                yield from self._take(session, SharePlace(topic.topic_id, one.partition_index), one)

    def _take(self, session: ShareSession, place: SharePlace, answer: ShareFetchData) -> Iterator[Received]:
        where = TopicPartition(self._topic, place.partition)
        if answer.error_code in _PARTITION_LOST:
            self._leaders.pop(place, None)
            time.sleep(_PAUSE_S)
            return
        if answer.error_code not in _NOT_NOW:
            check(answer.error_code, str(where), answer.error_message)
        counts = {
            offset: one.delivery_count
            for one in answer.acquired_records
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        if not counts:
            return
        self._busy_at_s = time.monotonic()
        self._places[where] = session, place
        try:
            found = [one for one in records.decode(answer.records or b"") if one.offset in counts]
        except records.RecordsDamagedError as error:
            raise ClientError(f"{where} at offset {min(counts)}: {error}") from None
        # Offsets without a record: compaction has removed it, or it marks the end of a transaction.
        for offset in counts.keys() - {record.offset for record in found}:
            session.on_processed(place, offset, AcknowledgeType.GAP)
        for record in found:
            yield Received(where, record, counts[record.offset])

    def _on_acknowledgement(self, partition: int, code: int, batches: Sequence[AcknowledgementBatch] = ()) -> None:
        """The leader has answered. Refused records are delivered again."""
        where = TopicPartition(self._topic, partition)
        if code == ErrorCode.NONE and batches:
            self._on_acknowledged(where, batches)
        elif code not in (ErrorCode.NONE, *_PARTITION_LOST):
            say(f"{where}: records were not acknowledged, and are delivered again ({ErrorCode(code).name})")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
