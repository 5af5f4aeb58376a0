"""The native metadata log under raft's driver with one voter."""

from __future__ import annotations

import asyncio
import select
import tarfile
import threading
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from klamm._engine import quorum
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.log.metadata_log import MetadataLog, MetadataLogError, OffsetAndEpoch
from klamm.raft.log.native_log import NativeMetadataLog
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import ReplicaKey, Voter, VoterSet, VotersInLog

GOLDEN = Path(__file__).parents[3] / "golden" / "kafka-4.3.1"


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def open_log(directory: Path, voters: tuple[int, list[int]] | None = None) -> NativeMetadataLog:
    native = quorum.MetadataLog(
        directory, segment_bytes=8 << 20, segment_ms=604_800_000, now_ms=wall_clock_ms(), voters=voters
    )
    return NativeMetadataLog(native, wall_clock_ms)


def as_protocol(log: NativeMetadataLog) -> MetadataLog:
    return log


def test_reads_what_kafka_wrote(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "killed.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    log = open_log(tmp_path / "killed" / "__cluster_metadata-0")
    assert log.end_offset > 0
    assert log.flushed_offset == log.end_offset
    assert log.snapshots()[0].id.epoch == 1
    kinds = {record.type for record in log.control_records()}
    assert 2 in kinds, "a leader change"
    assert log.epoch_at(log.end_offset - 1) == log.last_epoch
    log.close()


def test_records_survive_a_reopen(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.append([b"one", b"two"], 1, 1000) == 1
    assert log.append_control([(5, b"\x00\x00\x00\x01\x00")], 1, 1000) == 2
    batches = log.read(0, 1 << 20)
    log.close()
    again = open_log(tmp_path)
    assert (again.end_offset, again.last_epoch) == (3, 1)
    assert again.read(0, 1 << 20) == batches
    assert [(record.offset, record.type) for record in again.control_records()] == [(2, 5)]
    assert again.bytes_from(0) == len(batches)
    assert again.bytes_from(3) == 0
    again.close()


def test_a_torn_batch_is_truncated(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([b"kept"], 1, 1)
    log.close()
    file = tmp_path / "00000000000000000000.log"
    kept = file.read_bytes()
    log = open_log(tmp_path)
    log.append([b"torn"], 1, 1)
    log.close()
    torn = file.read_bytes()[:-3]
    with pytest.raises(quorum.StorageError, match=r"00000\.log is damaged at byte .*held the records up to offset 2"):
        open_cut(tmp_path, torn)
    # The same bytes are no loss unless something shows that they were flushed.
    (tmp_path / "klamm-recovery-point").unlink()
    assert open_cut(tmp_path, torn).end_offset == 1
    assert file.read_bytes() == kept


def open_cut(directory: Path, content: bytes) -> NativeMetadataLog:
    (directory / "00000000000000000000.log").write_bytes(content)
    return open_log(directory)


def test_lost_records_are_known_until_they_are_fetched_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in (1, 2, 3):
        log.append([b"record"], epoch, 1)
    batches = log.read(1, 1 << 20)
    log.close()
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(file.read_bytes()[: len(batches) // 2])
    for voters in (None, (1, [1])):
        with pytest.raises(quorum.StorageError, match="klamm quorum recover --accept-loss"):
            quorum.MetadataLog(tmp_path, segment_bytes=8 << 20, segment_ms=1 << 40, now_ms=0, voters=voters)
    log = open_log(tmp_path, voters=(1, [1, 2, 3]))
    assert (log.end_offset, log.proven_end) == (1, OffsetAndEpoch(3, 3))
    log.close()
    log = open_log(tmp_path, voters=(1, [1, 2, 3]))
    assert log.append_fetched(batches, 3) == 3
    assert (log.end_offset, log.proven_end) == (3, OffsetAndEpoch(3, 3))
    log.close()
    open_log(tmp_path).close()


def test_a_batch_that_is_too_large_is_rejected_completely(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(ValueError, match="8388608"):
        log.append([bytes(9 << 20)], 1, 1)
    assert log.end_offset == 0
    log.close()


def test_a_failed_write_has_the_same_cause_wherever_it_is_detected(tmp_path: Path) -> None:
    """Appended records wait in memory, so a read may be the first to write them, and to fail."""
    native = quorum.MetadataLog(tmp_path, segment_bytes=1 << 20, segment_ms=604_800_000, now_ms=0)
    log = NativeMetadataLog(native, wall_clock_ms)
    log.append([bytes(700_000)], 1, 1)
    blocked = tmp_path / "00000000000000000001.log"
    blocked.mkdir()
    log.append([bytes(700_000)], 1, 1)
    assert log.epoch_at(0) == 1  # writes both, as far as possible
    reported: list[str] = []
    flushed = threading.Event()

    def on_flushed(offset: int, error: str | None) -> None:
        reported.append(error or f"flushed up to {offset}")
        flushed.set()

    log.start_flush(on_flushed)
    if log.flush_fd is not None:
        select.select([log.flush_fd], [], [], 60)
        log.on_flush_end()
    assert flushed.wait(60)
    for attempt in (
        lambda: log.append([b"more"], 1, 1),
        lambda: log.read(1, 1 << 20),
        lambda: log.control_records(0),
        lambda: log.bytes_from(2),
        lambda: log.truncate_to(1),
    ):
        with pytest.raises(MetadataLogError) as raised:
            attempt()
        reported.append(str(raised.value))
    assert set(reported) == {reported[0]}
    assert reported[0].startswith("cannot ")
    assert reported[0].count(str(tmp_path)) == reported[0].count(str(blocked)) == reported[0].count("os error") == 1


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(quorum.StorageError, match="file"):
        open_log(tmp_path / "file")


class Listener:
    def __init__(self) -> None:
        self.leading: int | None = None
        self.committed = 0
        self.led = asyncio.Event()

    def on_commit(self, high_watermark: int) -> None:
        self.committed = high_watermark

    def on_leader(self, epoch: int) -> None:
        self.leading = epoch
        self.led.set()

    def on_not_leader(self, epoch: int) -> None:
        self.leading = None

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None]:
        raise AssertionError("nothing is large enough here")

    def on_fault(self, error: Exception) -> None:
        raise AssertionError(str(error)) from error


def driver(directory: Path, log: NativeMetadataLog, listener: Listener) -> RaftDriver:
    key = ReplicaKey(1, bytes(15) + b"\x09")
    voters = VotersInLog(VoterSet.of([Voter(key)]))
    node = RaftNode(Identity(key, "cluster"), voters, RaftConfig(), as_protocol(log), seed=7)
    return RaftDriver(node, as_protocol(log), QuorumStateFile(directory), listener)


async def test_one_voter_elects_itself_and_commits_durably(tmp_path: Path) -> None:
    for round_number in (1, 2):
        log, listener = open_log(tmp_path), Listener()
        raft = driver(tmp_path, log, listener)
        raft.start()
        await asyncio.wait_for(listener.led.wait(), 10)
        assert listener.leading is not None
        offsets = [raft.propose([b"record %d" % n], listener.leading) for n in range(50)]
        await asyncio.gather(*map(raft.wait_committed, offsets))
        assert log.flushed_offset > offsets[-1]
        assert listener.committed > offsets[-1]
        assert raft.epoch == round_number
        await raft.close()
        log.close()


def test_control_records_are_known_without_reading_the_log_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.control_records() == []
    log.append_control([(2, b"leader"), (6, b"voters")], 1, 0)
    log.append([b"data"], 1, 0)
    log.append_control([(6, b"others")], 2, 0)
    shown = [(record.offset, record.type, record.value) for record in log.control_records()]
    assert shown == [(0, 2, b"leader"), (1, 6, b"voters"), (3, 6, b"others")]
    assert [record.offset for record in log.control_records(1)] == [1, 3]
    follower = open_log(tmp_path / "follower")
    assert follower.control_records() == []
    follower.append_fetched(log.read(0, 1 << 20), 2)
    assert follower.control_records() == log.control_records()
    follower.truncate_to(3)
    assert [record.offset for record in follower.control_records()] == [0, 1]
    log.close()
    follower.close()


def test_a_truncation_within_a_batch_leaves_no_gap(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([b"a"], 1, 0)
    log.append([b"b", b"c", b"d"], 1, 0)
    whole = log.read(0, 1 << 20)
    last = log.read(1, 1 << 20)
    for offset in (2, 3, 1):
        log.truncate_to(offset)
        assert log.end_offset == 1
        assert log.append_fetched(last, 1) == 4
        assert log.read(0, 1 << 20) == whole
    log.close()


SNAPSHOT = OffsetAndEpoch(40, 3)


def snapshot_bytes(folder: Path) -> bytes:
    """A snapshot with SNAPSHOT's id, as a leader would serve it."""
    path = folder / "leaders.checkpoint"
    values, timestamp = [b"value %d" % n for n in range(3000)], 77
    quorum.write_values_snapshot(path, values, epoch=3, last_contained_log_timestamp_ms=timestamp, now_ms=1)
    return path.read_bytes()


def receive(log: NativeMetadataLog, data: bytes, slice_bytes: int = 10_000) -> str | None:
    """Pass it to the log in slices and check it; returns what is wrong."""
    for position in range(0, len(data), slice_bytes):
        log.append_snapshot_slice(SNAPSHOT, position, data[position : position + slice_bytes])
    done, errors = threading.Event(), list[str | None]()

    def tell(error: str | None) -> None:
        errors.append(error)
        done.set()

    log.check_received_snapshot(tell)
    assert done.wait(30)
    return errors[0]


def own_log(folder: Path) -> NativeMetadataLog:
    """A log that has diverged from the leader's: longer than the snapshot, but of older epochs."""
    log = open_log(folder)
    for epoch in (1, 2):
        log.append([b"own"] * 30, epoch, 1)
    return log


def test_a_received_snapshot_replaces_the_log(tmp_path: Path) -> None:
    log, data = own_log(tmp_path / "log"), snapshot_bytes(tmp_path)
    assert receive(log, data) is None
    assert (log.end_offset, log.latest_snapshot_id) == (60, None), "nothing has changed yet"
    log.install_received_snapshot(SNAPSHOT)
    for _ in range(2):
        assert (log.start_offset, log.end_offset, log.flushed_offset) == (40, 40, 40)
        assert (log.last_epoch, log.latest_snapshot_id) == (3, SNAPSHOT)
        assert log.snapshot_size(SNAPSHOT) == len(data)
        assert log.read_snapshot(SNAPSHOT, 100, 50) == data[100:150]
        assert log.read_snapshot(SNAPSHOT, len(data) - 3, 50) == data[-3:]
        assert log.read_snapshot(OffsetAndEpoch(41, 3), 0, 50) is None
        assert log.snapshots()[0].last_contained_log_timestamp_ms == 77
        assert (log.end_offset_for_epoch(3), log.end_offset_for_epoch(2)) == ((40, 3), (40, 3))
        log.close()
        log = open_log(tmp_path / "log")
    assert log.append([b"next"], 5, 1) == 40
    assert (log.end_offset_for_epoch(3), log.end_offset_for_epoch(5)) == ((40, 3), (41, 5))
    log.close()


@pytest.mark.parametrize("at", [5, 70, 20_000, -5])
def test_a_damaged_snapshot_is_refused_and_named(tmp_path: Path, at: int) -> None:
    log, data = own_log(tmp_path / "log"), bytearray(snapshot_bytes(tmp_path))
    data[at] ^= 0x10
    error = receive(log, bytes(data))
    assert error is not None
    assert "00000000000000000040-0000000003" in error
    with pytest.raises(ValueError, match="not received and checked"):
        log.install_received_snapshot(SNAPSHOT)
    assert (log.end_offset, log.snapshots()) == (60, [])
    log.close()


def test_a_truncated_snapshot_is_rejected(tmp_path: Path) -> None:
    log, data = own_log(tmp_path / "log"), snapshot_bytes(tmp_path)
    for size in (1, 60, 20_000, len(data) - 1):
        assert receive(log, data[:size]) is not None
    log.close()


def test_slices_must_be_in_order(tmp_path: Path) -> None:
    log, data = own_log(tmp_path / "log"), snapshot_bytes(tmp_path)
    with pytest.raises(ValueError, match="byte 7"):
        log.append_snapshot_slice(SNAPSHOT, 7, b"x")
    log.append_snapshot_slice(SNAPSHOT, 0, data[:100])
    for snapshot_id, position in ((SNAPSHOT, 99), (SNAPSHOT, 101), (OffsetAndEpoch(41, 3), 100)):
        with pytest.raises(ValueError, match="byte 100 of 00000000000000000040-0000000003"):
            log.append_snapshot_slice(snapshot_id, position, b"x")
    assert receive(log, data) is None, "position 0 starts the snapshot again"
    log.drop_received_snapshot()
    with pytest.raises(ValueError, match="not received"):
        log.install_received_snapshot(SNAPSHOT)
    assert list((tmp_path / "log").glob("*.part")) == []
    log.close()


def test_a_start_deletes_partial_snapshots_and_completes_installations(tmp_path: Path) -> None:
    log, data = own_log(tmp_path / "log"), snapshot_bytes(tmp_path)
    log.close()
    part = tmp_path / "log" / "00000000000000000040-0000000003-1.checkpoint.part"
    part.write_bytes(data)
    log = open_log(tmp_path / "log")
    assert (log.end_offset, log.snapshots(), part.exists()) == (60, [], False)
    log.close()
    (tmp_path / "log" / "00000000000000000040-0000000003.checkpoint").write_bytes(data)
    log = open_log(tmp_path / "log", voters=(1, [1, 2, 3]))
    assert (log.start_offset, log.end_offset, log.last_epoch) == (40, 40, 3)
    log.close()
