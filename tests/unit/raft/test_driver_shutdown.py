"""How long a leader that shuts down waits for its successor, in simulated time."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import simulated_time
from tests.unit.raft.test_three_drivers import Member, MemoryStore, QuickLog, Switch

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import RaftDriver
from klamm.raft.election.roles import Role
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog

LATENCY_S = 0.01
TIMEOUT_MS = 5000


class Slow(Switch):  # type: ignore[misc]
    """Delays every request, and refuses the connection for nodes that are not plugged in."""

    def send(self, sent, on_done):  # type: ignore[no-untyped-def]
        asyncio.get_running_loop().call_later(LATENCY_S, self._deliver, sent, on_done)


class Voter(Member):  # type: ignore[misc]
    def __init__(self, node_id: int, switch: Slow, voters: VoterSet, config: RaftConfig) -> None:
        self.id, self.log, self.commits, self.faults = node_id, QuickLog(), [], []
        self.led = asyncio.Event()
        node = RaftNode(Identity(ReplicaKey(node_id), "c"), VotersInLog(voters), config, self.log, node_id)
        self.node, self.driver = node, RaftDriver(node, self.log, MemoryStore(), self, transport=switch)
        switch.drivers[node_id], switch.logs[node_id] = self.driver, self.log

    @property
    def role(self) -> Role:
        return self.node.replica.role


async def stopped_at_once(count: int, refusing: int = 0, *, crash_detection: bool = True) -> tuple[float, list[Voter]]:
    """How long the first leader takes to stop before another voter has its first record; and the remaining ones."""
    switch, config = Slow(), RaftConfig(crash_detection=crash_detection)
    voters = VoterSet.of_ids(range(1, count + 1))
    members = [Voter(each, switch, voters, config) for each in voters.ids]
    for member in members:
        member.driver.start()
    while not (leaders := [one for one in members if one.role is Role.LEADER]):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    [leader] = leaders
    others = [one for one in members if one is not leader]
    assert (leader.log.end_offset, [one.log.end_offset for one in others]) == (1, [0] * (count - 1))
    for gone in others[:refusing]:
        del switch.drivers[gone.id]
        await gone.driver.close(1, hand_over=False)
        leader.driver.on_peer_refused(gone.id)
    began = asyncio.get_running_loop().time()
    await leader.driver.close(TIMEOUT_MS)
    took = asyncio.get_running_loop().time() - began
    del switch.drivers[leader.id]
    return took, others


async def end(members: list[Voter]) -> None:
    for member in members:
        await member.driver.close(0)
        assert member.faults == []


@pytest.mark.parametrize(("count", "refusing"), [(2, 0), (3, 1)])
def test_it_does_not_wait_for_followers_that_it_cannot_vote_for(count: int, refusing: int) -> None:
    """A follower without its first record could not be elected even with the vote of a leader that has the record."""

    async def main() -> None:
        took, others = await stopped_at_once(count, refusing)
        assert took < 2 * LATENCY_S
        await end(others)

    simulated_time.run(main())


def test_it_waits_for_a_majority_without_it() -> None:
    async def main() -> None:
        took, others = await stopped_at_once(3)
        assert took < 10 * LATENCY_S
        async with asyncio.timeout(1):
            while not any(one.role is Role.LEADER for one in others):  # noqa: ASYNC110
                await asyncio.sleep(LATENCY_S)
        await end(others)

    simulated_time.run(main())


def test_without_crash_detection_it_waits_as_apache_kafka_does(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        took, others = await stopped_at_once(2, crash_detection=False)
        assert took == pytest.approx(TIMEOUT_MS / 1000, rel=1e-4)
        assert f"this replica stops without a hand-over, or with disk work left: {TIMEOUT_MS} ms have" in caplog.text
        await end(others)

    simulated_time.run(main())


def test_the_follower_with_all_records_is_elected_with_its_vote() -> None:
    async def main() -> None:
        switch, voters = Slow(), VoterSet.of_ids([1, 2])
        members = [Voter(each, switch, voters, RaftConfig()) for each in voters.ids]
        for member in members:
            member.driver.start()
        async with asyncio.timeout(60):
            while not any(one.led.is_set() for one in members):  # noqa: ASYNC110
                await asyncio.sleep(LATENCY_S)
        leader, other = sorted(members, key=lambda one: not one.led.is_set())
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await leader.driver.close(TIMEOUT_MS)
        assert asyncio.get_running_loop().time() - began < 20 * LATENCY_S
        assert other.role is Role.LEADER
        await end([other])

    simulated_time.run(main())
