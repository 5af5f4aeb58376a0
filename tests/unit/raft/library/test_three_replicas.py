"""Three replicas in one loop on real logs: forwarding, reads, fail-over, and linearizable histories."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager

import pytest
from tests.support.quick_quorum import CONFIG
from tests.support.waiting import until

from klamm.raft import LocalHub, NoLeaderError, OutcomeUnknownError, Replica, SnapshotConfig
from klamm.raft import replica_state as replica
from klamm.raft.library.driver.member import Member
from klamm.raft.replication import leading
from klamm.testing.linearizability import UNKNOWN, Call, counter, is_linearizable

VOTERS = {1: "", 2: "", 3: ""}


class Sum:
    def __init__(self):
        self.value = 0
        self.applied = 0

    def apply(self, command):
        self.value += int(command)
        self.applied += 1
        return b"%d" % self.value

    def snapshot(self):
        return b"%d %d" % (self.value, self.applied)

    def restore(self, data):
        self.value, self.applied = map(int, data.split())


def value(machine):
    return machine.value


class Trio:
    def __init__(self, folder, config=CONFIG):
        self.folder, self.config, self.hub = folder, config, LocalHub()
        self.replicas = {}

    async def start(self, node_id):
        replica = Replica(
            Sum(),
            self.folder / str(node_id),
            node_id=node_id,
            voters=VOTERS,
            network=self.hub.network(node_id),
            config=self.config,
        )
        await replica.start()
        self.replicas[node_id] = replica
        return replica

    async def stop(self, node_id):
        """Crash for the others: nothing is handed over."""
        self.hub.detach(node_id)
        await self.replicas.pop(node_id).close(timeout_s=0)

    async def leader(self):
        def leading():
            return [replica for replica in self.replicas.values() if replica.leadership.is_self]

        await until(leading)
        return leading()[0]


@asynccontextmanager
async def trio(folder, config=CONFIG):
    three = Trio(folder, config)
    for node_id in VOTERS:
        await three.start(node_id)
    try:
        yield three
    finally:
        for node_id in list(three.replicas):
            await three.stop(node_id)


async def test_any_replica_takes_commands_and_reads(tmp_path):
    async with trio(tmp_path) as three:
        for total, replica in enumerate(three.replicas.values(), 1):
            assert await replica.execute(b"1") == b"%d" % total
            assert replica.read_local(value) == total
        results = await asyncio.gather(*(r.execute_all([b"1"] * 50) for r in three.replicas.values()))
        assert sorted(int(number) for numbers in results for number in numbers) == list(range(4, 154))
        assert [await replica.read(value) for replica in three.replicas.values()] == [153] * 3


async def test_the_loss_of_a_leader_loses_and_duplicates_nothing(tmp_path):
    async with trio(tmp_path) as three:
        leader = await three.leader()
        writer = next(replica for replica in three.replicas.values() if replica is not leader)
        await writer.execute(b"1")
        writing = asyncio.ensure_future(writer.execute_all([b"1"] * 300))
        await until(lambda: writer.read_local(value) > 1)
        # It may already have lost its leadership, but that is not why it is stopped.
        lost = next(node_id for node_id, replica in three.replicas.items() if replica is leader)
        await three.stop(lost)
        assert len(await writing) == 300
        assert await writer.read(value) == 301
        again = await three.start(lost)
        assert await again.read(value) == 301


async def test_without_a_majority_the_error_says_what_is_known(tmp_path):
    three = Trio(tmp_path)
    alone = await three.start(1)
    with pytest.raises(NoLeaderError, match="nothing was sent"):
        await alone.execute(b"1", timeout_s=0.2)
    with pytest.raises(NoLeaderError, match="majority"):
        await alone.read(value, timeout_s=0.2)
    await three.start(2)
    await alone.execute(b"1")
    leader = await three.leader()
    three.hub.reachable = lambda source, target: False
    with pytest.raises(OutcomeUnknownError, match="read the state"):
        await leader.execute(b"1", timeout_s=0.1)
    for node_id in (1, 2):
        await three.stop(node_id)


async def test_an_isolated_leader_returns_no_stale_read(tmp_path):
    async with trio(tmp_path) as three:
        await three.replicas[1].execute(b"1")
        old = await three.leader()
        cut = old.leadership.leader_id
        three.hub.reachable = lambda source, target: cut not in (source, target)
        reading = asyncio.ensure_future(old.read(value))
        others = [replica for node_id, replica in three.replicas.items() if node_id != cut]
        await until(lambda: any(replica.leadership.is_self for replica in others))
        assert await others[0].execute(b"1") == b"2"
        three.hub.reachable = lambda source, target: True
        assert await reading == 2


async def test_a_leader_without_read_confirmation_would_return_a_stale_read(tmp_path, monkeypatch):
    """Without the guard of reads: a leader without a majority returns its own state."""

    async def ask_nobody(self, epoch, others, needed):
        pass

    monkeypatch.setattr(Member, "_confirm", ask_nobody)
    for room in (leading, replica):
        monkeypatch.setattr(room, "CHECK_QUORUM_FACTOR", 10_000)
    async with trio(tmp_path) as three:
        await three.replicas[1].execute(b"1")
        old = await three.leader()
        cut = old.leadership.leader_id
        three.hub.reachable = lambda source, target: cut not in (source, target)
        others = [other for node_id, other in three.replicas.items() if node_id != cut]
        await until(lambda: any(other.leadership.is_self for other in others))
        assert await others[0].execute(b"1") == b"2"
        assert await old.read(value) == 1


async def test_a_command_whose_responses_are_lost_is_retried_and_counts_once(tmp_path):
    async with trio(tmp_path) as three:
        await three.replicas[1].execute(b"1")
        leader = await three.leader()
        led_by = leader.leadership.leader_id
        deaf = next(node_id for node_id in three.replicas if node_id != led_by)
        three.hub.reachable = lambda source, target: (source, target) != (led_by, deaf)
        records = leader.applied_offset
        executing = asyncio.ensure_future(three.replicas[deaf].execute(b"1"))
        await until(lambda: leader.applied_offset > records + 2)
        three.hub.reachable = lambda source, target: True
        assert await executing == b"2"
        assert [await replica.read(value) for replica in three.replicas.values()] == [2, 2, 2]


async def test_an_observer_has_the_state_and_no_vote(tmp_path):
    async with trio(tmp_path) as three:
        observer = await three.start(9)
        assert await observer.execute(b"4") == b"4"
        assert await observer.read(value) == 4
        await three.stop(9)
        assert await (await three.leader()).execute(b"1") == b"5"


async def test_histories_under_cuts_and_crashes_are_linearizable(tmp_path):
    """Clients of every replica add and read while leaders are isolated or crash; each command counts once."""
    rng = random.Random(7)
    snapshots = SnapshotConfig(record_bytes_between_snapshots_max=20_000, retention_bytes_max=-1)
    config = CONFIG._replace(snapshots=snapshots)
    history = []
    async with trio(tmp_path, config) as three:
        await three.leader()
        is_over = asyncio.Event()

        async def client(node_id):
            while not is_over.is_set():
                replica = three.replicas.get(node_id)
                if replica is None:
                    await asyncio.sleep(0.01)
                    continue
                asked = ("add", 1) if rng.random() < 0.5 else ("read",)
                begun = time.perf_counter()
                try:
                    if asked == ("read",):
                        answer = await replica.read(value, timeout_s=0.5)
                    else:
                        answer = int(await replica.execute(b"1", timeout_s=0.5))
                    history.append(Call(asked, answer, begun, time.perf_counter()))
                except Exception:  # for any error, the outcome is unknown
                    history.append(Call(asked, UNKNOWN, begun))
                await asyncio.sleep(0.002)

        clients = [asyncio.ensure_future(client(node_id)) for node_id in VOTERS]
        for _ in range(3):
            enough = len(history) + 20
            await until(lambda enough=enough: len(history) > enough)
            victim = (await three.leader()).leadership.leader_id
            if rng.random() < 0.5:
                three.hub.reachable = lambda source, target, cut=victim: cut not in (source, target)
                await asyncio.sleep(0.2)
                three.hub.reachable = lambda source, target: True
            else:
                await three.stop(victim)
                await asyncio.sleep(0.1)
                await three.start(victim)
        is_over.set()
        await asyncio.gather(*clients)
        leader = await three.leader()
        begun = time.perf_counter()
        history.append(Call(("read",), await leader.read(value), begun, time.perf_counter()))
    known = [call for call in history if call.answered is not UNKNOWN]
    assert len(known) > 30
    adds = [call for call in history if call.asked != ("read",) or call.answered is not UNKNOWN]
    assert is_linearizable(adds, counter())
