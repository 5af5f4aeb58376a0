"""Invalid requests to simulated quorums at work, through the codecs of the wire and the real handlers.

They name another cluster or directory, have an older or absurdly new epoch or offsets outside of the log, or ask for
slices of snapshots out of order or too long. Each is rejected, or its bytes are, and changes nothing. Every invariant
is checked after each one, and in the end the quorum agrees and has kept all that it acknowledged.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace as with_values
from typing import Any

import pytest

from klamm.raft.config import RaftConfig
from klamm.raft.events import ResignRequested
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    Response,
    VoteRequest,
)
from klamm.raft.replica_state import EPOCH_MAX
from klamm.raft.voters.voter_set import ReplicaKey
from klamm.raft.wire.requests import api_key_of, decode_request, encode_request, versions_of
from klamm.raft.wire.responses import decode_response, encode_response
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.operator import CLIENT
from klamm.testing.simulator.run import _is_alive
from klamm.testing.simulator.simulated_replica import SimulatedReplica
from klamm.testing.simulator.world import World

STRANGER = b"\xee" * 16
FAR = 1 << 60
NO_EPOCH = -1
LISTENER = "CONTROLLER"
NOT_HERE = {Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH}
Hostile = tuple[Request, set[Error]]


class HostileWorld(World):
    """A quorum and a client that sends it all kinds of invalid requests."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.expected: dict[int, set[Error]] = {}
        self.kinds: Counter[str] = Counter()
        self.answers: Counter[Error] = Counter()
        self._asked: list[Request] = []  # keeps their ids unique
        self.ask_every_us = 10_000

    def heal(self) -> None:
        super().heal()
        self.ask_every_us = 0

    def ask(self) -> None:
        """Send one invalid request to one replica."""
        target = self.rng.choice([replica for replica in self.replicas.values() if replica.is_up] or [None])
        if target is None:
            return
        # Changes that any event causes, like due timers and flushed offsets, are not effects of the request.
        self.step(target, lambda: target.step(ResignRequested(NO_EPOCH)))
        if not target.is_up:
            return
        name, make = self.rng.choice(KINDS)
        request, errors = make(self.rng, target)
        low, high = versions_of(request)
        # Older versions do not name the recipient.
        version = high if make is to_another_directory else self.rng.randint(low, high)
        received = decode_request(api_key_of(request), version, encode_request(request, version)).message
        assert received is not None
        before = state_of(target)
        self._asked.append(received)
        self.expected[id(received)] = errors
        target.receive(Envelope(CLIENT, target.id, 0, target.life, received))
        changed = [(was, now) for was, now in zip(before, state_of(target), strict=True) if was != now]
        assert not changed, (name, request, changed)
        self._after_step(target)
        self.kinds[name] += 1

    def _send(self, envelope: Envelope) -> None:
        if envelope.target != CLIENT:
            super()._send(envelope)
            return
        response = envelope.response
        assert response is not None
        assert response.error in self.expected[id(envelope.request)], (envelope.request, response)
        self.answers[response.error] += 1
        check_wire(envelope.request, response)


def check_wire(request: Request, response: Response) -> None:
    """The response can be encoded in every version."""
    low, high = versions_of(request)
    for version in range(low, high + 1):
        found = decode_response(request, version, encode_response(response, version, LISTENER), LISTENER)
        assert found.error is response.error


def state_of(target: SimulatedReplica) -> tuple[object, ...]:
    """The state that a rejected request must not change, in memory and on its way to the disk."""
    core = target.running.replica
    return *target.look(), core.role, core.election, core.leader_id, target.stored, len(target.disk_work()), core.ticket


def asker(rng: random.Random, target: SimulatedReplica) -> ReplicaKey:
    """Another voter, or an unknown replica."""
    others = [voter.key for voter in target.running.replica.voters.voters if voter.key.id != target.id]
    return rng.choice([*others, ReplicaKey(77, STRANGER)])


def requests_of(rng: random.Random, target: SimulatedReplica, epoch: int, cluster: str = "cluster") -> list[Request]:
    own, other, end = target.key, asker(rng, target), OffsetAndEpoch(target.log.end_offset, max(epoch, 0))
    return [
        VoteRequest(cluster, own, other, epoch, end, pre_vote=rng.random() < 0.5),
        BeginQuorumEpochRequest(cluster, own, other.id, epoch),
        EndQuorumEpochRequest(cluster, other.id, epoch, (own,)),
        FetchRequest(cluster, other, epoch, 0, 0, -1, 0, 1 << 20),
        FetchSnapshotRequest(cluster, other, epoch, OffsetAndEpoch(1, 1), 0, 1 << 20),
    ]


def of_another_cluster(rng: random.Random, target: SimulatedReplica) -> Hostile:
    request = rng.choice(requests_of(rng, target, target.epoch + rng.randint(0, 2), "another"))
    return request, {Error.INCONSISTENT_CLUSTER_ID}


def to_another_directory(rng: random.Random, target: SimulatedReplica) -> Hostile:
    if target.epoch == 0:
        return of_another_cluster(rng, target)  # epoch 0 has no leader
    request: Any = requests_of(rng, target, target.epoch)[0]
    leader_id = target.running.replica.leader_id
    if leader_id not in (None, target.id) and rng.random() < 0.5:
        # If the leader is not known yet, the replica learns it from such a request, as in Apache Kafka.
        request = BeginQuorumEpochRequest("cluster", None, leader_id, target.epoch)
    keys = [ReplicaKey(target.id + 50, target.key.directory_id)]
    if target.key.directory_id is not None:
        keys.append(ReplicaKey(target.id, STRANGER))
    errors = {Error.INVALID_VOTER_KEY, Error.INVALID_REQUEST}
    return with_values(request, voter=rng.choice(keys)), errors


def of_an_older_epoch(rng: random.Random, target: SimulatedReplica) -> Hostile:
    if target.epoch == 0:
        return of_another_cluster(rng, target)
    request = rng.choice(requests_of(rng, target, rng.randrange(target.epoch)))
    return request, {Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER, Error.INVALID_REQUEST}


def of_an_absurd_epoch(rng: random.Random, target: SimulatedReplica) -> Hostile:
    *_, fetch, snapshot = requests_of(rng, target, rng.choice([EPOCH_MAX, target.epoch + 1000]))
    return rng.choice([fetch, snapshot]), {Error.UNKNOWN_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER}


def outside_of_the_log(rng: random.Random, target: SimulatedReplica) -> Hostile:
    """A leader returns the diverging epoch; any other replica returns that it is not the leader."""
    offset = rng.choice([target.log.end_offset + 1, FAR, (1 << 63) - 1])
    last = rng.choice([target.epoch, EPOCH_MAX])
    request = FetchRequest("cluster", asker(rng, target), target.epoch, offset, last, -1, 0, (1 << 31) - 1)
    return request, {Error.NONE, Error.INVALID_REQUEST, *NOT_HERE}


def slices_out_of_order(rng: random.Random, target: SimulatedReplica) -> Hostile:
    latest = target.log.latest_snapshot_id or OffsetAndEpoch(5, 1)
    snapshot_id = rng.choice([latest, OffsetAndEpoch(FAR, EPOCH_MAX), OffsetAndEpoch(latest.offset, latest.epoch + 1)])
    position = rng.choice([-1, FAR, (1 << 63) - 1])
    request = FetchSnapshotRequest(
        "cluster", asker(rng, target), target.epoch, snapshot_id, position, rng.choice([-1, (1 << 31) - 1])
    )
    return request, {Error.POSITION_OUT_OF_RANGE, Error.SNAPSHOT_NOT_FOUND, Error.INVALID_REQUEST, *NOT_HERE}


KINDS: list[tuple[str, Callable[[random.Random, SimulatedReplica], Hostile]]] = [
    (make.__name__, make)
    for make in (
        of_another_cluster,
        to_another_directory,
        of_an_older_epoch,
        of_an_absurd_epoch,
        outside_of_the_log,
        slices_out_of_order,
    )
]


def play(seed: int) -> HostileWorld:
    rng = random.Random(f"hostile {seed}")
    faults = Faults(drop_chance=0.05, crash_every_us=2_000_000, partition_every_us=2_000_000, snapshot_every_us=200_000)
    config = RaftConfig(election_timeout_ms=100, fetch_timeout_ms=200, request_timeout_ms=200, fetch_max_wait_ms=50)
    is_dynamic = seed % 2 == 0
    world = HostileWorld(rng, 3, 0 if is_dynamic else 1, faults, config, dynamic=is_dynamic)
    world.begin()
    world.every(lambda: world.ask_every_us, world.ask)
    world.run(4_000_000)
    world.heal()
    assert _is_alive(world)
    return world


@pytest.mark.parametrize("first", [1, 3])
def test_invalid_requests_are_rejected_and_change_nothing(first: int) -> None:
    kinds: Counter[str] = Counter()
    answers: Counter[Error] = Counter()
    for seed in range(first, first + 2):
        world = play(seed)
        assert len(world.acknowledged) >= 10
        kinds += world.kinds
        answers += world.answers
    assert min(kinds[name] for name, _ in KINDS) > 20, kinds
    assert answers.keys() >= {
        Error.INCONSISTENT_CLUSTER_ID,
        Error.INVALID_VOTER_KEY,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.NOT_LEADER_OR_FOLLOWER,
    }
