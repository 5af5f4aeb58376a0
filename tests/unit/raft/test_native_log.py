"""The native metadata log under raft's driver with one voter."""

from __future__ import annotations

import asyncio
import tarfile
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from klamm import _engine
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.log import MetadataLog, OffsetAndEpoch
from klamm.raft.native_log import NativeMetadataLog
from klamm.raft.node import RaftNode
from klamm.raft.voters import ReplicaKey, Voter, VoterSet, VotersInLog

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-4.3.1"


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def open_log(directory: Path) -> NativeMetadataLog:
    native = _engine.MetadataLog(directory, segment_bytes=8 << 20, segment_ms=604_800_000, now_ms=wall_clock_ms())
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


def test_a_torn_batch_is_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([b"kept"], 1, 1)
    log.append([b"torn"], 1, 1)
    log.close()
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(file.read_bytes()[:-3])
    assert open_log(tmp_path).end_offset == 1


def test_a_batch_that_is_too_large_is_refused_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(ValueError, match="8388608"):
        log.append([bytes(9 << 20)], 1, 1)
    assert log.end_offset == 0
    log.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(_engine.StorageError, match="file"):
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
