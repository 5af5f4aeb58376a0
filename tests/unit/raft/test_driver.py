"""The driver with one voter: start, group commit, faults, snapshots, close."""

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.driver.snapshots import SnapshotDriver
from klamm.raft.effects import HighWatermarkAdvanced
from klamm.raft.election.election_state import QuorumStateError
from klamm.raft.log.metadata_log import MetadataLogError, OffsetAndEpoch, SnapshotInfo
from klamm.raft.log.snapshots import SnapshotConfig
from klamm.raft.node import RaftNode
from klamm.raft.ports import NotLeaderError, RaftStoppedError
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

DIRECTORY_ID = bytes(range(16))


class ThreadedLog(MemoryLog):
    """Completes its flushes in another thread, like the native log, and counts them."""

    flush_count = 0
    gate: threading.Event | None = None
    error: str | None = None

    def start_flush(self, on_done):
        super().start_flush(on_done)
        self.flush_count += 1
        threading.Thread(target=self._flush, daemon=True).start()

    def _flush(self):
        if self.gate is not None:
            self.gate.wait(10)
        self.finish_flush(self.error)


class Recorder:
    """A listener that records its calls."""

    def __init__(self, log):
        self.log = log
        self.heard = []
        self.leading = asyncio.Event()
        self.snapshot_written = asyncio.Event()
        self.faulted = asyncio.Event()
        self.on_leader_do = lambda epoch: None

    def on_commit(self, high_watermark):
        self.heard.append(("commit", high_watermark))

    def on_leader(self, epoch):
        self.heard.append(("leader", epoch))
        self.leading.set()
        self.on_leader_do(epoch)

    def on_not_leader(self, epoch):
        self.heard.append(("not leader", epoch))

    async def write_snapshot(self, snapshot_id):
        await asyncio.sleep(0)
        self.log.add_snapshot(SnapshotInfo(snapshot_id, 100, 0))
        self.heard.append(("snapshot", snapshot_id))
        self.snapshot_written.set()

    def on_fault(self, error):
        self.heard.append(("fault", str(error)))
        self.faulted.set()


class Rig:
    """A driver of one voter on a log and a directory."""

    def __init__(self, directory: Path, log: MemoryLog | None = None, **options):
        self.log = log or ThreadedLog()
        self.listener = Recorder(self.log)
        self.store = options.pop("store", None) or QuorumStateFile(directory)
        identity = Identity(ReplicaKey(1, DIRECTORY_ID), "cluster")
        voters = VotersInLog(VoterSet.of_ids([1]))
        self.node = RaftNode(identity, voters, RaftConfig(election_timeout_ms=20), self.log, seed=1)
        self.driver = RaftDriver(self.node, self.log, self.store, self.listener, **options)

    async def start(self):
        self.driver.start()
        async with asyncio.timeout(30):
            await self.listener.leading.wait()
        return self

    def stored(self):
        return json.loads(self.store.read())


async def test_a_sole_voter_leads_once_its_election_and_first_record_are_durable(tmp_path):
    rig = await Rig(tmp_path).start()
    assert rig.stored() == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }
    assert rig.listener.heard == [("commit", 1), ("leader", 1)]
    assert rig.log.end_offset == rig.log.flushed_offset == 1
    assert rig.log.control_records()[0].type == 2
    await rig.driver.close()
    assert not (tmp_path / "quorum-state.tmp").exists()


async def test_nothing_is_appended_before_the_election_is_durable(tmp_path):
    class Gated(QuorumStateFile):
        gate = threading.Event()

        def write(self, data):
            self.gate.wait(10)
            super().write(data)

    rig = Rig(tmp_path, store=Gated(tmp_path))
    rig.driver.start()
    for _ in range(20):
        await asyncio.sleep(0)
    assert rig.log.end_offset == 0
    Gated.gate.set()
    await asyncio.wait_for(rig.listener.leading.wait(), 30)
    assert rig.log.end_offset == 1
    await rig.driver.close()


async def test_each_start_is_a_new_epoch_and_keeps_what_was_committed(tmp_path):
    log = ThreadedLog()
    for epoch in (1, 2, 3):
        rig = await Rig(tmp_path, log).start()
        offset = rig.driver.propose([b"record"], epoch)
        await rig.driver.wait_committed(offset)
        assert rig.stored()["leaderEpoch"] == epoch
        await rig.driver.close()
    assert [record.epoch for record in log.records] == [1, 1, 2, 2, 3, 3]


async def test_proposals_during_a_flush_join_the_next_one(tmp_path):
    rig = await Rig(tmp_path).start()
    rig.log.gate = threading.Event()
    before = rig.log.flush_count
    first = rig.driver.wait_committed(rig.driver.propose([b"first"], 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [rig.driver.wait_committed(rig.driver.propose([b"a", b"b"], 1)) for _ in range(100)]
    assert rig.log.flush_count == before + 1
    assert not first.done()
    rig.log.gate.set()
    await asyncio.wait_for(asyncio.gather(first, *others), 10)
    assert rig.log.flush_count == before + 2
    assert rig.driver.high_watermark == 1 + 1 + 200
    await rig.driver.close()


async def test_proposals_of_one_turn_share_a_flush(tmp_path):
    rig = await Rig(tmp_path).start()
    before = rig.log.flush_count
    waits = [rig.driver.wait_committed(rig.driver.propose([b"x"], 1)) for _ in range(50)]
    await asyncio.wait_for(asyncio.gather(*waits), 10)
    assert rig.log.flush_count == before + 1
    await rig.driver.close()


async def test_a_commit_is_applied_before_its_waiters_run(tmp_path):
    rig = await Rig(tmp_path).start()
    offset = rig.driver.propose([b"x"], 1)
    seen = []

    async def client():
        await rig.driver.wait_committed(offset)
        seen.append(list(rig.listener.heard))

    await asyncio.wait_for(client(), 10)
    assert seen[0][-1] == ("commit", offset + 1)
    await rig.driver.close()


async def test_the_listener_may_propose_while_it_becomes_leader(tmp_path):
    rig = Rig(tmp_path)
    offsets = []
    rig.listener.on_leader_do = lambda epoch: offsets.append(rig.driver.propose([b"first"], epoch))
    await rig.start()
    await asyncio.wait_for(rig.driver.wait_committed(offsets[0]), 10)
    assert rig.listener.heard == [("commit", 1), ("leader", 1), ("commit", 2)]
    await rig.driver.close()


async def test_a_proposal_in_another_epoch_is_rejected(tmp_path):
    rig = await Rig(tmp_path).start()
    with pytest.raises(NotLeaderError, match="epoch 2 is not led"):
        rig.driver.propose([b"x"], 2)
    assert rig.log.end_offset == 1
    await rig.driver.close()
    with pytest.raises(RaftStoppedError):
        rig.driver.propose([b"x"], 1)


async def test_a_batch_that_is_too_large_is_rejected_and_the_replica_continues(tmp_path):
    rig = await Rig(tmp_path).start()
    with pytest.raises(ValueError, match="batch of more than"):
        rig.driver.propose([b"x" * (9 << 20)], 1)
    await asyncio.wait_for(rig.driver.wait_committed(rig.driver.propose([b"x"], 1)), 10)
    await rig.driver.close()


async def test_resigning_fails_the_waiters_and_leads_again_in_a_later_epoch(tmp_path):
    rig = await Rig(tmp_path).start()
    rig.log.gate = threading.Event()
    waiting = rig.driver.wait_committed(rig.driver.propose([b"x"], 1))
    rig.driver.resign(1)
    with pytest.raises(NotLeaderError, match="epoch 1 ended"):
        await asyncio.wait_for(waiting, 10)
    rig.listener.leading.clear()
    rig.log.gate.set()
    await asyncio.wait_for(rig.listener.leading.wait(), 30)
    assert rig.driver.epoch == 3  # resigned in 1, unattached in 2
    assert ("not leader", 1) in rig.listener.heard
    await rig.driver.close()


async def test_a_failed_flush_stops_the_replica_for_good(tmp_path):
    rig = await Rig(tmp_path).start()
    rig.log.error = "00000000000000000000.log: Input/output error"
    waiting = rig.driver.wait_committed(rig.driver.propose([b"x"], 1))
    with pytest.raises(RaftStoppedError, match="Input/output error"):
        await asyncio.wait_for(waiting, 10)
    assert rig.listener.heard[-1][0] == "fault"
    flushes = rig.log.flush_count
    with pytest.raises(RaftStoppedError):
        rig.driver.propose([b"x"], 1)
    await rig.driver.close()
    assert rig.log.flush_count == flushes, "a failed fsync is never tried again"


async def test_an_election_that_cannot_be_written_stops_the_replica(tmp_path):
    class Full(QuorumStateFile):
        def write(self, data):
            raise OSError(28, "No space left on device")

    rig = Rig(tmp_path, store=Full(tmp_path))
    rig.driver.start()
    await asyncio.wait_for(rig.listener.faulted.wait(), 10)
    assert [kind for kind, _ in rig.listener.heard] == ["fault"]
    assert "No space left" in rig.listener.heard[0][1]
    assert "quorum-state" in rig.listener.heard[0][1]
    assert rig.log.end_offset == 0


async def test_a_listener_that_cannot_trust_its_log_stops_the_replica(tmp_path):
    rig = await Rig(tmp_path).start()

    def broken(high_watermark):
        raise MetadataLogError("00000000000000000000.log: Input/output error")

    rig.listener.on_commit = broken
    with pytest.raises(RaftStoppedError, match="Input/output error"):
        await asyncio.wait_for(rig.driver.wait_committed(rig.driver.propose([b"x"], 1)), 10)


async def test_a_damaged_quorum_state_is_named(tmp_path):
    (tmp_path / "quorum-state").write_bytes(b'{"leaderId":')
    rig = Rig(tmp_path)
    with pytest.raises(QuorumStateError, match=r"quorum-state cannot be understood: not a JSON object"):
        rig.driver.start()
    assert (tmp_path / "quorum-state").read_bytes() == b'{"leaderId":'


async def test_close_leaves_nothing_unflushed(tmp_path):
    rig = await Rig(tmp_path).start()
    waiting = rig.driver.wait_committed(rig.driver.propose([b"x"], 1))
    await rig.driver.close()
    assert rig.log.flushed_offset == rig.log.end_offset == 2
    assert waiting.done()
    assert waiting.exception() is None


async def test_snapshots_by_size_and_cleaning_before_them(tmp_path):
    config = SnapshotConfig(record_bytes_between_snapshots_max=1000, retention_bytes_max=0)
    rig = await Rig(tmp_path, snapshot_config=config).start()
    for _ in range(2):
        rig.listener.snapshot_written.clear()
        await asyncio.wait_for(rig.driver.wait_committed(rig.driver.propose([b"x" * 1000], 1)), 10)
        await asyncio.wait_for(rig.listener.snapshot_written.wait(), 10)
        await asyncio.sleep(0)
    ids = [what for kind, what in rig.listener.heard if kind == "snapshot"]
    assert ids == [OffsetAndEpoch(2, 1), OffsetAndEpoch(3, 1)]
    assert [info.id for info in rig.log.snapshots()] == [OffsetAndEpoch(3, 1)], "one snapshot always stays"
    assert rig.log.start_offset == 3
    await rig.driver.close()


async def test_a_failed_snapshot_is_retried_after_as_many_new_bytes(tmp_path):
    rig = await Rig(tmp_path, snapshot_config=SnapshotConfig(record_bytes_between_snapshots_max=100)).start()
    tried = []

    async def failing(snapshot_id):
        tried.append(snapshot_id.offset)
        raise OSError(28, "No space left on device")

    rig.listener.write_snapshot = failing
    for size in (100, 60, 60, 60):
        await asyncio.wait_for(rig.driver.wait_committed(rig.driver.propose([b"x" * size], 1)), 10)
        await asyncio.sleep(0)
    assert tried == [2, 4]
    assert rig.log.start_offset == 0
    await rig.driver.close()


async def test_a_snapshot_is_of_the_state_at_its_commit(tmp_path):
    rig = await Rig(tmp_path, snapshot_config=SnapshotConfig(record_bytes_between_snapshots_max=10)).start()
    seen = []

    def write_snapshot(snapshot_id):
        seen.append((snapshot_id.offset, rig.listener.heard[-1]))
        rig.listener.snapshot_written.set()
        return asyncio.sleep(0)

    rig.listener.write_snapshot = write_snapshot
    rig.driver.propose([b"x" * 10], 1)
    await asyncio.wait_for(rig.listener.snapshot_written.wait(), 10)
    assert seen == [(2, ("commit", 2))]
    await rig.driver.close()


async def test_a_snapshot_not_begun_when_the_driver_stops_is_skipped():
    begun = []

    async def write():
        begun.append(True)

    writing = write()
    log = SimpleNamespace(latest_snapshot_id=None, start_offset=0, bytes_from=lambda _: 100, epoch_at=lambda _: 1)
    listener = SimpleNamespace(write_snapshot=lambda _: writing)
    config = SnapshotConfig(record_bytes_between_snapshots_max=10)
    driver = SnapshotDriver(log, listener, config, lambda: 0, lambda *_: None)
    driver.on_high_watermark(1)
    driver.stop()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (inspect.getcoroutinestate(writing), begun) == (inspect.CORO_CLOSED, [])


async def test_a_snapshot_without_state_is_requested_at_the_next_commit(tmp_path, caplog):
    rig = await Rig(tmp_path, snapshot_config=SnapshotConfig(record_bytes_between_snapshots_max=10)).start()
    asked, write_snapshot = [], rig.listener.write_snapshot

    def not_yet(snapshot_id):
        asked.append(snapshot_id.offset)
        return write_snapshot(snapshot_id) if snapshot_id.offset == 3 else None

    rig.listener.write_snapshot = not_yet
    await asyncio.wait_for(rig.driver.wait_committed(rig.driver.propose([b"x" * 10], 1)), 10)
    await asyncio.wait_for(rig.driver.wait_committed(rig.driver.propose([b""], 1)), 10)
    await asyncio.wait_for(rig.listener.snapshot_written.wait(), 10)
    assert asked == [2, 3]
    assert [info.id for info in rig.log.snapshots()] == [OffsetAndEpoch(3, 1)]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    await rig.driver.close()


async def test_no_snapshot_is_due_before_anything_is_committed(tmp_path):
    """A follower's first fetched records are in its log and not flushed: the high watermark that it then knows is 0."""
    rig = Rig(tmp_path, snapshot_config=SnapshotConfig(record_bytes_between_snapshots_max=10))
    rig.log.append([b"x" * 100], 1, 0)
    rig.node.on_peer_refused = lambda now_ms, node_id: [HighWatermarkAdvanced(0)]
    rig.driver.on_peer_refused(2)
    assert rig.listener.heard == [("commit", 0)]
    await rig.driver.close(hand_over=False)


@contextmanager
def broken_rename(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_args: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", refuse)
        yield


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    store = QuorumStateFile(tmp_path)
    assert store.read() is None
    store.write(b"old")
    with broken_rename(monkeypatch), pytest.raises(OSError, match="Input/output"):
        store.write(b"new")
    assert store.read() == b"old"
    store.write(b"newer")
    assert store.read() == b"newer"
