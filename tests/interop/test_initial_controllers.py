"""A dynamic quorum of controllers of both systems, formatted by both tools with one `--initial-controllers` string."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from klamm.cli.main import run
from klamm.formats.storage import random_cluster_id
from klamm.protocol.messages.cluster import QuorumPartitionData
from tests.interop.apache_kafka import Tools
from tests.support.mixed_quorum import EAGER, PATIENT, MixedQuorum
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

JAVA = 3


def format_all(tools: Tools, quorum: MixedQuorum) -> None:
    """Format 1 for klamm by kafka-storage, 2 for klamm and 3 for Kafka by klamm, 4 as observer by kafka-storage."""
    cluster = "format", "-t", quorum.cluster_id
    named = [
        f"{node_id}@127.0.0.1:{quorum.controllers[node_id].port}:{random_cluster_id()}" for node_id in (1, 2, JAVA)
    ]
    voters = "--initial-controllers", ",".join(named)
    servers = ",".join(f"127.0.0.1:{one.port}" for one in quorum.controllers.values())
    for node_id, controller in quorum.controllers.items():
        controller.become_dynamic(servers)
        config = "-c", str(controller.properties)
        if node_id == 1:
            tools("storage", *cluster, *config, *voters)
        elif node_id == 4:
            tools("storage", *cluster, *config, "--no-initial-controllers")
        else:
            assert run(["storage", *cluster, *config, *voters]) == 0


def keys(described: QuorumPartitionData) -> set[tuple[int, bytes]]:
    return {(one.replica_id, one.replica_directory_id) for one in described.current_voters}


def test_controllers_of_both_begin_with_the_same_voters(tools: Tools, tmp_path: Path) -> None:
    overrides = {node_id: EAGER if node_id == JAVA else PATIENT for node_id in (1, 2, JAVA, 4)}
    with contextlib.closing(MixedQuorum(tmp_path, [], overrides, size=4)) as quorum:
        format_all(tools, quorum)
        quorum.run_by_java([JAVA])
        for node_id in (JAVA, 1, 2, 4):
            quorum.launch(node_id)
        leader, described = quorum.leader([1, 2, JAVA])
        assert {one.replica_id for one in described.current_voters} == {1, 2, JAVA}
        assert len({one.replica_directory_id for one in described.current_voters}) == 3
        quorum.write("before", 1000, [1, 2, JAVA])

        # The fourth follows the log and becomes a voter, whose vote is needed after another one was killed.
        wait_until(lambda: 4 in {one.replica_id for one in quorum.leader([1, 2, JAVA])[1].observers}, bound_s=60)
        at = "--bootstrap-controller", f"127.0.0.1:{quorum.controllers[1].port}"
        add = *at, "--command-config", str(quorum.controllers[4].properties), "add-controller"
        # Retried while Apache Kafka's leader finds that it lags.
        wait_until(lambda: "Added controller 4" in tools("metadata-quorum", *add, check=False).stdout, bound_s=120)
        leader, described = quorum.leader()
        assert {one.replica_id for one in described.current_voters} == {1, 2, JAVA, 4}
        quorum.kill(leader.id)
        rest = [node_id for node_id in quorum.controllers if node_id != leader.id]
        quorum.write("after", 2000, rest)
        for node_id in rest:
            quorum.wait_for(node_id, {"before": 1000, "after": 2000})

        # Each system starts on the other's folder, and is the same voter as before.
        for node_id in (1, JAVA):
            quorum.kill(node_id)
        quorum.run_by_java([1])
        for node_id in {1, JAVA, leader.id}:
            quorum.launch(node_id)
        quorum.write("moved", 3000)
        for node_id in quorum.controllers:
            quorum.wait_for(node_id, {"before": 1000, "after": 2000, "moved": 3000})
        assert keys(quorum.leader()[1]) == keys(described)
