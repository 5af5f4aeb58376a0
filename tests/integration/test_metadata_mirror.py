"""The quorum's log over the network: as the leader has it, across a change of leaders, and from a snapshot on."""

from __future__ import annotations

import json

import pytest

import klamm
from klamm.admin.metadata_mirror import Mirror
from klamm.cli.main import run
from klamm.metadata import History
from tests.support.waiting import wait_until

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "500"}


def names(history: History) -> list[str]:
    return history.state_at().image.topic_names()


def test_a_mirror_follows_whoever_leads() -> None:
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
        assert "offset 0 is cleaned away" in capsys.readouterr().err
        assert run(["metadata", "tail", "-n", "2", "--bootstrap-controller", cluster.bootstrap_servers]) == 1
        assert "controller" in capsys.readouterr().err
