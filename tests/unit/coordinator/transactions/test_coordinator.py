"""The transaction coordinator's responses (KIP-98, KIP-360, KIP-890). Each rule is one of Apache Kafka 4.3."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.coordinator.transactions.harness import ID, TIMEOUT_MS, A, B, Room, pair_of

from klamm.coordinator.transactions.records import decode_value, transaction_key
from klamm.coordinator.transactions.shard import ADD_WAIT_OF_BROKERS_MS
from klamm.coordinator.transactions.states import TRANSITIONS, State
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import Pair

PF, CT, ITS, IPM = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
CLIP, CNA, NONE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NONE,
)


def error_of(answer: Pair | None) -> ErrorCode:
    assert answer is not None, "not answered"
    return answer.error


class TestInitProducerId:
    def test_a_new_id_begins_with_epoch_0(self) -> None:
        room = Room()
        assert pair_of(room.init()) == (1000, 0)
        assert pair_of(room.init()) == (1000, 1)

    def test_a_repeated_request_gets_the_same_pair_until_a_restart(self) -> None:
        room = Room()
        producer_id, _ = room.ready()
        assert pair_of(room.init((producer_id, 0))) == (producer_id, 1)
        assert pair_of(room.init((producer_id, 0))) == (producer_id, 1)
        assert error_of(room.restarted().init((producer_id, 0))) is PF

    def test_another_pair_is_fenced(self) -> None:
        room = Room()
        producer_id, epoch = room.at_epoch(5)
        assert error_of(room.init((producer_id, 3))) is PF
        assert error_of(room.init((producer_id + 1, epoch))) is PF

    def test_an_exhausted_epoch_gets_another_producer_id(self) -> None:
        room = Room()
        pair = room.at_epoch(32766)
        producer_id, epoch = pair_of(room.init(pair))
        assert (producer_id, epoch) == (1001, 0)
        assert pair_of(room.init(pair)) == (producer_id, epoch), "the request is repeated"
        assert error_of(room.init((pair[0], 32765))) is PF

    def test_without_producer_ids_the_coordinator_is_loading(self) -> None:
        room = Room()
        room.has_producer_ids = False
        assert error_of(room.init()) is CLIP
        room.has_producer_ids = True
        pair = room.at_epoch(32766)
        room.has_producer_ids = False
        assert error_of(room.init(pair)) is CLIP

    @pytest.mark.parametrize("version", [1, 2])
    def test_an_open_transaction_is_aborted_first(self, version: int) -> None:
        room = Room(version=version)
        producer_id, epoch = room.begun(version)
        assert error_of(room.init()) is CT
        assert error_of(room.init()) is CT, "until the markers are written"
        [marker] = room.write_markers()
        assert (marker.producer_id, marker.epoch, marker.is_commit) == (producer_id, epoch + 1, False)
        assert marker.partitions == {A}
        assert pair_of(room.init()) == (producer_id, epoch + 2)

    def test_an_open_transaction_at_the_last_epoch(self) -> None:
        room = Room()
        producer_id, _ = pair = room.at_epoch(32766)
        assert room.add(pair) is NONE
        assert error_of(room.init()) is CT
        [marker] = room.write_markers()
        assert (marker.producer_id, marker.epoch) == (producer_id, 32767)
        assert pair_of(room.init()) == (1001, 1)

    def test_a_failed_fencing_raises_the_epoch_once(self) -> None:
        room = Room(version=1)
        producer_id, epoch = room.begun(version=0)
        room.holds_appends = True
        for _ in range(3):
            assert error_of(room.init()) is CT
            room.fail()
        assert room.transaction().epoch == epoch + 1
        room.holds_appends = False
        assert error_of(room.init()) is CT
        [marker] = room.write_markers()
        assert (marker.producer_id, marker.epoch) == (producer_id, epoch + 1)

    def test_a_commit_during_a_fencing_is_refused(self) -> None:
        """Apache Kafka 4.3 fences and aborts in two steps, and fails when a commit comes in between."""
        room = Room(version=1)
        pair = room.begun(version=0)
        room.holds_appends = True
        assert error_of(room.init()) is CT
        assert error_of(room.end(pair, version=0)) is PF
        assert error_of(room.end((pair[0], pair[1] + 1), version=0)) is CT
        room.holds_appends = False
        room.commit()
        [marker] = room.write_markers()
        assert not marker.is_commit

    def test_an_old_epoch_while_a_transaction_is_open(self) -> None:
        """As in Apache Kafka, a zombie aborts the transaction of the instance that has fenced it."""
        room = Room()
        producer_id, _ = room.at_epoch(5)
        assert room.add((producer_id, 5)) is NONE
        assert error_of(room.init((producer_id + 1, 5))) is PF
        assert error_of(room.init((producer_id, 3))) is CT
        [marker] = room.write_markers()
        assert not marker.is_commit
        assert error_of(room.init((producer_id, 3))) is PF

    def test_an_id_whose_epoch_has_ended_gets_another_producer_id(self) -> None:
        """Apache Kafka before 4.3 could leave an id at the epoch of its last marker."""
        room = Room()
        pair = room.at_epoch(32767)
        assert pair_of(room.init()) == (1001, 0)
        room = Room()
        pair = room.at_epoch(32767)
        assert pair_of(room.init(pair)) == (1001, 0)

    def test_an_id_whose_record_cannot_be_written_begins_with_epoch_0_again(self) -> None:
        room = Room()
        room.holds_appends = True
        assert room.init() is None
        room.fail()
        assert error_of(room.last_answer()) is CNA
        room.holds_appends = False
        assert room.transaction().epoch == -1
        assert pair_of(room.init((77, 3)))[1] == 0, "any pair passes"

    def test_an_id_that_was_never_written_expires(self) -> None:
        room = Room()
        room.holds_appends = True
        room.init()
        room.fail()
        room.holds_appends = False
        room.pass_time(room.config.id_expiration_ms + room.config.expiry_check_interval_ms)
        assert room.shard.describe(ID) is None

    def test_the_timeout_is_the_last_requested_one(self) -> None:
        room = Room()
        room.init(timeout_ms=5)
        room.init(timeout_ms=7)
        assert room.transaction().timeout_ms == 7


class TestAddingPartitions:
    def test_an_unknown_id(self) -> None:
        room = Room()
        assert room.add((1, 0)) is IPM
        assert error_of(room.end((1, 0))) is IPM
        assert room.shard.describe(ID) is None

    def test_known_partitions_write_nothing(self) -> None:
        room = Room()
        pair = room.begun()
        assert room.add(pair, B) is NONE
        written = len(room.log)
        assert room.add(pair, A) is NONE
        assert room.add(pair, A, B) is NONE
        assert len(room.log) == written
        assert room.transaction().partitions == {A, B}

    def test_the_first_partitions_begin_the_transaction(self) -> None:
        room = Room()
        pair = room.begun()
        began = room.now_ms
        room.pass_time(1000)
        assert room.add(pair, B) is NONE
        assert room.transaction().start_ms == began

    def test_wrong_producers(self) -> None:
        room = Room()
        producer_id, epoch = room.ready()
        assert room.add((producer_id + 1, epoch)) is IPM
        assert room.add((producer_id, epoch + 1)) is PF
        assert room.add((producer_id, epoch - 1)) is PF

    def test_while_the_transaction_is_being_ended(self) -> None:
        room = Room()
        pair = room.begun(version=0)
        assert error_of(room.end(pair, version=0)) is NONE
        assert room.add_in_vain(pair) is CT
        with pytest.raises(KafkaError) as refused:
            room.verify(pair, A)
        assert refused.value.code is CT

    def test_verification_ignores_what_is_pending(self) -> None:
        room = Room()
        pair = room.begun()
        room.holds_appends = True
        assert room.add(pair, B) is None
        assert room.verify(pair, A, B) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}

    def test_verification_after_the_transaction(self) -> None:
        room = Room()
        pair = room.begun(version=0)
        room.end(pair, version=0)
        room.write_markers()
        assert room.verify(pair, A) == {A: ErrorCode.TRANSACTION_ABORTABLE}


class TestAddingWhileATransitionIsPending:
    """Until the transition or the wait ends, whichever comes first (docs/decisions/0067)."""

    @pytest.mark.parametrize("version", [0, 2])
    def test_the_next_transaction_begins_when_the_last_one_is_complete(self, version: int) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun(version), version=version))
        assert room.add(pair, B, version=version) is None
        room.write_markers()
        assert room.last_answer() is NONE
        assert room.transaction().partitions == {B}
        assert room.transaction().state is State.ONGOING

    def test_several_brokers_add_their_partitions_at_once(self) -> None:
        room = Room()
        pair = room.ready()
        room.holds_appends = True
        places = [("a", partition) for partition in range(5)]
        assert [room.add(pair, place) for place in places] == [None] * 5
        room.commit()
        assert [room.answers.get(ticket) for ticket in range(2, 7)] == [NONE, None, None, None, None]
        assert room.transaction().partitions == {places[0]}
        assert room.appending is not None
        assert len(room.appending) == 4, "one append for the others"
        room.commit()
        assert [room.answers[ticket] for ticket in range(2, 7)] == [NONE] * 5
        assert room.transaction().partitions == set(places)

    def test_the_next_transaction_follows_an_uncommitted_complete_record(self) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun()))
        room.holds_appends = True
        assert room.add(pair, B) is None
        room.write_markers()
        assert room.add(pair, A) is None
        assert room.transaction().state is State.PREPARE_COMMIT
        with pytest.raises(KafkaError, match="CONCURRENT_TRANSACTIONS"):
            room.verify(pair, B)
        room.commit()
        assert room.transaction().partitions == {B}, "one append for both records"
        assert error_of(room.end(pair)) is CT, "an addition is not committed"
        room.commit_all()
        assert room.transaction().partitions == {A, B}
        assert [decode_value(value).state for _, value in room.log[-3:]] == [  # type: ignore[arg-type, union-attr]
            State.COMPLETE_COMMIT,
            State.ONGOING,
            State.ONGOING,
        ]

    def test_a_rotated_producer_id_begins_on_an_uncommitted_complete_record(self) -> None:
        room = Room()
        pair = room.at_epoch(32766)
        room.add(pair)
        after = pair_of(room.end(pair))
        room.holds_appends = True
        room.write_markers()
        assert room.add(pair) is IPM
        assert room.add(after) is None
        room.commit_all()
        assert (room.transaction().producer_id, room.transaction().epoch) == after
        assert room.transaction().state is State.ONGOING

    def test_what_follows_a_failed_complete_record_fails_too(self) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun()))
        room.holds_appends = True
        room.write_markers()
        assert room.add(pair, B) is None
        room.fail()
        assert room.last_answer() is CNA
        assert room.transaction().state is State.PREPARE_COMMIT
        assert room.add_in_vain(pair, B) is CT
        room.holds_appends = False
        room.pass_time(1000)
        assert room.transaction().state is State.COMPLETE_COMMIT
        assert room.add(pair, B) is NONE
        assert room.transaction().partitions == {B}

    def test_a_failed_addition_takes_back_nothing_else(self) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun()))
        room.holds_appends = True
        room.in_flight_max = 3
        room.write_markers()
        assert [room.add(pair, place) for place in (A, B)] == [None, None]
        room.fail(at=2)
        assert room.last_answer() is CNA
        room.commit()
        assert room.transaction().state is State.COMPLETE_COMMIT
        assert room.add(pair, B) is None
        room.commit_all()
        assert room.last_answer() is NONE
        assert room.transaction().partitions == {A, B}

    @pytest.mark.parametrize("version", [0, 2])
    def test_a_wait_that_ends(self, version: int) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun(version), version=version))
        assert room.add_in_vain(pair, B, version=version) is CT
        room.write_markers()
        assert room.transaction().state is State.COMPLETE_COMMIT
        assert room.add(pair, B, version=version) is NONE

    def test_the_wait_of_a_client_is_longer_than_that_of_a_broker(self) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun()))
        room.add(pair, A, version=0)
        assert room.add_in_vain(pair, B, version=2) is CT
        room.write_markers()
        assert room.transaction().partitions == {A}, "the client's was not given up"

    def test_the_coordinators_own_broker_sets_the_wait(self) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun()))
        assert room.add(pair, B, wait_ms=0) is CT
        assert room.add(pair, B, wait_ms=ADD_WAIT_OF_BROKERS_MS + 30) is None
        room.pass_time(ADD_WAIT_OF_BROKERS_MS + 29)
        assert room.last_answer() is None
        room.pass_time(1)
        assert room.last_answer() is CT

    def test_a_producer_that_was_fenced_meanwhile(self) -> None:
        room = Room()
        pair = room.begun(0)
        assert error_of(room.init()) is CT, "the open transaction of the other producer is aborted"
        assert room.add(pair, A, version=0) is None
        room.write_markers()
        assert room.last_answer() is PF

    def test_the_partition_moves(self) -> None:
        room = Room()
        pair = pair_of(room.end(room.begun()))
        assert room.add(pair, B) is None
        room.take(room.shard.on_unloaded(room.now_ms))
        assert room.last_answer() is ErrorCode.NOT_COORDINATOR


class TestEndOfVersion0:
    def test_a_repeated_commit_and_another_result(self) -> None:
        room = Room()
        pair = room.begun(version=0)
        assert pair_of(room.end(pair, version=0)) == pair
        assert error_of(room.end(pair, version=0)) is CT
        assert error_of(room.end(pair, commit=False, version=0)) is CT, "what is pending goes first"
        room.write_markers()
        assert error_of(room.end(pair, version=0)) is NONE
        assert error_of(room.end(pair, commit=False, version=0)) is ITS

    def test_nothing_to_end(self) -> None:
        room = Room()
        pair = room.ready()
        assert error_of(room.end(pair, version=0)) is ITS
        assert error_of(room.end(pair, commit=False, version=0)) is ITS

    def test_the_producer_id_and_epoch_are_checked_before_pending_transitions(self) -> None:
        room = Room()
        producer_id, epoch = room.begun(version=0)
        room.end((producer_id, epoch), version=0)
        assert error_of(room.end((producer_id, epoch + 1), version=0)) is PF
        assert error_of(room.end((producer_id + 1, epoch), version=0)) is IPM

    def test_the_next_transaction_has_the_same_epoch(self) -> None:
        room = Room()
        pair = room.begun(version=0)
        room.end(pair, version=0)
        room.write_markers()
        assert room.add(pair, B, version=0) is NONE
        assert room.transaction().partitions == {B}


class TestEndOfVersion2:
    def test_the_epoch_rises(self) -> None:
        room = Room()
        producer_id, epoch = pair = room.begun()
        assert pair_of(room.end(pair)) == (producer_id, epoch + 1)
        assert error_of(room.end(pair)) is CT
        [marker] = room.write_markers()
        assert (marker.epoch, marker.is_commit, marker.version) == (epoch + 1, True, 2)
        assert pair_of(room.end(pair)) == (producer_id, epoch + 1), "a repeated commit"
        assert error_of(room.end(pair, commit=False)) is ITS

    @pytest.mark.parametrize("state", ["empty", "committed", "aborted", "open"])
    def test_every_row_of_the_table(self, state: str) -> None:
        """Abort and commit with the current epoch, then with the previous one."""

        def at_state() -> tuple[Room, tuple[int, int]]:
            room = Room()
            room.at_epoch(4)
            pair = room.transaction().producer_id, 4
            if state != "empty":
                assert room.add(pair) is NONE
            if state in ("committed", "aborted"):
                pair = pair_of(room.end(pair, commit=state == "committed"))
                room.write_markers()
            return room, pair

        def answers(commit: bool, before: int) -> object:
            room, (producer_id, epoch) = at_state()
            answer = room.end((producer_id, epoch - before), commit=commit)
            assert answer is not None
            return answer.epoch - epoch if answer.error is NONE else answer.error

        expected = {
            "open": [1, PF, 1, PF],
            "empty": [1, PF, ITS, PF],
            "aborted": [1, 0, ITS, ITS],
            "committed": [1, ITS, ITS, 0],
        }
        rows = [answers(False, 0), answers(False, 1), answers(True, 0), answers(True, 1)]
        assert rows == expected[state]

    def test_an_abort_of_nothing_writes_no_marker(self) -> None:
        room = Room()
        producer_id, epoch = room.ready()
        assert pair_of(room.end((producer_id, epoch), commit=False)) == (producer_id, epoch + 1)
        assert room.markers == []
        assert room.transaction().state is State.COMPLETE_ABORT

    def test_an_exhausted_epoch(self) -> None:
        room = Room()
        pair = room.at_epoch(32766)
        assert room.add(pair) is NONE
        after = pair_of(room.end(pair))
        assert after == (1001, 0)
        assert room.add_in_vain(after) is CT, "its producer id is pending"
        [marker] = room.write_markers()
        assert (marker.producer_id, marker.epoch) == (pair[0], 32767)
        assert pair_of(room.end(pair)) == after, "a repeated commit"
        assert room.add(after) is NONE

    def test_a_next_transaction_without_anything(self) -> None:
        room = Room()
        producer_id, epoch = pair = room.begun()
        after = pair_of(room.end(pair))
        assert error_of(room.end(after, commit=False)) is CT
        room.write_markers()
        assert pair_of(room.end(after, commit=False)) == (producer_id, epoch + 2)

    def test_other_epochs_of_an_open_transaction(self) -> None:
        room = Room()
        room.at_epoch(7)
        producer_id = room.transaction().producer_id
        room.add((producer_id, 7))
        assert error_of(room.end((producer_id, 8))) is PF
        assert error_of(room.end((producer_id, 6))) is PF

    def test_no_producer_id_is_left(self) -> None:
        room = Room()
        pair = room.at_epoch(32766)
        room.add(pair)
        room.has_producer_ids = False
        assert error_of(room.end(pair)) is CLIP
        assert room.transaction().state is State.ONGOING
        room.has_producer_ids = True
        assert pair_of(room.end(pair)) == (1001, 0)


class TestTimeouts:
    def test_a_transaction_of_version_2(self) -> None:
        room = Room()
        producer_id, epoch = pair = room.begun()
        room.pass_time(TIMEOUT_MS + room.config.timeout_check_interval_ms)
        [marker] = room.write_markers()
        assert (marker.epoch, marker.is_commit) == (epoch + 1, False)
        assert error_of(room.end(pair, version=0)) is PF
        assert error_of(room.end(pair)) is ITS
        assert pair_of(room.end(pair, commit=False)) == (producer_id, epoch + 1)

    def test_one_that_has_not_timed_out(self) -> None:
        room = Room()
        room.begun()
        room.pass_time(TIMEOUT_MS)
        assert room.transaction().state is State.ONGOING

    def test_one_that_never_times_out(self) -> None:
        room = Room()
        pair = pair_of(room.init(timeout_ms=2**31 - 1))
        room.add(pair)
        room.pass_time(2**32)
        assert room.transaction().state is State.ONGOING

    def test_at_the_last_epoch(self) -> None:
        room = Room()
        room.add(room.at_epoch(32766))
        room.pass_time(TIMEOUT_MS + room.config.timeout_check_interval_ms)
        room.write_markers()
        assert (room.transaction().producer_id, room.transaction().epoch) == (1001, 0)


class TestExpiry:
    def test_an_unused_id_is_forgotten(self) -> None:
        room = Room()
        pair = room.ready()
        room.pass_time(room.config.id_expiration_ms + room.config.expiry_check_interval_ms)
        assert room.shard.describe(ID) is None
        assert room.log[-1][1] is None
        assert room.add(pair) is IPM

    def test_an_open_transaction_stays(self) -> None:
        room = Room()
        pair = pair_of(room.init(timeout_ms=2**31 - 1))
        room.add(pair)
        room.pass_time(2 * room.config.id_expiration_ms)
        assert room.transaction().state is State.ONGOING

    def test_a_tombstone_that_cannot_be_written(self) -> None:
        room = Room()
        pair = room.ready()
        room.holds_appends = True
        room.pass_time(room.config.id_expiration_ms + room.config.expiry_check_interval_ms)
        assert room.add_in_vain(pair) is CT
        room.fail()
        room.holds_appends = False
        assert room.add(pair) is NONE


class TestMoves:
    def test_markers_are_written_by_the_next_coordinator(self) -> None:
        room = Room()
        pair = room.begun()
        room.end(pair)
        other = room.restarted()
        assert other.add_in_vain(pair) is CT
        [marker] = other.write_markers()
        assert (marker.epoch, marker.partitions, marker.is_commit) == (pair[1] + 1, {A}, True)
        assert other.transaction().state is State.COMPLETE_COMMIT

    def test_a_rotation_survives(self) -> None:
        room = Room()
        pair = room.at_epoch(32766)
        room.add(pair)
        after = pair_of(room.end(pair, commit=False))
        other = room.restarted()
        other.write_markers()
        assert (other.transaction().producer_id, other.transaction().epoch) == after
        assert pair_of(other.end(pair, commit=False)) == after

    def test_a_log_with_unknown_records(self) -> None:
        """Of a later release: the rest is loaded."""
        room = Room()
        pair = room.begun()
        room.log.insert(1, (b"\0\7of a later release", b"\0\0"))
        room.log += [(transaction_key("later"), b"\0\7of a later release"), (b"\0\7", None)]
        other = room.restarted()
        assert other.shard.describe("later") is None
        assert other.transaction().partitions == {A}
        assert other.add(pair, B) is NONE

    def test_late_markers_of_an_earlier_completion(self) -> None:
        room = Room()
        pair = room.begun()
        room.end(pair)
        [late] = room.write_markers()
        room.take(room.shard.on_markers_written(room.now_ms, late.transactional_id, late.number))
        pair = pair_of(room.init())
        room.add(pair)
        room.end(pair)
        room.take(room.shard.on_markers_written(room.now_ms, late.transactional_id, late.number))
        assert room.transaction().state is State.PREPARE_COMMIT

    def test_a_completion_that_cannot_be_written_is_tried_again(self) -> None:
        room = Room()
        pair = room.begun()
        room.end(pair)
        room.holds_appends = True
        room.write_markers()
        room.fail()
        assert room.add_in_vain(pair) is CT
        room.holds_appends = False
        room.pass_time(1000)
        assert room.transaction().state is State.COMPLETE_COMMIT

    def test_the_log_has_the_whole_state(self) -> None:
        room = Room()
        for name in ("x", "y", "z"):
            pair = room.ready(name)
            room.add(pair, A, B, name=name)
            if name != "z":
                room.end(pair, commit=name == "x", name=name)
        room.write_markers()
        other = room.restarted()
        for name in ("x", "y", "z"):
            found, again = room.transaction(name), other.transaction(name)
            for field in ("producer_id", "epoch", "state", "partitions", "start_ms", "last_update_ms", "timeout_ms"):
                assert getattr(found, field) == getattr(again, field), (name, field)


@pytest.mark.parametrize("level", [0, 1])
def test_the_level_changes_at_run_time(level: int) -> None:
    """A running transaction keeps its version, and the next one has a bumped epoch."""
    room = Room()
    producer_id, epoch = room.begun()
    room.version = level
    after = pair_of(room.end((producer_id, epoch)))
    room.write_markers()
    assert (after, room.transaction().state) == ((producer_id, epoch + 1), State.COMPLETE_COMMIT)
    stored = decode_value(room.log[-1][1] or b"")
    assert stored is not None
    assert stored.client_version == (2 if level else 0), "version 0 of the record has no place for it"
    lower = pair_of(room.init(after))
    assert lower == (producer_id, epoch + 2)
    assert room.add(lower, version=0) is NONE
    room.version = 2
    for _ in range(2):
        assert pair_of(room.end(lower, version=0)) == lower
        room.write_markers()
    higher = pair_of(room.init(lower))
    assert higher == (producer_id, epoch + 3)
    assert room.add(higher) is NONE
    assert pair_of(room.end(higher)) == (producer_id, epoch + 4)


def test_only_known_transitions_are_written() -> None:
    room = Room()
    pair = room.begun()
    room.end(pair)
    room.write_markers()
    room.init()
    states = [stored.state for _, value in room.log if value and (stored := decode_value(value)) is not None]
    assert states == [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT, State.EMPTY]
    assert all(after in TRANSITIONS[before] for before, after in pairwise(states))


def test_an_append_is_waited_for_as_long_as_its_transaction_may_take() -> None:
    """`TransactionStateManager.appendTransactionToLog`."""
    room = Room()
    room.holds_appends = True
    assert room.init(name="long", timeout_ms=120_000) is None
    assert room.init(name="short", timeout_ms=2_000) is None
    of_long, of_short = 1, 2
    room.pass_time(1_999)
    assert not room.answers
    room.pass_time(1)
    assert room.answers == {of_short: Pair(ErrorCode.COORDINATOR_NOT_AVAILABLE)}
    room.pass_time(117_999)
    assert of_long not in room.answers
    room.pass_time(1)
    assert room.answers[of_long] == Pair(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    room.holds_appends = False
    room.commit()
    assert room.init(name="short") == Pair(ErrorCode.NONE, 1001, 1), "the append was committed after all"
