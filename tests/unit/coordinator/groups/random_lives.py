"""Clients of two groups that mostly behave like clients, and sometimes randomly; everything is determined by a seed.

They join, sync, send heartbeats, commit, leave, disappear and return; appends are pending, succeed or fail; time
passes; the node restarts, or loses the partition. After every step the invariants of a group hold (`check_group`),
every ticket has one response or waits legitimately, and, without pending appends, a shard loaded from the log has the
live one's state.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from random import Random

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.pipeline import RECORDS_IN_FLIGHT_MAX
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    Caller,
    DeletePartition,
    DeleteTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    OffsetDeleteRequest,
    SyncAssignment,
    SyncGroupRequest,
)

from .fold import assert_same
from .harness import RANGE, STICKY, Room, subscription

CONFIG = GroupConfig(
    group_initial_rebalance_delay_ms=500,
    group_max_size=4,
    offsets_retention_minutes=2,
    offsets_retention_check_interval_ms=30_000,
)
PROTOCOLS = ((RANGE,), (STICKY, RANGE), (RANGE, STICKY), (JoinProtocol("range", subscription("other")),))
FAILURES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS)
PASSING_MS = (1, 100, 100, 500, 500, 1_000, 3_000, 11_000)


@dataclass
class Client:
    """A client's knowledge of its membership."""

    group_id: str
    instance_id: str | None
    version: int
    protocols: tuple[JoinProtocol, ...] = (RANGE,)
    member_id: str = ""
    joined: JoinGroupResponse | None = None
    waits_for: int | None = None
    waits_for_join: bool = False
    has_synced: bool = False


class Lives:
    """One run."""

    def __init__(self, seed: int, *, may_fail: bool) -> None:
        self.random = Random(seed)
        self.may_fail = may_fail
        self.room = Room(CONFIG)
        self.room.in_flight_max = RECORDS_IN_FLIGHT_MAX
        self.seen: Counter[str] = Counter()
        self.open_tickets: set[int] = set()
        self.generations: dict[str, tuple[ClassicGroup, int]] = {}
        self.clients = [
            Client(group_id, instance_id, version)
            for group_id in ("one", "two")
            for instance_id, version in ((None, 9), (None, 3), ("i1", 9), ("i1", 9), ("i2", 5), (None, 9))
        ]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.note_answers()
            self.check()
        self.finish()

    def step(self) -> None:
        choice = self.random.random()
        client = self.random.choice(self.clients)
        if choice < 0.55:
            self.go_on(client)
        elif choice < 0.70:
            self.room.pass_time(self.random.choice(PASSING_MS))
        elif choice < 0.90:
            self.end_append()
        elif choice < 0.97:
            self.surprise(client)
        elif choice < 0.98:
            self.room.holds_appends = not self.room.holds_appends
        elif choice < 0.985:
            self.restart()
        else:
            self.lose_leadership()

    def go_on(self, client: Client) -> None:
        """Send the next request of a regular client."""
        if client.waits_for is not None:
            return
        if client.joined is None:
            self.join(client)
        elif not client.has_synced:
            self.sync(client)
        elif self.random.random() < 0.5:
            self.heartbeat(client)
        else:
            self.commit_offset(client)

    def surprise(self, client: Client) -> None:
        """Send a request at random, whatever the client waits for."""
        match self.random.randrange(9):
            case 0:
                self.leave(client)
            case 1:  # it forgets everything and starts again
                client.member_id, client.joined, client.waits_for, client.has_synced = "", None, None, False
            case 2:
                client.protocols = self.random.choice(PROTOCOLS)
                self.join(client)
            case 3:
                self.join(client)
            case 4:
                if client.joined is not None:
                    self.sync(client)
            case 5:
                self.ask(self.room.shard.on_delete_groups, (client.group_id,))
            case 6:
                topics = (DeleteTopic("topic", (DeletePartition(self.random.randrange(3)),)),)
                self.ask(self.room.shard.on_offset_delete, OffsetDeleteRequest(client.group_id, topics))
            case 7:
                removed = LeaveGroupRequest(client.group_id, (LeavingMember("", client.instance_id),))
                self.ask(self.room.shard.on_leave, removed)
            case _:
                self.room.pass_time(60_000)

    def ask(self, call: object, *arguments: object) -> int:
        ticket = self.room.ticket()
        self.open_tickets.add(ticket)
        self.room.take(call(self.room.now_ms, ticket, *arguments))  # type: ignore[operator]
        return ticket

    def join(self, client: Client) -> None:
        timeout_ms = self.random.choice((0, 2_000, 5_000, 20_000))
        request = JoinGroupRequest(
            client.group_id,
            10_000,
            client.member_id,
            "consumer",
            client.protocols,
            timeout_ms,
            client.instance_id,
        )
        caller = Caller(client.version, "c", "/h")
        client.joined, client.has_synced, client.waits_for_join = None, False, True
        client.waits_for = self.ask(self.room.shard.on_join, caller, request)

    def sync(self, client: Client) -> None:
        joined = client.joined
        assert joined is not None
        assignments = tuple(SyncAssignment(m.member_id, m.member_id.encode()) for m in joined.members)
        if joined.skip_assignment:
            assignments = ()
        request = SyncGroupRequest(
            client.group_id, joined.generation_id, joined.member_id, assignments, client.instance_id
        )
        client.waits_for_join = False
        client.waits_for = self.ask(self.room.shard.on_sync, request)

    def heartbeat(self, client: Client) -> None:
        assert client.joined is not None
        request = HeartbeatRequest(
            client.group_id, client.joined.generation_id, client.joined.member_id, client.instance_id
        )
        ticket = self.ask(self.room.shard.on_heartbeat, request)
        if self.room.answers.get(ticket, ErrorCode.NONE) is not ErrorCode.NONE:
            client.joined = None

    def commit_offset(self, client: Client) -> None:
        assert client.joined is not None
        ticket = self.room.commit_later(
            {("topic", self.random.randrange(3)): self.random.randrange(100)},
            group_id=client.group_id,
            member_id=client.joined.member_id,
            generation_id=client.joined.generation_id,
            group_instance_id=client.instance_id,
        )
        self.open_tickets.add(ticket)

    def leave(self, client: Client) -> None:
        leaving = LeavingMember(client.member_id, client.instance_id)
        self.ask(self.room.shard.on_leave, LeaveGroupRequest(client.group_id, (leaving,)))
        client.member_id, client.joined, client.has_synced = "", None, False

    def end_append(self) -> None:
        if self.room.appending is None:
            return
        if self.may_fail and self.random.random() < 0.1:
            self.room.fail(self.random.choice(FAILURES), self.random.randrange(len(self.room.in_flight)))
        else:
            self.room.commit()

    def note_answers(self) -> None:
        """Each client processes its response."""
        for client in self.clients:
            answer = self.room.answers.get(client.waits_for)
            if answer is None:
                continue
            client.waits_for = None
            if client.waits_for_join:
                self.note_join(client, answer)
            else:
                self.note_sync(client, ErrorCode(answer.error_code))

    def note_join(self, client: Client, answer: JoinGroupResponse) -> None:
        self.seen[f"join {answer.error_code.name}"] += 1
        if answer.error_code is ErrorCode.NONE:
            assert answer.leader == answer.member_id or not answer.members, "only the leader is told of the members"
            assert len({m.member_id for m in answer.members}) == len(answer.members)
            client.joined, client.member_id = answer, answer.member_id
        elif answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code is not ErrorCode.REBALANCE_IN_PROGRESS:
            client.member_id = ""

    def note_sync(self, client: Client, error: ErrorCode) -> None:
        self.seen[f"sync {error.name}"] += 1
        client.has_synced = error is ErrorCode.NONE
        if error is ErrorCode.NONE:
            return
        client.joined = None
        if error not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            client.member_id = ""

    def restart(self) -> None:
        """The node shuts down cleanly and restarts."""
        self.room.commit_all()
        if not self.room.failed:
            assert_same(self.room, self.room.reloaded())
        self.reload()
        self.seen["restart"] += 1

    def lose_leadership(self) -> None:
        """The partition moves away while appends are pending, and returns with the first ones of them, or none."""
        pending = len(self.room.in_flight)
        appended = self.room.take_in_flight(self.random.randint(0, pending))
        self.reload()
        if appended:
            self.room.log += appended
            self.reload()
        assert self.open_tickets <= self.room.answers.keys()
        self.seen["lost with an append under way"] += pending > 0

    def reload(self) -> None:
        for reply in self.room.hosted.on_unloaded(self.room.now_ms):
            assert reply.ticket not in self.room.answers, f"{reply.ticket} was answered twice"
            self.room.answers[reply.ticket] = reply.response
        again = Room(CONFIG, self.room.log)
        again.answers, again.now_ms = self.room.answers, self.room.now_ms
        again._tickets, again._uuids = self.room._tickets, self.room._uuids
        again.in_flight_max = self.room.in_flight_max
        self.room = again

    def check(self) -> None:
        for group in self.room.shard.groups.values():
            check_group(group)
            self.seen[f"{group.state.value} with {len(group.members)}"] += 1
            before, generation_id = self.generations.get(group.group_id, (group, 0))
            assert before is not group or group.generation_id >= generation_id
            self.generations[group.group_id] = (group, group.generation_id)
        if self.room.appending is None:
            self.check_waiting()
            if not self.room.failed and self.random.random() < 0.2:
                assert_same(self.room, self.room.reloaded())

    def check_waiting(self) -> None:
        """Every ticket has a response, or waits in a member."""
        waiting = {
            ticket
            for group in self.room.shard.groups.values()
            for member in group.members.values()
            for ticket in (member.join_ticket, member.sync_ticket)
            if ticket is not None
        }
        assert self.open_tickets - self.room.answers.keys() == waiting

    def finish(self) -> None:
        """All clients are gone: eventually each ticket has a response."""
        self.room.holds_appends = False
        self.room.commit_all()
        self.room.pass_time(1_000_000)
        assert self.open_tickets <= self.room.answers.keys()
        assert not self.room.shard.groups


def check_group(group: ClassicGroup) -> None:
    """The numbered invariants of ClassicGroup, and those of its states."""
    members = group.members
    assert group.leader_id is None or group.leader_id in members
    statics = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id is not None}
    assert group.static_members == statics
    assert not group.pending_joins & members.keys()
    assert group.pending_syncs <= members.keys()
    assert group.waiting_joins == sum(m.join_ticket is not None for m in members.values())
    names = itertools.chain.from_iterable((p.name for p in m.protocols) for m in members.values())
    assert group.supporters == dict(Counter(names))
    if group.state is not GroupState.PREPARING_REBALANCE:  # static members remain without having rejoined
        assert len(members) <= CONFIG.group_max_size + len(statics)
    assert not members or group.candidates()
    if group.state is GroupState.EMPTY:
        assert not members
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert group.leader_id is not None
        assert group.protocol_name in group.candidates()
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert all(m.sync_ticket is None for m in members.values())
