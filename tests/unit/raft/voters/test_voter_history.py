"""The voter sets of the log by offset: in effect when appended, undone by truncation (KIP-853)."""

from klamm.raft.log.control_records import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    encode_kraft_version,
    encode_leader_change,
    encode_voters,
    snapshot_head,
)
from klamm.raft.log.metadata_log import ControlRecord, OffsetAndEpoch, SnapshotInfo
from klamm.raft.voters.voter_history import VoterHistory
from klamm.raft.voters.voter_set import BOOTSTRAP_OFFSET, ReplicaKey, Voter, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

STATIC = VotersInLog(VoterSet.of_ids([9]))


def keyed(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(node_id, b"d" * 16)) for node_id in ids)


def append_voters(log: MemoryLog, voters: VoterSet) -> None:
    log.append_control([(KRAFT_VOTERS, encode_voters(voters))], 1, 0)


def test_static_voters_apply_while_the_log_has_none():
    history, log = VoterHistory(STATIC), MemoryLog()
    assert not history.follow(log)
    log.append_control([(LEADER_CHANGE, encode_leader_change(9, [9], [9]))], 1, 0)
    assert not history.follow(log)
    assert history.newest == STATIC


def test_an_appended_set_is_in_effect_until_it_is_truncated():
    history, log = VoterHistory(STATIC), MemoryLog()
    log.append_control([(KRAFT_VERSION, encode_kraft_version(1)), (KRAFT_VOTERS, encode_voters(keyed(1)))], 1, 0)
    assert history.follow(log)
    append_voters(log, keyed(1, 2))
    assert history.follow(log)
    assert history.newest == VotersInLog(keyed(1, 2), 2, 1)
    log.truncate_to(2)
    assert history.follow(log)
    assert history.newest == VotersInLog(keyed(1), 1, 1)
    log.truncate_to(0)
    assert history.follow(log)
    assert history.newest == STATIC


def test_the_set_in_effect_below_an_offset():
    history, log = VoterHistory(STATIC), MemoryLog()
    for count in (1, 2, 3):
        append_voters(log, keyed(*range(count)))
    history.follow(log)
    assert [len(history.below(offset).voters) for offset in (1, 2, 3)] == [1, 2, 3]
    assert history.below(0) == STATIC


def test_the_snapshot_of_a_formatted_directory_precedes_the_log():
    log = MemoryLog()
    head = snapshot_head(VotersInLog(keyed(1), 5, 1))
    log.snapshot_control = [ControlRecord(BOOTSTRAP_OFFSET, kind, value) for kind, value in head]
    history = VoterHistory(VotersInLog(VoterSet.of_ids([])))
    history.follow(log)
    assert history.newest == VotersInLog(keyed(1), BOOTSTRAP_OFFSET, 1)


def test_cleaning_before_a_snapshot_loses_nothing():
    history, log = VoterHistory(STATIC), MemoryLog()
    append_voters(log, keyed(1, 2))
    log.append([b"a", b"b"], 1, 0)
    history.follow(log)
    log.snapshot_control = [ControlRecord(2, KRAFT_VOTERS, encode_voters(keyed(1, 2)))]
    log.add_snapshot(SnapshotInfo(OffsetAndEpoch(3, 1), 1, 0))
    log.delete_before(OffsetAndEpoch(3, 1))
    assert log.start_offset == 3
    history.follow(log)
    assert history.newest.voters == keyed(1, 2)


def test_a_snapshot_has_no_voters_before_kraft_version_1():
    assert snapshot_head(STATIC) == []
