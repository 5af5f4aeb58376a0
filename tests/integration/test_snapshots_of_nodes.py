"""Controllers and brokers whose metadata log ends before the others' log starts catch up by a snapshot (KIP-630)."""

from __future__ import annotations

from pathlib import Path

import pytest

import klamm
from klamm.embedded.cluster import Cluster
from klamm.embedded.parts import Controller
from klamm.formats.directories import METADATA_FOLDER
from tests.support.waiting import wait_until

# A snapshot after every few records, and no log before it.
CONFIG = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "metadata.max.retention.bytes": "1",
    "controller.quorum.fetch.snapshot.max.bytes": "100",
}


def active(cluster: Cluster) -> Controller:
    wait_until(lambda: any(one.is_active for one in cluster.controllers))
    return next(one for one in cluster.controllers if one.is_active)


def snapshots(folder: Path) -> list[int]:
    """The end offsets of the snapshots in a metadata log folder."""
    names = (path.name for path in folder.glob("*-*.checkpoint"))
    return sorted(int(name.split("-")[0]) for name in names)


def test_a_controller_that_was_away_leads_after_a_snapshot(tmp_path: Path) -> None:
    with klamm.Cluster(tmp_path, controllers=3, config=CONFIG) as cluster:
        cluster.create_topic("before")
        leader = active(cluster)
        away = next(one for one in cluster.controllers if one.id != leader.id)
        away.stop()
        folder, leaders = (tmp_path / f"controller-{one.id}" / METADATA_FOLDER for one in (away, leader))
        ended_at = max(snapshots(folder), default=0)
        for number in range(30):
            cluster.create_topic(f"topic-{number}")
        wait_until(lambda: min(snapshots(leaders), default=0) > ended_at + 30)
        away.start()
        wait_until(lambda: min(snapshots(folder), default=0) > ended_at + 30)
        third = next(one for one in cluster.controllers if one.id not in (leader.id, away.id))
        third.stop()
        # The two running controllers are a majority, so committed records are in both logs.
        cluster.create_topic("with-both")
        third.start()
        leader.kill()
        cluster.create_topic("after")
        expected = {"before", "after", "with-both", *(f"topic-{number}" for number in range(30))}
        wait_until(lambda: expected <= set(cluster.topics()))


def test_the_smallest_limit_writes_no_empty_snapshot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    smallest = {"metadata.log.max.record.bytes.between.snapshots": "1"}
    with klamm.Cluster(tmp_path, controllers=1, brokers=1, config=smallest) as cluster:
        cluster.create_topic("any")
        for name in ("controller-2", "broker-1"):
            wait_until(lambda folder=tmp_path / name / METADATA_FOLDER: snapshots(folder))
    said = [record for record in caplog.records if record.name.startswith("klamm")]
    assert not [record.getMessage() for record in said if record.levelname in ("WARNING", "ERROR")]


def test_a_broker_recovers_from_losing_its_metadata_log(tmp_path: Path) -> None:
    with klamm.Cluster(tmp_path, controllers=1, brokers=1, config=CONFIG) as cluster:
        for number in range(20):
            cluster.create_topic(f"topic-{number}")
    broker = tmp_path / "broker-1" / METADATA_FOLDER
    for path in broker.iterdir():
        path.unlink()
    with klamm.Cluster(tmp_path, controllers=1, brokers=1, config=CONFIG) as cluster:
        wait_until(lambda: {f"topic-{number}" for number in range(20)} <= set(cluster.topics()))
        wait_until(lambda: min(snapshots(broker), default=0) > 0)
