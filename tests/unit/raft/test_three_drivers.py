"""Three drivers in one loop, with memory logs and a transport that delivers in the next turn."""

import asyncio
import time
from dataclasses import replace

import pytest

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import RaftDriver
from klamm.raft.node import RaftNode
from klamm.raft.ports import NotLeaderError
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

CONFIG = RaftConfig(election_timeout_ms=50, fetch_timeout_ms=100, request_timeout_ms=100, fetch_max_wait_ms=20)

# For tests in which no timeout may expire, however busy the machine is.
PATIENT = replace(CONFIG, fetch_timeout_ms=10_000, request_timeout_ms=10_000)


class QuickLog(MemoryLog):
    """Completes its flushes in the next turn of the loop."""

    def start_flush(self, on_done):
        super().start_flush(on_done)
        asyncio.get_running_loop().call_soon(self.finish_flush)


class MemoryStore:
    data = None

    def read(self):
        return self.data

    def write(self, data):
        self.data = data


class Switch:
    """Carries requests between plugged-in drivers."""

    def __init__(self):
        self.drivers = {}
        self.logs = {}

    def send(self, sent, on_done):
        asyncio.get_running_loop().call_soon(self._deliver, sent, on_done)

    def _deliver(self, sent, on_done):
        driver, log = self.drivers.get(sent.to), self.logs[sent.to]
        if driver is None:
            on_done(None)
            return

        def reply(response, read):
            if read is not None:
                response = replace(response, records=log.read(read.offset, read.max_bytes))
            asyncio.get_running_loop().call_soon(on_done, response)

        driver.handle_request(sent.request, reply)


class Member:
    def __init__(self, node_id, switch, config=PATIENT):
        self.id = node_id
        self.log, self.commits, self.led, self.faults = QuickLog(), [], asyncio.Event(), []
        node = RaftNode(
            Identity(ReplicaKey(node_id), "c"), VotersInLog(VoterSet.of_ids([1, 2, 3])), config, self.log, node_id
        )
        self.driver = RaftDriver(node, self.log, MemoryStore(), self, transport=switch)
        switch.drivers[node_id], switch.logs[node_id] = self.driver, self.log

    def on_commit(self, high_watermark):
        self.commits.append(high_watermark)

    def on_leader(self, epoch):
        self.led.set()

    def on_not_leader(self, epoch):
        self.led.clear()

    async def write_snapshot(self, snapshot_id):
        raise AssertionError("none is due")

    def on_fault(self, error):
        self.faults.append(error)


async def leader_of(members):
    done, rest = await asyncio.wait(
        [asyncio.create_task(member.led.wait(), name=str(member.id)) for member in members],
        return_when=asyncio.FIRST_COMPLETED,
        timeout=20,
    )
    for task in rest:
        task.cancel()
    assert done, "no leader was elected"
    return next(member for member in members if member.led.is_set())


async def test_elect_replicate_hand_over():
    switch = Switch()
    members = [Member(node_id, switch) for node_id in (1, 2, 3)]
    for member in members:
        member.driver.start()
    leader = await leader_of(members)
    values = [b"%d" % number for number in range(200)]
    waits = [leader.driver.wait_committed(leader.driver.propose([value], leader.driver.epoch)) for value in values]
    await asyncio.wait_for(asyncio.gather(*waits), 20)
    description = leader.driver.describe_quorum()
    assert (description.leader_id, description.high_watermark) == (leader.id, leader.driver.high_watermark)
    assert [voter.key.id for voter in description.voters] == [1, 2, 3]
    assert max(voter.log_end_offset for voter in description.voters) == leader.log.end_offset

    others = [member for member in members if member is not leader]
    with pytest.raises(NotLeaderError):
        others[0].driver.describe_quorum()
    await leader.driver.close()
    del switch.drivers[leader.id]
    successor = await leader_of(others)
    await asyncio.wait_for(
        successor.driver.wait_committed(successor.driver.propose([b"last"], successor.driver.epoch)), 20
    )
    committed = successor.log.records[: successor.driver.high_watermark]
    assert [record.value for record in committed if record.value in values] == values
    for member in others:
        await member.driver.close(timeout_ms=200)
        assert member.faults == []
        assert member.commits == sorted(member.commits)


class Observer(Member):
    """A broker's replica: it never votes."""

    def __init__(self, node_id, switch):
        super().__init__(node_id, switch, replace(PATIENT, never_votes=True))
        self.committed = asyncio.Event()

    def on_commit(self, high_watermark):
        super().on_commit(high_watermark)
        self.committed.set()

    async def until_committed(self, offset):
        async with asyncio.timeout(20):
            while self.driver.high_watermark <= offset:
                self.committed.clear()
                await self.committed.wait()


async def test_an_observer_delivers_commits_before_its_flush_and_flushes_at_close():
    switch = Switch()
    members = [Member(node_id, switch) for node_id in (1, 2, 3)]
    observer = Observer(4, switch)
    for member in (*members, observer):
        member.driver.start()
    leader = await leader_of(members)
    for _ in range(20):
        offset = leader.driver.propose([b"x"], leader.driver.epoch)
        await observer.until_committed(offset)
    assert observer.log.end_offset == offset + 1
    await observer.driver.close()
    assert observer.log.flushed_offset == offset + 1
    for member in members:
        await member.driver.close(timeout_ms=200)
        assert member.faults == []
    assert observer.faults == []


def freeze():
    """Like SIGSTOP, for longer than a leader leads without a majority."""
    time.sleep(CONFIG.fetch_timeout_ms * 2 / 1000)


async def test_a_leader_that_resumes_too_late_reports_an_unknown_outcome():
    switch = Switch()
    members = [Member(node_id, switch, CONFIG) for node_id in (1, 2, 3)]
    for member in members:
        member.driver.start()
    leader = await leader_of(members)
    epoch = leader.driver.epoch
    freeze()
    with pytest.raises(NotLeaderError, match="may survive or not"):
        leader.driver.propose([b"late"], epoch)
    assert not leader.led.is_set()
    for member in members:
        await member.driver.close(timeout_ms=200)
        assert member.faults == []


async def test_waiters_of_a_commit_run_before_voters_are_notified():
    switch = Switch()
    members = [Member(node_id, switch, CONFIG) for node_id in (1, 2, 3)]
    for member in members:
        member.driver.start()
    leader = await leader_of(members)
    committed = []

    async def wait():
        offset = leader.driver.propose([b"x"], leader.driver.epoch)
        await leader.driver.wait_committed(offset)
        committed.append([max(member.commits, default=0) > offset for member in members if member is not leader])

    await asyncio.wait_for(wait(), 20)
    assert committed == [[False, False]]
    for member in members:
        await member.driver.close(hand_over=False)
    assert not any(member.faults for member in members)
