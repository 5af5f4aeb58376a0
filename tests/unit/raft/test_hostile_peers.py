"""Any sequence of messages, times and failures: the core answers every request, and keeps its invariants."""

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.raft import effects as fx
from klamm.raft import events
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.node import RaftNode
from klamm.raft.replica_state import InvariantError
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog, damage_of

IDS = st.integers(-1, 4)
EPOCHS = st.integers(-1, 4) | st.just(2**31 - 1)
OFFSETS = st.integers(-1, 5) | st.just(2**63 - 1)
KEYS = st.builds(ReplicaKey, IDS, st.sampled_from([None, b"h" * 16, b"e" * 16]))
ENDS = st.builds(OffsetAndEpoch, OFFSETS, EPOCHS)
CLUSTERS = st.sampled_from([None, "cluster", "cluster", "other"])
LEADERS = st.none() | st.integers(0, 4)
ERRORS = st.sampled_from(Error)

REQUESTS = (
    st.builds(VoteRequest, CLUSTERS, st.none() | KEYS, KEYS, EPOCHS, ENDS, st.booleans())
    | st.builds(BeginQuorumEpochRequest, CLUSTERS, st.none() | KEYS, IDS, EPOCHS)
    | st.builds(EndQuorumEpochRequest, CLUSTERS, IDS, EPOCHS, st.lists(KEYS, max_size=3).map(tuple))
    | st.builds(FetchSnapshotRequest, CLUSTERS, KEYS, EPOCHS, ENDS, OFFSETS, OFFSETS)
    | st.builds(FetchRequest, CLUSTERS, KEYS, EPOCHS, OFFSETS, EPOCHS, OFFSETS, st.integers(-1, 600), OFFSETS)
)
RESPONSES = (
    st.builds(VoteResponse, ERRORS, EPOCHS, LEADERS, st.booleans())
    | st.builds(BeginQuorumEpochResponse, ERRORS, EPOCHS, LEADERS)
    | st.builds(EndQuorumEpochResponse, ERRORS, EPOCHS, LEADERS)
    | st.builds(FetchSnapshotResponse, ERRORS, EPOCHS, LEADERS, ENDS, OFFSETS, OFFSETS, st.binary(max_size=6))
    | st.builds(
        FetchResponse,
        ERRORS,
        EPOCHS,
        LEADERS,
        OFFSETS,
        OFFSETS,
        st.none() | ENDS,
        st.none() | ENDS,
    )
)
STEPS = st.lists(
    st.tuples(st.just("request"), REQUESTS)
    | st.tuples(st.just("response"), RESPONSES)
    | st.tuples(st.just("time"), st.integers(0, 3000))
    | st.tuples(st.just("fail"), st.none()),
    max_size=30,
)


def change(log, effect):
    match effect:
        case fx.AppendControl(epoch, records):
            log.append_control(records, epoch, 0)
            log.flushed_offset = log.end_offset
        case fx.TruncateLog(offset):
            log.truncate_to(offset)
        case fx.AppendSnapshotSlice(snapshot_id, position, data):
            log.append_snapshot_slice(snapshot_id, position, data)
        case fx.DropSnapshot():
            log.drop_received_snapshot()
        case fx.InstallSnapshot():
            raise AssertionError("a damaged snapshot is installed")


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_no_message_breaks_the_core(steps):
    log, now_ms = MemoryLog(), 0
    identity = Identity(ReplicaKey(1, b"h" * 16), "cluster")
    node = RaftNode(identity, VotersInLog(VoterSet.of_ids([1, 2, 3])), RaftConfig(), log, seed=1)
    outstanding, asked, answered = [], set(), set()

    def feed(event):
        apply(events.happen(node, now_ms, event))
        while node.deadline_ms <= now_ms:
            apply(node.on_tick(now_ms))

    def apply(effects):
        for effect in effects:
            match effect:
                case fx.SendRequest():
                    outstanding.append(effect.correlation_id)
                case fx.Reply():
                    assert effect.request_id in asked - answered, "each request is answered once"
                    answered.add(effect.request_id)
                case fx.CheckSnapshot(_, attempt):
                    assert damage_of(log.received) is not None, "no bytes of these are a snapshot"
                    feed(events.SnapshotChecked(attempt, False))
                case fx.PersistElection():
                    feed(events.Persisted(effect.ticket))
                case _:
                    change(log, effect)

    feed(events.Started(None))
    epoch, fault = 0, ""
    for kind, value in steps:
        if kind == "request":
            asked.add(len(asked))
            feed(events.RequestReceived(len(asked) - 1, value))
        elif kind == "response" and outstanding:
            try:
                feed(events.ResponseReceived(outstanding.pop(), value))
            except InvariantError as error:
                fault = str(error)
            if fault:
                assert "below the high watermark" in fault or "the last that there is" in fault
                return
        elif kind == "fail" and outstanding:
            feed(events.RequestFailed(outstanding.pop()))
        elif kind == "time":
            now_ms += value
            feed(events.Ticked())
        assert node.replica.epoch >= epoch
        epoch = node.replica.epoch
    now_ms += 10_000
    feed(events.Ticked())
    waiting = getattr(node.replica.state, "parked", {})
    assert asked - answered <= set(waiting), "none is forgotten"
