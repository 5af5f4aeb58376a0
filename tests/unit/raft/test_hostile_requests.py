"""Replicas' requests with changed, missing or additional bytes are answered or malformed; the replica continues."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.mutations import damaged

from klamm.protocol.errors import MalformedRequest
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.driver.serving import RaftRequests
from klamm.raft.effects import SendRequest
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
    VoteResponse,
)
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, VoterSet, VotersInLog
from klamm.raft.wire.requests import api_key_of, encode_request, versions_of
from klamm.testing.simulator.memory_log import MemoryLog

OWN, PEER = ReplicaKey(1, b"d" * 16), ReplicaKey(2, b"e" * 16)
REQUESTS: tuple[Request, ...] = (
    VoteRequest("c", OWN, PEER, 1, OffsetAndEpoch(5, 1), pre_vote=True),
    VoteRequest("c", OWN, PEER, 3, OffsetAndEpoch(5, 1), pre_vote=False),
    BeginQuorumEpochRequest("c", OWN, 2, 2, (Endpoint("CONTROLLER", "h", 9),)),
    EndQuorumEpochRequest("c", 2, 2, (OWN, PEER), (Endpoint("CONTROLLER", "h", 9),)),
    FetchRequest("c", PEER, 1, 3, 1, 2, 500, 1 << 20),
    FetchSnapshotRequest("c", PEER, 1, OffsetAndEpoch(3, 1), 10, 1 << 20),
)


class QuickLog(MemoryLog):
    def start_flush(self, on_done: Callable[[int, str | None], None]) -> None:
        super().start_flush(on_done)
        asyncio.get_running_loop().call_soon(self.finish_flush)


class Grants:
    """A network in which every peer votes for this replica, and sends nothing else."""

    def send(self, sent: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        request = sent.request
        if isinstance(request, VoteRequest):
            answer = VoteResponse(Error.NONE, request.epoch, None, granted=True)
            asyncio.get_running_loop().call_soon(on_done, answer)


class Recorder:
    """A listener that records leadership and faults."""

    def __init__(self) -> None:
        self.faults: list[Exception] = []

    def on_commit(self, high_watermark: int) -> None:
        pass

    def on_leader(self, epoch: int) -> None:
        pass

    def on_not_leader(self, epoch: int) -> None:
        pass

    async def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        raise AssertionError("none is due")

    def on_fault(self, error: Exception) -> None:
        self.faults.append(error)


@pytest.mark.parametrize("is_leading", [False, True], ids=["follows nobody", "leads"])
async def test_no_bytes_stop_a_replica(tmp_path: Path, is_leading: bool) -> None:
    rng, malformed, answered = random.Random(4), 0, 0
    config = RaftConfig(election_timeout_ms=25 if is_leading else 3_600_000, fetch_timeout_ms=3_600_000)
    for life in range(12):
        log, listener = QuickLog(), Recorder()
        node = RaftNode(Identity(OWN, "c"), VotersInLog(VoterSet.of_ids([1, 2, 3])), config, log, life)
        folder = tmp_path / str(life)
        folder.mkdir()
        driver = RaftDriver(node, log, QuorumStateFile(folder, is_volatile=True), listener, transport=Grants())
        requests, given = RaftRequests(driver, log, "c"), []
        driver.start()
        async with asyncio.timeout(30):
            while is_leading and not node.can_append:  # noqa: ASYNC110 - what is looked at has no event
                await asyncio.sleep(0.001)
        for _ in range(100):
            request = rng.choice(REQUESTS)
            low, high = versions_of(request)
            version = rng.randint(low, high)
            body = damaged(rng, encode_request(request, version))
            try:
                requests.handle(api_key_of(request), version, body, "CONTROLLER", given.append)
            except MalformedRequest:
                malformed += 1
            await asyncio.sleep(0)
            assert listener.faults == [], body
        for make in given:
            assert make()
            answered += 1
        await driver.close(timeout_ms=1)
    assert malformed > 100
    assert answered > 100
