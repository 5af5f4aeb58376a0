"""Responses that waited for a write are built from the current log when they are sent."""

import pytest

from klamm.raft.effects import ReadRange, ReadSlice
from klamm.raft.log.metadata_log import OffsetAndEpoch, SnapshotInfo
from klamm.raft.messages import Error, FetchResponse, FetchSnapshotResponse
from klamm.raft.replication.reading import with_bytes
from klamm.testing.simulator.memory_log import MemoryLog, decode

FETCHED = FetchResponse(Error.NONE, epoch=1, leader_id=1, high_watermark=3)


@pytest.fixture
def log() -> MemoryLog:
    """Records 0 to 3, each in its own batch."""
    log = MemoryLog()
    for number in range(4):
        log.append([b"%d" % number], 1, 0)
    return log


def test_records_start_at_the_requested_offset(log):
    answered = with_bytes(log, FETCHED, ReadRange(2, 1_000))
    assert [record.value for batch in decode(answered.records) for record in batch] == [b"2", b"3"]


def test_records_cleaned_meanwhile_are_omitted(log):
    log.add_snapshot(SnapshotInfo(OffsetAndEpoch(3, 1), 10, 0), b"x" * 10)
    assert log.delete_before(OffsetAndEpoch(3, 1))
    assert with_bytes(log, FETCHED, ReadRange(0, 1_000)) == FETCHED


@pytest.mark.parametrize("offset", [2, 3])
def test_records_truncated_meanwhile_are_omitted(log, offset):
    log.truncate_to(2)
    assert with_bytes(log, FETCHED, ReadRange(offset, 1_000)) == FETCHED


def test_a_snapshot_deleted_meanwhile_is_not_found(log):
    answer = FetchSnapshotResponse(Error.NONE, 1, 1, OffsetAndEpoch(3, 1), 10)
    assert with_bytes(log, answer, ReadSlice(OffsetAndEpoch(3, 1), 0, 10)).error is Error.SNAPSHOT_NOT_FOUND
