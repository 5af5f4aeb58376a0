"""A shard with a log in memory that commits immediately, or when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.unit.coordinator.hosting_room import HostingRoom
from tests.unit.coordinator.memory_log import Entry, entries, loaded

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.counts import GroupCounts
from klamm.coordinator.groups.effects import GroupEffect
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.groups.verifications import Verification
from klamm.coordinator.runtime.log import Marker, Producer
from klamm.coordinator.runtime.pipeline import Write
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
    Caller,
    FetchGroup,
    FetchTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    SyncAssignment,
    SyncGroupRequest,
)

GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=3_000)


def subscription(*topics: str, version: int = 1) -> bytes:
    """A consumer's subscription, as far as the coordinator reads it."""
    raw = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        raw += len(topic.encode()).to_bytes(2, "big") + topic.encode()
    return raw + b"\xff\xff\xff\xff"


RANGE = JoinProtocol("range", subscription("topic"))
STICKY = JoinProtocol("sticky", subscription("topic"))


class Room(HostingRoom):
    """A shard, its log, a clock, and its responses by ticket."""

    def __init__(
        self, config: GroupConfig = CONFIG, log: Sequence[Entry] | None = None, now_ms: int = 1_000_000
    ) -> None:
        self.config = config
        self.log: list[Entry] = list(log or ())
        self.now_ms = now_ms
        self.failed = False
        """Whether an append has failed: a live group may then be ahead of its record, as in Kafka."""
        self._uuids = 0
        self.counts = GroupCounts()
        self.effects: list[GroupEffect] = []
        """The effects that the shard has returned."""
        self.shard = self._make_shard()
        for record in loaded(self.log):
            self.shard.replay(record)
        self.host(self.shard)

    def _make_shard(self) -> GroupShard:
        return GroupShard(self.config, self._draw_uuid, self.counts)

    def _draw_uuid(self) -> str:
        self._uuids += 1
        return f"{self._uuids:04}"

    def on_effect(self, effect: GroupEffect) -> None:
        self.effects.append(effect)

    def records_of(self, write: Write[Any]) -> list[Entry]:
        return entries(write.records, write.producer, write.marker)

    def fail(self, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS, at: int = 0) -> None:
        self.failed = True
        super().fail(error, at)

    def reloaded(self) -> Room:
        """Another shard loaded from the same log."""
        return Room(self.config, self.log)

    @property
    def group(self) -> Any:
        return self.shard.groups[GROUP]

    # Requests: each returns the ticket, or the response if there is one already.

    def join_later(self, member_id: str = "", *, version: int = 9, client_id: str = "client", **fields: Any) -> int:
        values: dict[str, Any] = {"protocol_type": "consumer", "protocols": (RANGE,), "group_id": GROUP}
        values |= {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS, "member_id": member_id}
        request = JoinGroupRequest(**(values | fields))
        ticket = self.ticket()
        self.take(self.shard.on_join(self.now_ms, ticket, Caller(version, client_id, "/127.0.0.1"), request))
        return ticket

    def join(self, member_id: str = "", **fields: Any) -> JoinGroupResponse:
        answer: JoinGroupResponse = self.answers[self.join_later(member_id, **fields)]
        return answer

    def begin(self, *, count: int = 1, **fields: Any) -> list[JoinGroupResponse]:
        """A group of `count` dynamic members after its first join phase."""
        tickets = []
        for _ in range(count):
            member_id = self.join(**fields).member_id
            tickets.append(self.join_later(member_id, **fields))
        while not self.answers.keys() >= set(tickets):
            self.pass_time(100)
        return [self.answers[ticket] for ticket in tickets]

    def sync_later(self, joined: JoinGroupResponse, assign: bool = True, **fields: Any) -> int:
        assignments = tuple(SyncAssignment(m.member_id, f"to {m.member_id}".encode()) for m in joined.members)
        request = SyncGroupRequest(GROUP, joined.generation_id, joined.member_id, assignments if assign else ())
        ticket = self.ticket()
        self.take(self.shard.on_sync(self.now_ms, ticket, replace(request, **fields)))
        return ticket

    def make_stable(self, **fields: Any) -> list[JoinGroupResponse]:
        """A stable group."""
        joined = self.begin(**fields)
        tickets = [self.sync_later(answer) for answer in joined]
        assert all(self.answers[ticket].error_code is ErrorCode.NONE for ticket in tickets)
        return joined

    def heartbeat_later(self, member_id: str, generation_id: int, instance_id: str | None = None) -> int:
        ticket = self.ticket()
        request = HeartbeatRequest(GROUP, generation_id, member_id, instance_id)
        self.take(self.shard.on_heartbeat(self.now_ms, ticket, request))
        return ticket

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        return ErrorCode(self.answers[self.heartbeat_later(member_id, generation_id, instance_id)])

    def leave(self, *members: LeavingMember | str) -> Any:
        leaving = tuple(LeavingMember(m) if isinstance(m, str) else m for m in members)
        ticket = self.ticket()
        self.take(self.shard.on_leave(self.now_ms, ticket, LeaveGroupRequest(GROUP, leaving)))
        return self.answers[ticket]

    def commit_later(self, offsets: dict[tuple[str, int], int], *, version: int = 9, **fields: Any) -> int:
        topics: dict[str, list[tuple[int, int, int, str | None]]] = {}
        metadata = fields.pop("metadata", "")
        topic_id = fields.pop("topic_id", ZERO_ID)
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append((partition, offset, 5, metadata))
        listed = [(topic, topic_id, parts) for topic, parts in topics.items()]
        if "generation_id" in fields:
            fields["generation_id_or_member_epoch"] = fields.pop("generation_id")
        group_id = fields.pop("group_id", GROUP)
        ticket = self.ticket()
        request = CommitRequest(group_id, listed, version=version, **fields)
        self.take(self.shard.on_offset_commit(self.now_ms, ticket, request))
        return ticket

    def commit_offset(self, offset: int = 42, *, partition: int = 0, topic: str = "topic", **fields: Any) -> ErrorCode:
        answer = self.answers[self.commit_later({(topic, partition): offset}, **fields)]
        return ErrorCode(answer[0] if isinstance(answer, list) else answer)

    def commit_in_transaction_later(
        self,
        offsets: dict[tuple[str, int], int],
        producer: Producer,
        *,
        verification: Verification | None = None,
        metadata: str | None = "",
        **fields: Any,
    ) -> int:
        """A TxnOffsetCommit after its verification, of an anonymous producer unless `fields` override it."""
        listed = [(topic, ZERO_ID, [(part, offset, 5, metadata)]) for (topic, part), offset in offsets.items()]
        if "generation_id" in fields:
            fields["generation_id_or_member_epoch"] = fields.pop("generation_id")
        request = CommitRequest(fields.pop("group_id", GROUP), listed, **fields)
        verification = verification or self.shard.begin_verification(producer, is_adding=True)
        ticket = self.ticket()
        self.take(self.shard.on_transactional_commit(self.now_ms, ticket, request, verification))
        return ticket

    def commit_in_transaction(self, offset: int, producer: Producer, **fields: Any) -> ErrorCode:
        """The same for one partition, with an immediate response."""
        answer = self.answers[self.commit_in_transaction_later({("topic", 0): offset}, producer, **fields)]
        return ErrorCode(answer[0] if isinstance(answer, list) else answer)

    def end_later(self, producer: Producer, *, commits: bool, version: int = 2) -> int:
        """A marker."""
        ticket = self.ticket()
        self.take(self.shard.on_marker(self.now_ms, ticket, Marker(producer, commits, 0, version)))
        return ticket

    def end(self, producer: Producer, *, commits: bool) -> ErrorCode:
        return ErrorCode(self.answers[self.end_later(producer, commits=commits)])

    def fetch_later(self, topics: dict[str, tuple[int, ...]] | None, *, stable: bool = False, **fields: Any) -> int:
        topic_id = fields.pop("topic_id", ZERO_ID)
        listed = None if topics is None else tuple(FetchTopic(t, topic_id, parts) for t, parts in topics.items())
        request = replace(FetchGroup(GROUP, listed), **fields)
        ticket = self.ticket()
        self.take(self.shard.on_offset_fetch(self.now_ms, ticket, request, require_stable=stable))
        return ticket

    def fetch(self, topics: dict[str, tuple[int, ...]] | None = None, **fields: Any) -> dict[tuple[str, int], int]:
        """Committed offset by partition."""
        answer = self.answers[self.fetch_later(topics, **fields)]
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}
