"""A follower accepts a snapshot's slices in order and completely, and nothing invalid from a leader (KIP-630)."""

from dataclasses import replace

import pytest

from klamm.raft import effects as fx
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

ID = OffsetAndEpoch(40, 3)
EPOCH, LEADER, NOW_MS = 5, 2, 1000
SLICE = FetchSnapshotResponse(Error.NONE, EPOCH, LEADER, ID, size=10, position=0, unaligned_records=b"12345")


class Follower:
    """A follower with a log of epoch 1 up to offset 20; it has begun to fetch `snapshot_id`."""

    def __init__(self, snapshot_id=ID):
        self.log = MemoryLog()
        self.log.append([b"own"] * 20, 1, 0)
        self.log.flushed_offset = 20
        voters = VotersInLog(VoterSet.of_ids([1, 2, 3]))
        self.node = RaftNode(Identity(ReplicaKey(1), "cluster"), voters, RaftConfig(), self.log, seed=1)
        self.now_ms, self.seen = NOW_MS, []
        self.take(self.node.on_start(self.now_ms, None))
        begin = BeginQuorumEpochRequest("cluster", None, LEADER, EPOCH)
        self.take(self.node.on_request(self.now_ms, 1, begin))
        self.answer(FetchResponse(Error.NONE, EPOCH, LEADER, snapshot_id=snapshot_id))

    def take(self, effects):
        self.seen = list(effects)
        while self.node.deadline_ms <= self.now_ms:
            self.seen += self.node.on_tick(self.now_ms)
        for effect in self.seen:
            if isinstance(effect, fx.PersistElection):
                self.seen += self.node.on_persisted(self.now_ms, effect.ticket)
            elif isinstance(effect, fx.SendRequest):
                self.asked = effect

    def answer(self, response):
        self.asked, correlation_id = None, self.asked.correlation_id
        self.take(self.node.on_response(self.now_ms, correlation_id, response))

    def of(self, kind):
        return [effect for effect in self.seen if isinstance(effect, kind)]

    @property
    def fetching(self):
        return self.node.replica.state.fetching


def test_slices_are_fetched_one_by_one_and_checked_at_the_end():
    follower = Follower()
    assert follower.asked.request == FetchSnapshotRequest("cluster", ReplicaKey(1), EPOCH, ID, 0, 1 << 20)
    follower.answer(SLICE)
    assert follower.of(fx.AppendSnapshotSlice) == [fx.AppendSnapshotSlice(ID, 0, b"12345")]
    assert follower.asked.request.position == 5
    follower.answer(replace(SLICE, position=5, unaligned_records=b"67890"))
    assert follower.of(fx.CheckSnapshot) == [fx.CheckSnapshot(ID, 1)]
    assert follower.of(fx.InstallSnapshot) == []
    follower.take(follower.node.on_snapshot_checked(follower.now_ms, 1, True))
    assert follower.of(fx.InstallSnapshot) == [fx.InstallSnapshot(ID)]


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot_id": OffsetAndEpoch(41, 3)},
        {"snapshot_id": OffsetAndEpoch(40, 4)},
        {"position": 1},
        {"position": -1},
        {"position": 10},
    ],
    ids=str,
)
def test_a_slice_of_something_else_changes_nothing(change):
    follower = Follower()
    follower.answer(replace(SLICE, **change))
    assert not follower.of(fx.AppendSnapshotSlice)
    assert (follower.fetching.id, follower.fetching.position) == (ID, 0)
    assert follower.asked.to != LEADER, "another voter is asked first: it may know a newer leader"
    follower.now_ms += 25
    follower.take(follower.node.on_request_failed(follower.now_ms, follower.asked.correlation_id))
    assert (follower.asked.to, follower.asked.request.position) == (LEADER, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"unaligned_records": b""},
        {"unaligned_records": bytes(11)},  # longer than the snapshot
        {"size": 0},
        {"size": -1},
        {"size": 4},
    ],
    ids=str,
)
def test_an_impossible_slice_ends_the_fetch(change):
    follower = Follower()
    follower.answer(replace(SLICE, **change))
    assert follower.of(fx.DropSnapshot)
    assert not follower.of(fx.AppendSnapshotSlice)
    assert isinstance(follower.asked.request, FetchRequest)


def test_a_snapshot_that_changes_its_size_is_dropped():
    follower = Follower()
    follower.answer(SLICE)
    follower.answer(replace(SLICE, position=5, size=11))
    assert follower.of(fx.DropSnapshot)
    assert follower.fetching is None


@pytest.mark.parametrize(
    "change",
    [
        {"error": Error.SNAPSHOT_NOT_FOUND},
        {"error": Error.POSITION_OUT_OF_RANGE},
        {"snapshot_id": OffsetAndEpoch(-1, 3)},
        {"snapshot_id": OffsetAndEpoch(40, -1)},
    ],
    ids=str,
)
def test_after_a_missing_snapshot_the_follower_fetches_again(change):
    follower = Follower()
    follower.answer(SLICE)
    follower.answer(replace(SLICE, position=5, **change))
    assert follower.of(fx.DropSnapshot)
    assert isinstance(follower.asked.request, FetchRequest)


@pytest.mark.parametrize(
    "snapshot_id",
    [
        OffsetAndEpoch(20, 1),  # exactly what the log contains
        OffsetAndEpoch(19, 1),
        OffsetAndEpoch(40, 0),  # of an older epoch
        OffsetAndEpoch(40, EPOCH + 1),  # of an epoch that the leader itself has not seen
        OffsetAndEpoch(0, 3),
        OffsetAndEpoch(-1, 3),
        OffsetAndEpoch(40, -1),
    ],
)
def test_a_snapshot_that_is_not_ahead_is_not_fetched(snapshot_id):
    follower = Follower(snapshot_id)
    assert follower.fetching is None
    assert isinstance(follower.asked.request, FetchRequest)


def test_committed_records_are_never_replaced():
    follower = Follower()
    follower.node.replica.high_watermark = 41
    follower.answer(replace(SLICE, size=5))
    follower.take(follower.node.on_snapshot_checked(follower.now_ms, 1, True))
    assert not follower.of(fx.InstallSnapshot)
    assert follower.of(fx.DropSnapshot)


def test_a_check_of_an_earlier_attempt_is_ignored():
    follower = Follower()
    follower.answer(replace(SLICE, size=5))
    follower.take(follower.node.on_request(follower.now_ms, 2, BeginQuorumEpochRequest("cluster", None, 3, EPOCH + 1)))
    assert follower.of(fx.DropSnapshot)
    follower.answer(FetchResponse(Error.NONE, EPOCH + 1, 3, snapshot_id=ID))
    assert (follower.fetching.attempt, follower.asked.request.position) == (2, 0)
    follower.answer(replace(SLICE, epoch=EPOCH + 1, leader_id=3, size=5))
    follower.take(follower.node.on_snapshot_checked(follower.now_ms, 1, True))
    assert not follower.of(fx.InstallSnapshot)
    follower.take(follower.node.on_snapshot_checked(follower.now_ms, 2, False))
    assert follower.of(fx.DropSnapshot)


def test_a_follower_waiting_for_its_disk_does_not_campaign_but_grants_votes():
    follower = Follower()
    follower.answer(replace(SLICE, size=5))
    state = follower.node.replica.state
    assert state.has_fetched
    follower.now_ms += 10_000
    follower.take(follower.node.on_tick(follower.now_ms))
    assert follower.node.replica.state is state
    assert not state.has_fetched, "it grants pre-votes again"
    follower.take(follower.node.on_snapshot_checked(follower.now_ms, 1, True))
    assert follower.of(fx.InstallSnapshot)
