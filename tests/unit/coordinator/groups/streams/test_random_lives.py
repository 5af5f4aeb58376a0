"""Random operations on a streams group: members, topics and settings change, appends fail, the shard is reloaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.coordinator.groups.streams.harness import AT_ONCE, GROUP, Metadata, StreamsRoom

from klamm._engine.groups import group_hash
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.streams.topology import configure, required_topics
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.streams_messages import (
    HeartbeatResult,
    InternalTopic,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)

CONFIG = replace(AT_ONCE, group_streams_initial_rebalance_delay_ms=1_000, group_streams_assignment_interval_ms=500)
TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", ("input",), repartition_sink_topics=("middle",)),
        Subtopology(
            "1",
            repartition_source_topics=(InternalTopic("middle"),),
            state_changelog_topics=(InternalTopic("store-changelog"),),
        ),
    ),
)
MEMBERS = ("a", "b", "c", "d")
PROCESSES = {"a": "p", "b": "p", "c": "q", "d": "r"}
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
Lists = tuple[TaskIds, ...]


@dataclass
class Client:
    """A member's view of itself: its epoch and its last assignment."""

    epoch: int = 0
    active: Lists = ()
    standby: Lists = ()

    def on_response(self, response: StreamsGroupHeartbeatResponse) -> None:
        if response.error_code is not ErrorCode.NONE:
            assert response.error_code in (*LOST, ErrorCode.COORDINATOR_NOT_AVAILABLE), response
            if response.error_code in LOST:
                self.epoch, self.active, self.standby = 0, (), ()
            return
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.active, self.standby = response.active_tasks, response.standby_tasks or ()


@dataclass
class Waiting:
    """A heartbeat without a response yet."""

    member: str
    ticket: int


def state(room: StreamsRoom) -> Any:
    """The folded state of all groups."""
    return {group_id: _state(group) for group_id, group in room.shard.modern_groups.items()}


def _state(group: Any) -> dict[str, Any]:
    soft = {"configured", "shutdown_member", "endpoint_epoch", "hash_checked_epoch", "owners"}
    folded = {name: value for name, value in vars(group).items() if name not in soft}
    return folded | {f"owners.{name}": value for name, value in vars(group.owners).items()}


def held(member: StreamsMember) -> Iterable[tuple[str, str, int]]:
    """Role, subtopology and partition of all tasks that a member owns or has yet to revoke."""
    for tasks in (member.assigned, member.pending_revocation):
        for role, sets in (("active", tasks.active), ("standby", tasks.standby)):
            for key, partitions in sets.items():
                for partition in partitions:
                    yield role, key, partition


class Lives(RuleBasedStateMachine):
    """The members a to d, of which a and b are in one process."""

    def __init__(self) -> None:
        super().__init__()
        self.room = StreamsRoom(CONFIG, metadata=Metadata(input=3))
        self.clients = {member: Client() for member in MEMBERS}
        self.waiting: list[Waiting] = []
        self.missing: dict[str, int] = {}

    def collect(self) -> None:
        left = []
        for one in self.waiting:
            if one.ticket not in self.room.answers:
                left.append(one)
                continue
            answer = self.room.answers[one.ticket]
            assert isinstance(answer, HeartbeatResult)
            self.clients[one.member].on_response(answer.response)
            for topic in answer.topics:
                self.missing[topic.name.replace("-", "_")] = topic.partitions
        self.waiting = left

    def beat(self, member: str, *, reports: bool = True) -> None:
        if any(one.member == member for one in self.waiting):
            return
        client = self.clients[member]
        fields: dict[str, Any] = {"topology": TOPOLOGY, "process_id": PROCESSES[member]}
        if client.epoch:
            tasks = {"active_tasks": client.active, "standby_tasks": client.standby, "warmup_tasks": ()}
            fields = tasks if reports else {}
        self.waiting.append(Waiting(member, self.room.beat_later(member, client.epoch, **fields)))
        self.collect()

    @rule(member=st.sampled_from(MEMBERS), reports=st.booleans())
    def heartbeat(self, member: str, reports: bool) -> None:
        self.beat(member, reports=reports)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        if self.clients[member].epoch and not any(one.member == member for one in self.waiting):
            self.room.beat_later(member, -1)
            self.clients[member] = Client()

    @rule(member=st.sampled_from(MEMBERS))
    def restart(self, member: str) -> None:
        """The client forgets its epoch and tasks, and joins again with its id."""
        if not any(one.member == member for one in self.waiting):
            self.clients[member] = Client()
            self.beat(member)

    @rule(for_ms=st.sampled_from((1, 400, 1_000, 20_000, 61_000)))
    def time(self, for_ms: int) -> None:
        self.room.pass_time(for_ms)
        self.collect()

    @rule()
    def create_missing(self) -> None:
        self.room.create(**self.missing)

    @rule(count=st.integers(3, 5))
    def add_partitions(self, count: int) -> None:
        if count > self.room.metadata.counts["input"]:
            self.room.create(input=count, middle=count, store_changelog=count)

    @rule(count=st.sampled_from("012"))
    def set_standbys(self, count: str) -> None:
        self.room.group_configs["streams.num.standby.replicas"] = count

    @rule()
    def hold(self) -> None:
        self.room.holds_appends = True

    @rule()
    def release(self) -> None:
        self.room.holds_appends = False
        self.room.commit_all()
        self.collect()

    @precondition(lambda self: self.room.appending is not None)
    @rule()
    def fail(self) -> None:
        """An append fails: the state is that of the log again."""
        self.room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        self.room.holds_appends = False
        self.room.commit_all()
        self.collect()
        assert state(self.room) == state(self.room.reloaded())

    @precondition(lambda self: self.room.appending is None)
    @rule()
    def reload(self) -> None:
        """The partition moves to another broker, and pending heartbeats are lost."""
        again = self.room.reloaded()
        assert state(again) == state(self.room)
        self.room, self.waiting = again, []

    @invariant()
    def each_process_has_a_task_once(self) -> None:
        """A task is active in one member, and has one role in a process."""
        for group in self.room.shard.modern_groups.values():
            assert isinstance(group, StreamsGroup)
            active, in_process = set(), set()
            for member in group.members.values():
                for role, key, partition in held(member):
                    if role == "active":
                        assert (key, partition) not in active, f"{key}_{partition} is active twice"
                        active.add((key, partition))
                    place = member.process_id, key, partition
                    assert place not in in_process, f"{place} is in the process twice"
                    in_process.add(place)

    @invariant()
    def epochs_are_in_order(self) -> None:
        for group in self.room.shard.modern_groups.values():
            assert group.assignment_epoch <= group.group_epoch
            for member in group.members.values():
                # Leaving UNREVOKED_TASKS for the same state may raise a member's epoch above the target's by one.
                assert member.member_epoch <= group.group_epoch + 1

    @invariant()
    def the_configured_topology_belongs_to_the_metadata_hash(self) -> None:
        counts, hash_of = self.room.metadata.counts, self.room.metadata.hash_of
        hashes = [(name, value) for name in sorted(required_topics(TOPOLOGY)) if (value := hash_of(name)) is not None]
        for group in self.room.shard.modern_groups.values():
            assert isinstance(group, StreamsGroup)
            if group.configured is not None and group.metadata_hash == group_hash(hashes):
                assert group.configured == configure(TOPOLOGY, counts.get)

    def teardown(self) -> None:
        """Eventually the group becomes stable, and every task is active."""
        self.release()
        self.room.create(**{name.replace("-", "_"): 5 for name in ("input", "middle", "store-changelog")})
        for _ in range(12):
            for member in MEMBERS:
                self.beat(member)
            self.room.pass_time(1_000)
        group = self.room.shard.modern_groups[GROUP]
        assert isinstance(group, StreamsGroup)
        assert group.state == "Stable", _state(group)
        active = sorted(one[1:] for member in group.members.values() for one in held(member) if one[0] == "active")
        assert active == [(key, partition) for key in "01" for partition in range(5)]
        for client in self.clients.values():
            assert client.epoch == group.assignment_epoch


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_topology_configured_by_a_failed_append_is_forgotten() -> None:
    """The group keeps the one for its metadata hash: otherwise it would not be ready although all topics exist."""
    lives = Lives()
    lives.restart("a")
    lives.add_partitions(5)
    lives.heartbeat("a", reports=False)
    lives.create_missing()
    lives.hold()
    lives.restart("a")
    lives.fail()
    lives.teardown()
