"""Plain and transactional commits, markers, deletions, failed appends and restarts in any order, from a seed.

While appends are pending, plain reads return what the committed log contains; without pending appends, the shard equals
one loaded from its log. The expected state is also computed here, in the most obvious way.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from tests.unit.coordinator.memory_log import Entry, loaded

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.records import GroupRecord, OffsetCommit, decode
from klamm.coordinator.runtime.log import NO_PRODUCER_ID, Producer
from klamm.coordinator.runtime.pipeline import RECORDS_IN_FLIGHT_MAX
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import DeletePartition, DeleteTopic, OffsetDeleteRequest

from .fold import assert_same
from .harness import Room

CONFIG = GroupConfig(offsets_retention_minutes=5, offsets_retention_check_interval_ms=30_000)
GROUPS = ("one", "two")
PRODUCERS = (Producer(7, 0), Producer(8, 0))
SEEDS = 40
STEPS = 300
FAILURES = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
Key = tuple[str, str, int]


class Written(NamedTuple):
    """An offset and its position in the log."""

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


class Life:
    """A random sequence of operations on one shard."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.room = Room(CONFIG)
        self.room.holds_appends, self.room.in_flight_max = True, RECORDS_IN_FLIGHT_MAX
        self.tickets: set[int] = set()

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.check()
        self.room.commit_all()
        self.check()

    def step(self) -> None:
        group = self.random.choice(GROUPS)
        place = ("topic", self.random.randrange(2))
        producer = self.random.choice(PRODUCERS)
        choice = self.random.random()
        if choice < 0.15:
            self.tickets.add(self.room.commit_later({place: self.random.randrange(100)}, group_id=group))
        elif choice < 0.35:
            offsets = {place: self.random.randrange(100)}
            self.tickets.add(self.room.commit_in_transaction_later(offsets, producer, group_id=group))
        elif choice < 0.50:
            self.tickets.add(self.room.end_later(producer, commits=self.random.random() < 0.7))
        elif choice < 0.53:
            topics = (DeleteTopic(place[0], (DeletePartition(place[1]),)),)
            self.ask(self.room.shard.on_offset_delete, OffsetDeleteRequest(group, topics))
        elif choice < 0.54:
            self.ask(self.room.shard.on_delete_groups, (group,))
        elif choice < 0.56:
            self.room.pass_time(self.random.choice((1_000, 60_000, 400_000)))
        elif choice < 0.92:
            if self.room.appending is not None:
                self.room.commit()
        elif choice < 0.97:
            if self.room.appending is not None:
                self.room.fail(self.random.choice(FAILURES), self.random.randrange(len(self.room.in_flight)))
        else:
            self.restart()

    def ask(self, call: object, request: object) -> None:
        ticket = self.room.ticket()
        self.tickets.add(ticket)
        self.room.take(call(self.room.now_ms, ticket, request))  # type: ignore[operator]

    def restart(self) -> None:
        """The first ones of the pending appends may be in the log."""
        appended = self.room.take_in_flight(self.random.randint(0, len(self.room.in_flight)))
        for reply in self.room.hosted.on_unloaded(self.room.now_ms):
            assert reply.ticket not in self.room.answers
            self.room.answers[reply.ticket] = reply.response
        again = Room(CONFIG, [*self.room.log, *appended])
        again.answers, again.now_ms, again._tickets = self.room.answers, self.room.now_ms, self.room._tickets
        again.holds_appends, again.in_flight_max = True, RECORDS_IN_FLIGHT_MAX
        self.room = again

    def check(self) -> None:
        """Plain reads return committed state; without a pending append the state is that of the log."""
        expected = committed(self.room.log)
        found = {
            (group, *place): offset
            for group in GROUPS
            for place, offset in self.room.fetch(None, group_id=group).items()
        }
        assert found == expected
        if self.room.appending is None:
            assert_same(self.room, self.room.reloaded())
            assert self.tickets <= self.room.answers.keys()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_lives_of_a_shard(seed: int) -> None:
    Life(seed).run()
