"""One quorum of Apache Kafka's and klamm's controllers: both kinds lead, follow, crash and restart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.interop.apache_kafka import Tools
from tests.support import foreign
from tests.support.mixed_quorum import EAGER, EARLY_SNAPSHOTS, PATIENT, MixedQuorum
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


@contextlib.contextmanager
def mixed(folder: Path, java: Sequence[int], overrides: Mapping[int, Mapping[str, str]]) -> Iterator[MixedQuorum]:
    foreign.require("java", "mvn")
    quorum = MixedQuorum(folder, java, overrides)
    try:
        # Those that are slow to start come first: the others cannot elect a leader without them.
        for node_id in sorted(quorum.controllers, key=lambda node_id: node_id not in java):
            quorum.launch(node_id)
        yield quorum
    finally:
        quorum.close()


def test_two_controllers_of_klamm_and_one_of_apache_kafka(tools: Tools, tmp_path: Path) -> None:
    with mixed(tmp_path, [1], {1: EAGER, 2: PATIENT, 3: PATIENT}) as quorum:
        leader, described = quorum.leader()
        assert leader.id == 1, "Apache Kafka's campaigns first"
        assert [voter.replica_id for voter in described.current_voters] == [1, 2, 3]
        written = {f"java-{number}": 1000 + number for number in range(5)}
        for name, value in written.items():
            quorum.write(name, value)
        for node_id in quorum.controllers:
            quorum.wait_for(node_id, written)

        quorum.kill(1)
        successor = quorum.write("klamm", 2000, [2, 3])
        written["klamm"] = 2000
        quorum.launch(1)
        for node_id in quorum.controllers:
            quorum.wait_for(node_id, written)
        shown = tools(
            "metadata-quorum",
            "--bootstrap-controller",
            f"127.0.0.1:{quorum.controllers[successor].port}",
            "describe",
            "--status",
        ).stdout
        lines = dict(line.split(":", 1) for line in shown.splitlines() if ":" in line)
        assert lines["ClusterId"].strip() == quorum.cluster_id
        assert int(lines["LeaderId"]) == successor
        assert [f'"id": {node_id}' in lines["CurrentVoters"] for node_id in (1, 2, 3)] == [True] * 3

        # With only one controller of each system, both are needed for a majority.
        quorum.kill(successor)
        quorum.write("both", 3000, quorum.others(successor))
        written["both"] = 3000
        for node_id in quorum.others(successor):
            quorum.wait_for(node_id, written)


@pytest.mark.slow
def test_one_controller_of_klamm_and_two_of_apache_kafka(tmp_path: Path) -> None:
    with mixed(tmp_path, [1, 2], {1: PATIENT, 2: PATIENT, 3: EAGER}) as quorum:
        written: dict[str, int] = {}
        leaders = set()
        for round_number in range(6):
            for number in range(5):
                name = f"{round_number}-{number}"
                written[name] = 1000 + number
                quorum.write(name, written[name])
            for node_id in quorum.controllers:
                quorum.wait_for(node_id, written)
            leader, described = quorum.leader()
            leaders.add(leader.id)
            assert {voter.replica_id for voter in described.current_voters} == {1, 2, 3}
            quorum.kill(leader.id)
            name = f"{round_number}-after"
            written[name] = 2000
            quorum.write(name, 2000, quorum.others(leader.id))
            quorum.launch(leader.id)
        assert 3 in leaders
        assert leaders & {1, 2}


def wipe(quorum: MixedQuorum, node_id: int, leader_id: int, written: Mapping[str, int]) -> None:
    """Give a voter an empty disk. It must fetch a snapshot from the leader, and have what was written."""
    theirs = quorum.controllers[leader_id].data / "__cluster_metadata-0"
    wait_until(lambda: list(theirs.glob("*.checkpoint")), bound_s=60)
    quorum.kill(node_id)
    quorum.controllers[node_id].format(quorum.cluster_id)
    quorum.launch(node_id)
    quorum.wait_for(node_id, written)
    own = quorum.controllers[node_id].data / "__cluster_metadata-0"
    names = [{path.name for path in folder.glob("*.checkpoint")} for folder in (own, theirs)]
    assert names[0] & names[1], "it has the records, and not by a snapshot"


def test_each_system_fetches_snapshots_of_the_other(tmp_path: Path) -> None:
    """klamm fetches one of Apache Kafka's, then Apache Kafka one of klamm's."""
    overrides = {node_id: EARLY_SNAPSHOTS | (EAGER if node_id == 1 else PATIENT) for node_id in (1, 2, 3)}
    with mixed(tmp_path, [1], overrides) as quorum:
        leader, _ = quorum.leader()
        assert leader.id == 1
        written = {f"java-{number}": 1000 + number for number in range(60)}
        for name, value in written.items():
            quorum.write(name, value)
        for node_id in quorum.controllers:
            quorum.wait_for(node_id, written)
        wipe(quorum, 3, quorum.leader()[0].id, written)

        quorum.kill(1)
        for number in range(60):
            name = f"klamm-{number}"
            written[name] = 2000 + number
            quorum.write(name, written[name], [2, 3])
        for node_id in (2, 3):
            quorum.wait_for(node_id, written)
        leader, _ = quorum.leader([2, 3])
        wipe(quorum, 1, leader.id, written)
        quorum.write("last", 3000)
        for node_id in quorum.controllers:
            quorum.wait_for(node_id, {"last": 3000})
