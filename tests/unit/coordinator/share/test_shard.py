"""The share coordinator's responses and records (KIP-932). tests/interop compares the timeless ones with Kafka's."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.share.harness import CONFIG, KEY, OTHER, TOPIC_ID, Room

from klamm.coordinator.runtime.log import LoadedRecord, RecordError
from klamm.coordinator.share.config import ShareConfig
from klamm.coordinator.share.records import SNAPSHOT, UPDATE, Snapshot, Update, share_key
from klamm.coordinator.share.shard import Prune
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_state import PartitionError, PartitionSummary, StateBatch

NONE = ErrorCode.NONE
DONE = PartitionError(0)
PASSING = CONFIG.cold_snapshot_interval_ms


class TestSnapshots:
    def test_one_after_a_number_of_updates(self) -> None:
        room = Room(config=ShareConfig())
        room.initialize()
        for number in range(501):
            assert room.write((number, number, 2, 1), start_offset=number) == DONE
        *updates, last = room.written()[1:]
        assert len(updates) == 500
        assert all(isinstance(one, Update) and one.snapshot_epoch == 0 for one in updates)
        assert isinstance(last, Snapshot)
        assert last.snapshot_epoch == 1

    def test_each_write_with_a_limit_of_0(self) -> None:
        room = Room(config=ShareConfig(updates_per_snapshot=0))
        room.initialize()
        room.read(1)
        room.write((0, 4, 2, 1))
        assert [type(one) for one in room.written()] == [Snapshot] * 3
        assert room.state().newest.snapshot_epoch == 2

    def test_initializing_does_not_restart_the_count(self) -> None:
        room = Room()
        room.initialize()
        room.write()
        room.write()
        room.initialize(1)
        room.write()
        room.write()
        kinds = [type(one) for one in room.written()]
        assert kinds == [Snapshot, Update, Update, Snapshot, Update, Snapshot]

    def test_the_count_is_rebuilt_by_replay(self) -> None:
        room = Room()
        room.initialize()
        for _ in range(3):
            room.write()
        again = room.restarted()
        again.write()
        assert isinstance(again.written()[-1], Snapshot)

    def test_a_state_that_is_not_written_gets_a_cold_snapshot(self) -> None:
        room = Room()
        room.initialize(start_offset=5)
        room.write((5, 9, 0, 1))
        began_ms = room.now_ms
        room.pass_time(PASSING)
        _, _, cold = room.written()
        assert isinstance(cold, Snapshot)
        assert cold == Snapshot(1, 0, 0, 5, 0, (StateBatch(5, 9, 0, 1),), began_ms, began_ms + PASSING)
        room.pass_time(10 * PASSING)
        assert len(room.log) == 3, "all states are cold"

    def test_cold_states_are_repeated_while_another_is_warm(self) -> None:
        room = Room()
        room.initialize()
        room.pass_time(PASSING)
        room.initialize(key=OTHER)
        room.pass_time(PASSING)
        assert room.state().newest.snapshot_epoch == 2
        assert room.state(OTHER).newest.snapshot_epoch == 1
        assert room.restarted().shard.states == room.shard.states

    def test_none_without_the_feature(self) -> None:
        room = Room(is_enabled=False)
        room.initialize()
        room.pass_time(3 * PASSING)
        assert len(room.log) == 1
        assert not room.prunes


class TestPruning:
    def test_up_to_the_oldest_needed_snapshot(self) -> None:
        room = Room()
        room.initialize()
        room.initialize(key=OTHER)
        for _ in range(4):
            room.write(key=OTHER)
        room.initialize(1)
        assert room.shard.redundant_before == (5, share_key(SNAPSHOT, OTHER))
        room.pass_time(CONFIG.prune_interval_ms)
        assert room.prunes == [Prune(5, share_key(SNAPSHOT, OTHER))]
        room.prune()
        again = room.restarted()
        newest = {key: state.newest for key, state in room.shard.states.items()}
        assert {key: state.newest for key, state in again.shard.states.items()} == newest

    def test_nothing_while_the_first_record_is_needed(self) -> None:
        room = Room()
        room.initialize()
        room.write()
        room.pass_time(CONFIG.prune_interval_ms)
        assert not room.prunes

    def test_deleted_states_need_no_record(self) -> None:
        room = Room()
        room.initialize()
        room.initialize(key=OTHER)
        room.delete()
        assert room.shard.redundant_before == (1, share_key(SNAPSHOT, OTHER))
        room.delete(OTHER)
        assert room.shard.redundant_before == (3, share_key(SNAPSHOT, OTHER)), "the last tombstone stays"

    def test_offsets_continue_after_a_reload_of_a_pruned_log(self) -> None:
        room = Room()
        room.initialize()
        room.initialize(1)
        room.pass_time(CONFIG.prune_interval_ms)
        room.prune()
        assert room.log_start == 1
        again = room.restarted()
        again.initialize(2)
        assert again.shard.redundant_before == (room.log_start + len(room.log), share_key(SNAPSHOT, KEY))

    def test_only_after_the_commit_of_what_makes_records_redundant(self) -> None:
        room = Room()
        room.initialize()
        room.holds_appends = True
        room.initialize(1)
        room.pass_time(CONFIG.prune_interval_ms // 4)
        assert room.shard.redundant_before == (1, share_key(SNAPSHOT, KEY))
        room.take(room.shard.on_timer(room.now_ms, "prune"))
        assert not room.prunes
        room.commit()
        assert room.prunes == [Prune(1, share_key(SNAPSHOT, KEY))]

    def test_not_after_a_failed_append(self) -> None:
        room = Room()
        room.initialize()
        room.holds_appends = True
        room.initialize(1)
        room.take(room.shard.on_timer(room.now_ms, "prune"))
        room.fail()
        assert not room.prunes
        assert room.shard.redundant_before == (0, share_key(SNAPSHOT, KEY))

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_a_failed_append_counts_no_offsets(self, is_deleted: bool) -> None:
        room = Room()
        room.initialize()
        if is_deleted:
            room.delete()
        room.holds_appends = True
        room.initialize(1, key=OTHER)
        room.fail()
        assert room.shard.redundant_before == room.restarted().shard.redundant_before
        room.holds_appends = False
        room.initialize(2)
        assert room.shard.redundant_before == room.restarted().shard.redundant_before


class TestWaiting:
    def test_a_response_waits_for_the_commit(self) -> None:
        room = Room()
        room.holds_appends = True
        assert room.initialize() is None
        room.commit()
        assert room.last_answer() == DONE

    def test_a_read_and_an_error_wait_for_the_state_they_used(self) -> None:
        room = Room()
        room.holds_appends = True
        room.initialize(5)
        assert room.summary() is None
        assert room.initialize(4) is None, "fenced by a state that may not be committed"
        room.fail()
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [answer.error_code for answer in room.answers.values()] == [unavailable] * 3
        room.holds_appends = False
        assert room.summary() == PartitionSummary(0, NONE, None, 0, 0, -1, -1)

    def test_a_failed_append_restores_each_state(self) -> None:
        room = Room()
        room.initialize()
        room.initialize(key=OTHER)
        before = dict(room.shard.states)
        room.holds_appends = True
        room.write((0, 5, 2, 1))
        room.write((6, 9, 2, 1))
        room.delete(OTHER)
        room.fail()
        assert room.shard.states == before
        assert room.restarted().shard.states == before

    def test_a_commit_that_takes_too_long(self) -> None:
        room = Room()
        room.holds_appends = True
        room.initialize()
        room.pass_time(CONFIG.write_timeout_ms)
        assert room.last_answer().error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        room.commit()
        assert KEY in room.shard.states


class TestLoading:
    def test_records_of_unknown_types_are_skipped(self) -> None:
        room = Room([(b"\0\7whatever", b"x")])
        assert not room.shard.states
        room.initialize()
        assert room.state().snapshot_offset == 1

    def test_an_update_without_its_snapshot_is_applied_and_prevents_pruning(self) -> None:
        full = Room()
        full.initialize(3)
        full.write((4, 9, 2, 1), start_offset=4)
        room = Room(full.log[1:], log_start=1)
        assert room.read().start_offset == 4
        assert room.shard.redundant_before is None
        assert room.write(state_epoch=0) == DONE, "the state epoch is not known"

    def test_an_update_without_a_value_cannot_be_read(self) -> None:
        with pytest.raises(RecordError):
            Room().shard.replay(LoadedRecord(0, share_key(UPDATE, KEY), None))


def test_deleted_topics() -> None:
    other = KEY._replace(topic_id=bytes(16))
    room = Room()
    room.topics[other.topic_id] = 1
    room.initialize()
    room.initialize(key=OTHER)
    room.initialize(key=other)
    room.delete_topic()
    assert set(room.shard.states) == {other}
    assert room.written()[3:] == [None, None]
    assert room.summary().error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_whose_last_offset_is_before_its_first_is_rejected() -> None:
    """Apache Kafka 4.3 loops forever when it merges such a batch with another one."""
    room = Room()
    room.initialize()
    room.write((0, 10, 0, 1))
    assert room.write((5, 3, 2, 1)).error_code is ErrorCode.INVALID_REQUEST
    assert len(room.log) == 2


@pytest.mark.parametrize("count", [100_000])
def test_a_record_that_is_too_large(count: int) -> None:
    room = Room()
    room.initialize()
    before = room.state()
    answer = room.write(*((2 * at, 2 * at, 2, 1) for at in range(count)))
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert room.state() == before
    assert TOPIC_ID in room.topics


def test_a_write_changes_no_epoch() -> None:
    """KAFKA-19456: initialization sets the state epoch, and a read the leader epoch."""
    room = Room()
    room.initialize(state_epoch=2)
    assert room.read(leader_epoch=5).error_code is NONE
    assert room.write((0, 9, 2, 1), leader_epoch=9, state_epoch=4, start_offset=0).error_code is NONE
    assert (room.state().state_epoch, room.state().leader_epoch) == (2, 5)
    assert room.write(leader_epoch=5, state_epoch=2, start_offset=0).error_code is NONE
    assert (room.restarted().state().state_epoch, room.restarted().state().leader_epoch) == (2, 5)


def test_what_is_not_initialized_is_neither_read_nor_written() -> None:
    """KAFKA-19338"""
    room = Room()
    assert room.read().error_code is ErrorCode.INVALID_REQUEST
    assert room.write((0, 9, 2, 1), start_offset=0).error_code is ErrorCode.INVALID_REQUEST
    assert not room.log


@pytest.mark.parametrize(("start_offset", "count"), [(-1, -1), (0, 0), (7, 0)])
def test_an_initial_start_offset_has_a_count_of_0(start_offset: int, count: int) -> None:
    """KAFKA-20034: the lag is known from then on."""
    room = Room()
    room.initialize(start_offset=start_offset)
    assert room.summary().delivery_complete_count == count


class TestLateRequests:
    """A request may arrive again after later ones were answered."""

    def test_a_late_write_does_not_set_the_start_offset_back(self) -> None:
        room = Room()
        room.initialize(2)
        first = {"leader_epoch": 1, "state_epoch": 2, "start_offset": 0, "count": 0}
        room.read(leader_epoch=1)
        room.write((0, 4, 2, 1), (8, 8, 0, 1), **first)
        room.write((5, 7, 2, 1), (8, 8, 2, 2), leader_epoch=1, state_epoch=2, start_offset=5, count=3)
        room.write(leader_epoch=1, state_epoch=2, start_offset=8, count=1)
        assert room.write((0, 4, 2, 1), (8, 8, 0, 1), **first) == DONE
        for each in (room, room.restarted()):
            newest = each.state().newest
            assert (newest.start_offset, newest.delivery_complete_count) == (8, 1)
            assert newest.batches == (StateBatch(8, 8, 2, 2),)

    def test_what_a_late_write_says_of_later_offsets_counts(self) -> None:
        """Writes have changes alone: no later one repeats them."""
        room = Room()
        room.initialize(2)
        room.write((8, 8, 2, 1), state_epoch=2, start_offset=8)
        room.write((5, 7, 2, 1), (20, 20, 4, 3), state_epoch=2, start_offset=5)
        assert room.state().newest.batches == (StateBatch(8, 8, 2, 1), StateBatch(20, 20, 4, 3))

    @pytest.mark.parametrize("start_offset", [8, -1])
    def test_a_write_that_keeps_the_start_offset_has_a_count(self, start_offset: int) -> None:
        room = Room()
        room.initialize(2)
        room.write((9, 9, 2, 1), state_epoch=2, start_offset=8, count=1)
        room.write((10, 10, 2, 1), state_epoch=2, start_offset=start_offset, count=2)
        newest = room.state().newest
        assert (newest.start_offset, newest.delivery_complete_count) == (8, 2)

    @pytest.mark.parametrize("updates_per_snapshot", [0, 3])
    def test_a_reset_sets_it_back(self, updates_per_snapshot: int) -> None:
        room = Room(config=ShareConfig(updates_per_snapshot=updates_per_snapshot))
        room.initialize(2)
        room.write((8, 9, 2, 1), state_epoch=2, start_offset=8)
        room.initialize(2, start_offset=3)
        assert room.write((3, 3, 2, 1), state_epoch=2, start_offset=3) == DONE
        assert room.state().newest.start_offset == 3

    def test_a_repeated_initialization_keeps_the_state(self) -> None:
        room = Room()
        room.initialize(2)
        room.read(leader_epoch=1)
        room.write((3, 4, 2, 1), state_epoch=2, start_offset=3)
        before, records = room.state(), len(room.log)
        assert room.initialize(2) == DONE
        assert room.state() == before
        assert len(room.log) == records
        assert room.initialize(3) == DONE
        assert room.state().newest.start_offset == -1, "in a later epoch it begins again"

    def test_an_initialization_at_an_offset_is_not_a_repeated_one(self) -> None:
        """An operator may set the same offset again."""
        room = Room()
        room.initialize(2, start_offset=3)
        room.write((3, 9, 2, 1), state_epoch=2, start_offset=8)
        assert room.initialize(2, start_offset=3) == DONE
        assert (room.state().newest.start_offset, room.state().newest.batches) == (3, ())

    def test_an_initialization_without_an_epoch_is_not_a_repeated_one(self) -> None:
        room = Room()
        room.initialize(-1)
        room.write((3, 9, 2, 1), start_offset=8)
        assert room.initialize(-1) == DONE
        assert (room.state().newest.start_offset, room.state().newest.batches) == (-1, ())
