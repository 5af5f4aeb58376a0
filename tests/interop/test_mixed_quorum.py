"""One quorum of Apache Kafka's controllers and klamm's: each side leads, follows, dies and comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.interop import apache_kafka
from tests.support import foreign
from tests.support.mixed_quorum import EAGER, EARLY_SNAPSHOTS, PATIENT, MixedQuorum

pytestmark = pytest.mark.timeout(600)


@contextlib.contextmanager
def mixed(folder: Path, java: Sequence[int], overrides: Mapping[int, Mapping[str, str]]) -> Iterator[MixedQuorum]:
    foreign.require("java", "mvn")
    quorum = MixedQuorum(folder, java, overrides)
    try:
        # Those that take long to start come first: nobody elects without them meanwhile.
        for node_id in sorted(quorum.controllers, key=lambda node_id: node_id not in java):
            quorum.launch(node_id)
        yield quorum
    finally:
        quorum.close()


def test_two_controllers_of_klamm_and_one_of_apache_kafka(tmp_path: Path) -> None:
    with mixed(tmp_path, [1], {1: EAGER, 2: PATIENT, 3: PATIENT}) as quorum:
        leader, told = quorum.leader()
        assert leader.id == 1, "Apache Kafka's campaigns first"
        assert [voter.replica_id for voter in told.current_voters] == [1, 2, 3]
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
        shown = apache_kafka.tool(
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

        # With one of each left they need each other.
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
            leader, told = quorum.leader()
            leaders.add(leader.id)
            assert {voter.replica_id for voter in told.current_voters} == {1, 2, 3}
            quorum.kill(leader.id)
            name = f"{round_number}-after"
            written[name] = 2000
            quorum.write(name, 2000, quorum.others(leader.id))
            quorum.launch(leader.id)
        assert 3 in leaders
        assert leaders & {1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("wiped", [1, 3], ids=["of Apache Kafka", "of klamm"])
def test_a_snapshot_of_the_other_side_is_taken(tmp_path: Path, wiped: int) -> None:
    """A voter whose disk was replaced by an empty one begins with the leader's snapshot."""
    leading = 2 if wiped == 1 else 1
    timeouts = {node_id: EARLY_SNAPSHOTS | (EAGER if node_id == leading else PATIENT) for node_id in (1, 2, 3)}
    with mixed(tmp_path, [1], timeouts) as quorum:
        leader, _ = quorum.leader()
        assert leader.id == leading
        written = {f"value-{number}": 1000 + number for number in range(100)}
        for name, value in written.items():
            quorum.write(name, value)
        for node_id in quorum.controllers:
            quorum.wait_for(node_id, written)
        log = quorum.controllers[leading].data / "__cluster_metadata-0"
        assert list(log.glob("*.checkpoint")), "the leader has no snapshot yet"
        quorum.kill(wiped)
        quorum.controllers[wiped].format(quorum.cluster_id)
        quorum.launch(wiped)
        quorum.wait_for(wiped, written)
        own = quorum.controllers[wiped].data / "__cluster_metadata-0"
        fetched = {path.name for path in own.glob("*.checkpoint")} & {path.name for path in log.glob("*.checkpoint")}
        assert fetched, "it has the records, and not by a snapshot"
        quorum.write("last", 3000)
        quorum.wait_for(wiped, {"last": 3000})
