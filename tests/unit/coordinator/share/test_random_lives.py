"""Random requests, failures and restarts: the state is the fold of the log, and pruning loses nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.coordinator.share.harness import CONFIG, TOPIC_ID, Room, decoded

from klamm.coordinator.runtime.log import LogRecord
from klamm.coordinator.runtime.pipeline import RECORDS_IN_FLIGHT_MAX
from klamm.coordinator.share.records import Snapshot, Update, decode_key
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_state import SharePartitionKey

KEYS = [SharePartitionKey("g", TOPIC_ID, 0), SharePartitionKey("g", TOPIC_ID, 1), SharePartitionKey("h", TOPIC_ID, 0)]
KEY = st.sampled_from(KEYS)
EPOCH = st.integers(-1, 4)
OFFSET = st.integers(-1, 20)
CHANGED = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6), st.sampled_from([0, 2, 4]), st.integers(1, 4)), max_size=3
)
FAILURES = st.sampled_from(
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
)


@dataclass
class Plain:
    """The expected state, folded from the records offset by offset."""

    start_offset: int
    count: int
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, record: Snapshot | Update) -> None:
        if isinstance(record, Snapshot):
            self.offsets = {}
        if record.start_offset != -1 or isinstance(record, Snapshot):
            self.start_offset = record.start_offset
        self.count = record.delivery_complete_count
        for first, last, state, count in record.batches:
            for offset in range(first, last + 1):
                self.offsets[offset] = max(self.offsets.get(offset, (0, 0)), (count, state))
        self.offsets = {offset: one for offset, one in self.offsets.items() if offset >= self.start_offset}


def folded(log: list[LogRecord]) -> dict[SharePartitionKey, Plain]:
    states: dict[SharePartitionKey, Plain] = {}
    for raw, value in log:
        found, record = decode_key(raw), decoded(raw, value)
        assert found is not None
        if record is None:
            states.pop(found[1], None)
        else:
            states.setdefault(found[1], Plain(-1, -1)).take(record)
    return states


def plain(room: Room) -> dict[SharePartitionKey, Plain]:
    return {
        key: Plain(
            state.newest.start_offset,
            state.newest.delivery_complete_count,
            {
                offset: (batch.delivery_count, batch.delivery_state)
                for batch in state.newest.batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            },
        )
        for key, state in room.shard.states.items()
    }


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room = Room()
        self.room.in_flight_max = RECORDS_IN_FLIGHT_MAX
        self.stale: list[Any] = []

    @rule(key=KEY, epoch=EPOCH, offset=OFFSET)
    def initialize(self, key: SharePartitionKey, epoch: int, offset: int) -> None:
        self.room.initialize(epoch, offset, key)

    @rule(key=KEY, epoch=EPOCH)
    def read(self, key: SharePartitionKey, epoch: int) -> None:
        self.room.read(epoch, key)

    @rule(key=KEY, changed=CHANGED, leader=EPOCH, epoch=EPOCH, offset=OFFSET, count=st.integers(-1, 3))
    def write(
        self, *, key: SharePartitionKey, changed: list[Any], leader: int, epoch: int, offset: int, count: int
    ) -> None:
        batches = ((first, first + size, state, times) for first, size, state, times in changed)
        self.room.write(*batches, key=key, leader_epoch=leader, state_epoch=epoch, start_offset=offset, count=count)

    @rule(key=KEY)
    def delete(self, key: SharePartitionKey) -> None:
        self.room.delete(key)

    @rule(key=KEY)
    def summary(self, key: SharePartitionKey) -> None:
        self.room.summary(key)

    @rule(hold=st.booleans())
    def hold_appends(self, hold: bool) -> None:
        self.room.holds_appends = hold
        if not hold and self.room.appending is not None:
            self.room.commit()

    @precondition(lambda self: self.room.appending is not None)
    @rule()
    def commit(self) -> None:
        self.room.commit()

    @precondition(lambda self: self.room.appending is not None)
    @rule(error=FAILURES, at=st.integers(0, RECORDS_IN_FLIGHT_MAX - 1))
    def fail(self, error: ErrorCode, at: int) -> None:
        self.room.fail(error, at % len(self.room.in_flight))

    @rule(for_ms=st.sampled_from([100, CONFIG.write_timeout_ms, CONFIG.cold_snapshot_interval_ms]))
    def pass_time(self, for_ms: int) -> None:
        self.room.pass_time(for_ms)

    @rule()
    def restart(self) -> None:
        again = self.room.restarted()
        again.holds_appends, again.in_flight_max = self.room.holds_appends, RECORDS_IN_FLIGHT_MAX
        self.room = again

    @invariant()
    def the_log_can_be_pruned(self) -> None:
        prunes, self.room.prunes = self.room.prunes, []
        for prune in prunes:
            pruned = Room(list(self.room.log))
            pruned.prunes = [prune]
            pruned.prune()
            newest = {key: state.newest for key, state in pruned.restarted().shard.states.items()}
            assert newest == {key: state.newest for key, state in pruned.shard.states.items()}

    @invariant()
    def the_state_is_the_fold_of_the_log(self) -> None:
        if self.room.appending is None:
            assert self.room.restarted().shard.states == self.room.shard.states
            assert plain(self.room) == folded(self.room.log)
            assert not self.room.unanswered

    @invariant()
    def epochs_do_not_fall(self) -> None:
        for state in self.room.shard.states.values():
            assert state.leader_epoch >= state.newest.leader_epoch
            assert state.state_epoch >= state.newest.state_epoch


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
