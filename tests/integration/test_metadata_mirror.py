"""Mirrors of the quorum's log over the network: equal to the leader's, through leader changes, and from a snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klamm
from klamm.admin import metadata_mirror
from klamm.admin.metadata_mirror import Mirror
from klamm.cli.main import run
from klamm.cli.metadata import metadata_commands
from klamm.client import UnreachableError
from klamm.client.connection import Connection
from klamm.metadata import History
from klamm.metadata.errors import HistoryError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.quorum_messages import EpochEndOffset, FetchPartitionData, FetchSnapshotRequest
from tests.support.waiting import wait_until

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "500"}


def names(history: History) -> list[str]:
    return history.state_at().image.topic_names()


def test_a_mirror_follows_every_leader() -> None:
    with klamm.Cluster(controllers=3, brokers=1) as cluster:
        cluster.create_topic("first")
        standby = next(one for one in cluster.controllers if not one.is_active)
        with Mirror(standby.address) as mirror:
            mirror.update()
            history = History(mirror.directory)
            assert names(history) == ["first"]
            assert history.start_offset() == 0
            assert [voter.key.id for voter in history.state_at().quorum.voters] == [
                one.id for one in cluster.controllers
            ]
            active = next(one for one in cluster.controllers if one.is_active)
            active.stop()
            wait_until(lambda: any(one.is_active for one in cluster.controllers if one.is_running))
            cluster.create_topic("second")
            mirror.update()
            assert names(history) == ["first", "second"]
            active.start()
        assert not mirror.directory.exists()


def test_the_commands_use_the_node_on_localhost_without_a_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with klamm.Cluster() as cluster:
        cluster.create_topic("orders")
        monkeypatch.setattr(metadata_commands, "DEFAULT_BOOTSTRAP", cluster.bootstrap_servers)
        for command in ("tail", "at end", "diff 0 end", "why orders-0"):
            assert run(["metadata", *command.split()]) == 0, capsys.readouterr().err
            assert "orders" in capsys.readouterr().out, command
        (tmp_path / "klamm-data").mkdir()
        assert run(["metadata", "tail"]) == 1, "the folder goes before the node"
        assert "klamm-data" in capsys.readouterr().err
    assert run(["metadata", "tail", "--bootstrap-server", "localhost:1"]) == 1
    assert "cannot connect to localhost:1" in (said := capsys.readouterr().err)
    assert "is a broker running there? Name a node's files with --data" in said


def test_a_mirror_begins_with_the_latest_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    with klamm.Cluster(controllers=1, brokers=1, config=SNAPSHOTS) as cluster:
        address = cluster.controllers[0].address
        for at in range(30):
            cluster.create_topic(f"topic-{at:02}")

        def has_snapshot() -> bool:
            with Mirror(address) as mirror:
                mirror.update()
                return len(History(mirror.directory).snapshots()) == 1

        wait_until(has_snapshot)
        controller = ["--bootstrap-controller", address]
        assert run(["metadata", "at", "--json", *controller]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [topic["name"] for topic in found["topics"]] == sorted(cluster.topics())
        assert run(["metadata", "why", "topic-00-0", *controller]) == 0
        assert "as the snapshot has it: leader" in capsys.readouterr().out
        assert run(["metadata", "at", "0", *controller]) == 1
        assert "offset 0 was cleaned" in capsys.readouterr().err
        assert run(["metadata", "tail", "-n", "2", "--bootstrap-controller", cluster.bootstrap_servers]) == 1
        assert "controller" in capsys.readouterr().err


def before_slices(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Fetch snapshots in slices of 256 bytes and call `act` before each one; returns the requested positions."""
    positions: list[int] = []
    ask = Connection.ask

    def asking(self: Connection, request: Any, *rest: Any) -> Any:
        if isinstance(request, FetchSnapshotRequest):
            (partition,) = request.topics[0].partitions
            positions.append(partition.position)
            act(len(positions))
        return ask(self, request, *rest)

    monkeypatch.setattr(metadata_mirror, "_BYTES", 256)
    monkeypatch.setattr(Connection, "ask", asking)
    return positions


def wait_for_snapshots(cluster: klamm.Cluster, count: int) -> None:
    """Wait until every controller has a snapshot."""
    for at in range(count):
        cluster.create_topic(f"topic-{at:02}")
    folders = [cluster.data / f"controller-{controller.id}" for controller in cluster.controllers]
    wait_until(lambda: all(History(folder).snapshots() for folder in folders))


def test_a_leader_that_dies_while_its_snapshot_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with klamm.Cluster(controllers=3, brokers=1, config=SNAPSHOTS) as cluster:
        wait_for_snapshots(cluster, 30)
        active = next(one for one in cluster.controllers if one.is_active)

        def kill_it(slices: int) -> None:
            if slices == 2:
                active.kill()

        positions = before_slices(monkeypatch, kill_it)
        with Mirror(",".join(one.address for one in cluster.controllers)) as mirror:
            mirror.update()
            assert names(History(mirror.directory)) == sorted(cluster.topics())
        assert positions[0] == positions[2] == 0, "the next leader's is copied from its beginning"
        active.start()


def test_a_log_that_is_truncated_while_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = Mirror._ask
    offsets: list[int] = []

    def cut_once(self: Mirror, leader: Connection) -> FetchPartitionData:
        offsets.append(self._offset)
        if len(offsets) == 2:
            return FetchPartitionData(0, ErrorCode.NONE, 0, diverging_epoch=EpochEndOffset(1, 1))
        return fetch(self, leader)

    monkeypatch.setattr(Mirror, "_ask", cut_once)
    with klamm.Cluster(controllers=1, brokers=1) as cluster:
        cluster.create_topic("first")
        with Mirror(cluster.controllers[0].address) as mirror:
            mirror.update()
            assert names(History(mirror.directory)) == ["first"]
            assert offsets[1] > offsets[0] == offsets[2] == 0
            # Records that were returned as read cannot be withdrawn.
            offsets.clear()
            cluster.create_topic("second")
            with pytest.raises(HistoryError, match="the quorum's log was truncated below offset"):
                mirror.update()


def test_leaders_that_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_mirror, "_PAUSE_S", 0.001)
    with klamm.Cluster(controllers=1, brokers=1, config=SNAPSHOTS) as cluster:
        wait_for_snapshots(cluster, 30)

        def break_it(_: int) -> None:
            raise UnreachableError("the connection broke")

        positions = before_slices(monkeypatch, break_it)
        message = "from offset 0 on: 20 attempts failed in a row, the last of them with: the connection broke"
        with Mirror(cluster.controllers[0].address) as mirror, pytest.raises(UnreachableError, match=message):
            mirror.update()
        assert positions == [0] * 20
        assert not list(mirror.directory.rglob("*"))
