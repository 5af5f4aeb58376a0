"""Plain and transactional commits, markers, deletions, failed appends and restarts in any order (hypothesis).

While appends are in flight, plain reads return what the committed log says; with none in flight, the shard equals one
made from its log (goals R8). What the log says is also computed here, in the most obvious way.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.coordinator.memory_log import Entry, loaded

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.records import GroupRecord, OffsetCommit, decode
from klamm.coordinator.runtime.log import NO_PRODUCER_ID, Producer
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import DeletePartition, DeleteTopic, OffsetDeleteRequest

from .fold import assert_same
from .harness import Room

CONFIG = GroupConfig(offsets_retention_minutes=5, offsets_retention_check_interval_ms=30_000)
GROUPS = ("one", "two")
FAILURES = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
groups = st.sampled_from(GROUPS)
places = st.tuples(st.just("topic"), st.integers(0, 1))
offsets = st.integers(0, 99)
producers = st.builds(Producer, st.integers(7, 8), st.integers(0, 1))

Key = tuple[str, str, int]


class Written(NamedTuple):
    """An offset, and where it is in the log."""

    offset: int
    at: int


def committed(log: list[Entry]) -> dict[Key, int]:
    """The committed offsets of a log."""
    plain: dict[Key, Written] = {}
    pending: dict[int, dict[Key, Written]] = {}
    for record in loaded(log):
        if record.is_control:
            for key, written in pending.pop(record.producer_id, {}).items():
                if record.key[1] and (key not in plain or plain[key].at < written.at):
                    plain[key] = written
            continue
        found = decode(record.key, record.value)
        if isinstance(found, GroupRecord):
            continue
        assert isinstance(found, OffsetCommit)
        key = (found.group_id, found.topic, found.partition)
        if found.value is None:
            for offsets_of in (plain, *pending.values()):
                offsets_of.pop(key, None)
        else:
            written = Written(found.value.offset, record.offset)
            is_plain = record.producer_id == NO_PRODUCER_ID
            (plain if is_plain else pending.setdefault(record.producer_id, {}))[key] = written
    return {key: written.offset for key, written in plain.items()}


class Life(RuleBasedStateMachine):
    """One shard."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room(CONFIG)
        self.room.holds_appends = True
        self.tickets: set[int] = set()

    @rule(group=groups, place=places, offset=offsets)
    def commit(self, group: str, place: tuple[str, int], offset: int) -> None:
        self.tickets.add(self.room.commit_later({place: offset}, group_id=group))

    @rule(group=groups, place=places, offset=offsets, producer=producers)
    def commit_in_transaction(self, group: str, place: tuple[str, int], offset: int, producer: Producer) -> None:
        self.tickets.add(self.room.commit_in_transaction_later({place: offset}, producer, group_id=group))

    @rule(producer=producers, commits=st.booleans())
    def end(self, producer: Producer, commits: bool) -> None:
        self.tickets.add(self.room.end_later(producer, commits=commits))

    @rule(group=groups, place=places)
    def delete_offset(self, group: str, place: tuple[str, int]) -> None:
        topic, partition = place
        request = OffsetDeleteRequest(group, (DeleteTopic(topic, (DeletePartition(partition),)),))
        ticket = self.room.ticket()
        self.tickets.add(ticket)
        self.room.take(self.room.shard.on_offset_delete(self.room.now_ms, ticket, request))

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        ticket = self.room.ticket()
        self.tickets.add(ticket)
        self.room.take(self.room.shard.on_delete_groups(self.room.now_ms, ticket, (group,)))

    @rule(for_ms=st.sampled_from((1_000, 60_000, 400_000)))
    def pass_time(self, for_ms: int) -> None:
        self.room.pass_time(for_ms)

    @precondition(lambda self: self.room.appending is not None)
    @rule()
    def finish(self) -> None:
        self.room.commit()

    @precondition(lambda self: self.room.appending is not None)
    @rule(error=st.sampled_from(FAILURES))
    def fail(self, error: ErrorCode) -> None:
        self.room.fail(error)

    @rule(was_appended=st.booleans())
    def restart(self, was_appended: bool) -> None:
        """The append in flight may be in the log."""
        appending, self.room.appending = self.room.appending, None
        for reply in self.room.hosted.on_unloaded(self.room.now_ms):
            assert reply.ticket not in self.room.answers
            self.room.answers[reply.ticket] = reply.response
        again = Room(CONFIG, [*self.room.log, *((appending or ()) if was_appended else ())])
        again.answers, again.now_ms, again._tickets = self.room.answers, self.room.now_ms, self.room._tickets
        again.holds_appends = True
        self.room = again

    @invariant()
    def plain_reads_return_what_is_committed(self) -> None:
        expected = committed(self.room.log)
        found = {
            (group, *place): offset
            for group in GROUPS
            for place, offset in self.room.fetch(None, group_id=group).items()
        }
        assert found == expected

    @invariant()
    def the_state_is_that_of_the_log(self) -> None:
        if self.room.appending is None:
            assert_same(self.room, self.room.reloaded())
            assert self.tickets <= self.room.answers.keys()

    def teardown(self) -> None:
        self.room.commit_all()
        self.the_state_is_that_of_the_log()


TestLives = Life.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
