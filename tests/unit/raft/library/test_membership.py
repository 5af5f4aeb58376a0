"""Voters are added and removed while commands are executed; replicas that lost their disk or lag behind recover."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from tests.support.ports import free_port
from tests.support.waiting import until

from klamm.raft import LocalHub, MembershipError, RaftConfig, Replica, ReplicaConfig, SnapshotConfig
from klamm.raft.log.control_records import KRAFT_VOTERS, encode_voters
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.voters.voter_set import ReplicaKey, Voter
from klamm.records import batches

QUICK = RaftConfig(
    election_timeout_ms=60,
    fetch_timeout_ms=150,
    request_timeout_ms=150,
    retry_backoff_ms=5,
    election_backoff_max_ms=60,
    fetch_max_wait_ms=30,
)
CONFIG = ReplicaConfig(raft=QUICK, flush=False, timeout_s=30)


class Sum:
    def __init__(self):
        self.value = 0

    def apply(self, command):
        self.value += int(command)
        return b"%d" % self.value

    def snapshot(self):
        return b"%d" % self.value

    def restore(self, data):
        self.value = int(data)


def value(machine):
    return machine.value


async def grows_from_one_to_three_and_loses_its_first(make):
    replicas = {1: make(1)}
    await replicas[1].start()
    await replicas[1].execute(b"1")
    for node_id in (2, 3):
        replicas[node_id] = make(node_id)
        await replicas[node_id].start()
        await replicas[node_id].join(timeout_s=30)
        await replicas[node_id].join(timeout_s=30)
        assert await replicas[node_id].execute(b"1") == b"%d" % node_id
    assert replicas[3].voters.keys() == {1, 2, 3}
    await replicas[2].remove_voter(1, timeout_s=30)
    assert await replicas[1].execute(b"1") == b"4"
    await replicas.pop(1).close()
    assert await replicas[2].read(value) == 4
    with pytest.raises(MembershipError, match="no voter"):
        await replicas[2].remove_voter(1)
    for replica in replicas.values():
        await replica.close(timeout_s=0)
    replicas = {node_id: make(node_id) for node_id in (2, 3)}
    for replica in replicas.values():
        await replica.start()
    assert await replicas[2].execute(b"1") == b"5"
    assert replicas[3].voters.keys() == {2, 3}
    await replicas[3].close(timeout_s=0)
    with pytest.raises(MembershipError, match=r"no majority|not done"):
        await replicas[2].remove_voter(2, timeout_s=0.5)
    await replicas[2].close(timeout_s=0)


async def test_voters_change_in_one_process(tmp_path):
    hub = LocalHub()

    def make(node_id):
        network = hub.network(node_id)
        return Replica(Sum(), tmp_path / str(node_id), node_id=node_id, voters={1: ""}, network=network, config=CONFIG)

    await grows_from_one_to_three_and_loses_its_first(make)


async def test_voters_change_over_sockets(tmp_path):
    addresses = {node_id: f"127.0.0.1:{free_port()}" for node_id in (1, 2, 3)}

    def make(node_id):
        return Replica(
            Sum(),
            tmp_path / str(node_id),
            node_id=node_id,
            voters={1: addresses[1]},
            address=addresses[node_id],
            config=CONFIG,
        )

    await grows_from_one_to_three_and_loses_its_first(make)


@pytest.mark.parametrize("within", [True, False], ids=["one process", "sockets"])
@pytest.mark.parametrize("leader_first", [True, False])
async def test_the_last_voter_stops_without_waiting(tmp_path, within, leader_first):
    """There is no successor, so it does not use the hour that it has to hand over."""
    hub, replicas = LocalHub(), []
    voters = {node_id: "" if within else f"127.0.0.1:{free_port()}" for node_id in (1, 2, 3)}
    for node_id in voters:
        network = hub.network(node_id) if within else None
        directory = tmp_path / str(node_id)
        replicas.append(Replica(Sum(), directory, node_id=node_id, voters=voters, network=network, config=CONFIG))
        await replicas[-1].start()
    while replicas:
        if len(replicas) > 1:
            await replicas[0].execute(b"1")  # the leader has begun its epoch, and if two are left both have all records
        replicas.sort(key=lambda replica: replica.leadership.is_self, reverse=leader_first)
        async with asyncio.timeout(60):
            await replicas.pop(0).close(timeout_s=3600)


async def test_a_snapshot_begins_with_the_voters_below_its_end(tmp_path):
    async with Replica(Sum(), tmp_path, config=CONFIG) as replica:
        member = replica._running
        await replica.wait_for_leader()
        assert await member.upgrade_quorum(1) == 1
        await replica.execute(b"1")
        end = OffsetAndEpoch(member.driver.high_watermark, member.driver.epoch)
        log, own = member.node.replica.log, member.node.replica.voters
        uncommitted = encode_voters(own.with_voter(Voter(ReplicaKey(2, bytes(range(16))))))
        log.append_control([(KRAFT_VOTERS, uncommitted)], end.epoch, 0)
        member.node.on_tick(0)
        assert member.driver.voter_ids == {1, 2}
        await member.write_snapshot(end)
        data = log.native.snapshot_path(*end).read_bytes()
        control = [record.value for batch in batches(data) if batch.is_control for record in batch.records()]
        assert encode_voters(own) in control
        assert uncommitted not in control


async def test_a_replica_that_lags_or_lost_its_disk_fetches_a_snapshot(tmp_path):
    snapshots = SnapshotConfig(record_bytes_between_snapshots_max=2000, retention_bytes_max=0)
    config = CONFIG._replace(snapshots=snapshots, segment_bytes=4096)
    hub, replicas = LocalHub(), {}

    async def start(node_id):
        replicas[node_id] = Replica(
            Sum(),
            tmp_path / str(node_id),
            node_id=node_id,
            voters={1: "", 2: "", 3: ""},
            network=hub.network(node_id),
            config=config,
        )
        await replicas[node_id].start()

    for node_id in (1, 2, 3):
        await start(node_id)
    total = 1
    await replicas[1].execute(b"1")
    for is_wiped in (False, True):
        leader = await replicas[1].wait_for_leader()
        absent = next(node_id for node_id in replicas if node_id != leader)
        await replicas.pop(absent).close(timeout_s=0)
        behind = replicas[leader].applied_offset
        for _ in range(100):
            total += 1
            await replicas[leader].execute(b"1")

        def is_cleaned(leader=leader, behind=behind):
            first = sorted((tmp_path / str(leader) / "log").glob("*.log"))[0]
            return int(first.stem) > behind

        while not is_cleaned():
            total += 1
            await replicas[leader].execute(b"1")
        if is_wiped:
            shutil.rmtree(tmp_path / str(absent))
        await start(absent)
        assert await replicas[absent].read(value) == total
    results = await asyncio.gather(*(replica.execute(b"0") for replica in replicas.values()))
    assert results == [b"%d" % total] * 3
    await until(lambda: all(replica.read_local(value) == total for replica in replicas.values()))
    for replica in replicas.values():
        await replica.close(timeout_s=0)
