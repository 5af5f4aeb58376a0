"""One voter: executed commands are on the disk, once, and are restored after a restart."""

from __future__ import annotations

import inspect

import pytest
from tests.support.waiting import until

from klamm._engine.quorum import StorageError
from klamm.raft import (
    CommandRefusedError,
    RaftConfig,
    RaftStoppedError,
    Replica,
    ReplicaConfig,
    ReplicaDirectoryError,
    SnapshotConfig,
    SyncReplica,
)
from klamm.raft.library.driver.options import ReplicaOptions


class Ledger:
    """Records its calls in order."""

    def __init__(self):
        self.entries = []

    def apply(self, command):
        if command == b"refuse":
            raise CommandRefusedError("as asked")
        if command == b"fail":
            raise ZeroDivisionError("a fault")
        self.entries.append(command)
        return b"%d" % len(self.entries)

    def snapshot(self):
        held = list(self.entries)
        return lambda: b"\n".join(held)

    def restore(self, data):
        self.entries = data.split(b"\n") if data else []


def entries(ledger):
    return list(ledger.entries)


async def test_executed_commands_are_restored_from_disk(tmp_path):
    async with Replica(Ledger(), tmp_path) as replica:
        assert await replica.execute(b"a") == b"1"
        assert await replica.execute_all([b"b", b"c"]) == [b"2", b"3"]
        assert await replica.read(entries) == [b"a", b"b", b"c"]
        assert replica.leadership.is_self
    async with Replica(Ledger(), tmp_path) as replica:
        assert await replica.read(entries) == [b"a", b"b", b"c"]
        assert await replica.execute(b"d") == b"4"


async def test_snapshots_replace_the_log(tmp_path):
    snapshots = SnapshotConfig(record_bytes_between_snapshots_max=2000, retention_bytes_max=0)
    config = ReplicaConfig(snapshots=snapshots, segment_bytes=4096, flush=False)
    async with Replica(Ledger(), tmp_path, config=config) as replica:
        for number in range(200):
            await replica.execute(b"%d" % number)
        expected = await replica.read(entries)
        await until(lambda: list((tmp_path / "log").glob("*.checkpoint")))
    async with Replica(Ledger(), tmp_path, config=config) as replica:
        assert await replica.read(entries) == expected
        assert await replica.execute(b"more") == b"201"


async def test_rejections_reach_the_caller_and_change_nothing(tmp_path):
    async with Replica(Ledger(), tmp_path, config=ReplicaConfig(flush=False)) as replica:
        with pytest.raises(CommandRefusedError, match="as asked"):
            await replica.execute(b"refuse")
        assert await replica.execute(b"a") == b"1"
        with pytest.raises(ValueError, match="4194304"):
            await replica.execute(bytes((4 << 20) + 1))


async def test_a_fault_of_the_state_machine_stops_the_replica_with_its_offset(tmp_path):
    replica = Replica(Ledger(), tmp_path, config=ReplicaConfig(flush=False))
    await replica.start()
    with pytest.raises(RaftStoppedError, match=r"Ledger.apply failed at offset \d+ with ZeroDivisionError"):
        await replica.execute(b"fail")
    with pytest.raises(RaftStoppedError, match="ZeroDivisionError"):
        await replica.execute(b"a")
    await replica.close()


async def test_directories_belong_to_one_replica_of_one_cluster(tmp_path):
    async with Replica(Ledger(), tmp_path):
        with pytest.raises(ReplicaDirectoryError, match="in use"):
            await Replica(Ledger(), tmp_path).start()
    with pytest.raises(ReplicaDirectoryError, match="belongs to replica 1 of cluster 'klamm'"):
        await Replica(Ledger(), tmp_path, cluster="other").start()
    (tmp_path / "replica.json").write_text("{}")
    with pytest.raises(ReplicaDirectoryError, match=r"replica\.json"):
        await Replica(Ledger(), tmp_path).start()


async def test_a_damaged_log_is_rejected_with_a_remedy_of_the_library(tmp_path):
    async with Replica(Ledger(), tmp_path) as replica:
        await replica.execute_all([b"a", b"b"])
    log = tmp_path / "log" / "00000000000000000000.log"
    intact = log.read_bytes()
    log.write_bytes(intact[:-3])
    with pytest.raises(StorageError) as raised:
        await Replica(Ledger(), tmp_path).start()
    text = str(raised.value)
    assert f"{log} is damaged at byte " in text
    assert f"Restore {tmp_path / 'log'} from a copy; or remove {tmp_path}: " in text
    assert "klamm " not in text
    assert "format" not in text
    log.write_bytes(intact)
    async with Replica(Ledger(), tmp_path) as replica:
        assert await replica.read(entries) == [b"a", b"b"]


async def test_a_closed_replica_raises(tmp_path):
    replica = Replica(Ledger(), tmp_path)
    with pytest.raises(RaftStoppedError, match="not started"):
        await replica.execute(b"a")
    await replica.start()
    await replica.execute(b"a")
    await replica.close()
    with pytest.raises(RaftStoppedError, match="closed"):
        await replica.execute(b"a")
    with pytest.raises(RuntimeError, match="started before"):
        await replica.start()


async def test_leader_changes_are_reported_and_a_failing_callback_stops_nothing(tmp_path):
    config = ReplicaConfig(raft=RaftConfig(election_timeout_ms=50))
    async with Replica(Ledger(), tmp_path, config=config) as replica:
        seen = []
        replica.on_leader_change(lambda leadership: 1 / 0)
        end = replica.on_leader_change(seen.append)
        assert await replica.wait_for_leader() == 1
        await replica.execute(b"a")
        assert seen[-1].is_self
        end()
        replica.resign()
        await replica.execute(b"b", timeout_s=30)
        assert replica.leadership.epoch > seen[-1].epoch


async def test_progress_is_reported_until_its_subscription_ends(tmp_path):
    async with Replica(Ledger(), tmp_path, config=ReplicaConfig(flush=False)) as replica:
        seen = []
        replica.on_applied(lambda offset: 1 / 0)
        end = replica.on_applied(seen.append)
        await replica.execute(b"a")
        assert seen[-1] == replica.applied_offset
        end()
        end()
        await replica.execute(b"b")
        assert seen[-1] < replica.applied_offset


def test_the_api_for_threads(tmp_path):
    with SyncReplica(Ledger(), tmp_path) as replica:
        assert replica.execute(b"a") == b"1"
        assert replica.execute_all([b"b"]) == [b"2"]
        assert replica.read(entries) == [b"a", b"b"]
        assert replica.read_local(entries) == [b"a", b"b"]
        assert replica.wait_for_leader() == 1
        with pytest.raises(RuntimeError, match="wait for itself"):
            replica.read(lambda ledger: replica.execute(b"x"))
    with pytest.raises(RaftStoppedError):
        replica.execute(b"a")
    replica.close()


def test_the_options_that_are_passed_on_are_those_of_a_replica() -> None:
    parameters = inspect.signature(Replica).parameters.values()
    own = {one.name: one.annotation for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert {name: annotation.__forward_arg__ for name, annotation in ReplicaOptions.__annotations__.items()} == own
